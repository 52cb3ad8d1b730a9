"""What a server refuses of an OpenAI-compatible request, what it is sent instead, and the error that is raised.

Models that reason before they answer (OpenAI's o1 and later) refuse what other models require: `max_tokens`, the role
`system`, sampling parameters, several replies to one request. The error names the parameter; from then on, requests to
that server are written without it, or in the way that it accepts. Nothing is assumed from the name of a model.

The fields that say how much a model shall think are not part of OpenAI's interface, or only of that of some models. A
server that refuses one is sent requests without it, and what is lost by that is said. To switch thinking off, templates
are passed a variable (vLLM, SGLang); where that is refused, `reasoning_effort` is `none`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweet.errors import ServerError, SweetError, UsageError
from sweet.llm.base import Completion, ContextOverflow, RequestFailed, Role
from sweet.llm.http import HttpError, StatusError, TransportError
from sweet.llm.servers import KEY_VARIABLES

_CODES = ("unsupported_parameter", "unsupported_value")
_NAMED = re.compile(r"unsupported (?:parameter|value): '([^']{1,80})'", re.IGNORECASE)
_ROLE = re.compile(r"messages\[\d+\]\.role")
_ROLES = ("system", "developer", "user")
"""The roles in which the system message is sent, until one is accepted."""

_NEUTRAL: Mapping[str, Any] = {"temperature": 1, "top_p": 1, "seed": None}
"""Parameters that a request can do without, with the values that leaving them out does not change."""

TEMPLATE, EFFORT, BUDGET = "chat_template_kwargs", "reasoning_effort", "thinking_token_budget"
"""The fields that say how much a model shall think: variables of the chat template, the effort, and the number of
tokens after which a thought is ended (vLLM)."""
_THINKING = (TEMPLATE, EFFORT, BUDGET)
_THOUGHT = "reasoning_content"
"""The field of a message with its thought, in a history that keeps thoughts."""
_REFUSED = re.compile(
    r"unrecognized|unknown|unexpected|not permitted|not supported|unsupported|invalid|should be", re.IGNORECASE
)

_OVERFLOW = re.compile(
    r"context[ _-]?(length|window)|maximum[^.]{0,20}context|prompt is too long|greater than max_model_len",
    re.IGNORECASE,
)
_CONTEXT = re.compile(r"context length (?:is|of) (?:only )?(\d+)", re.IGNORECASE)
_LENGTH = re.compile(r"greater than max_model_len=(\d+)", re.IGNORECASE)
_PROMPT = re.compile(r"(?<!\d)(\d++) (?:input tokens|in the messages|in your prompt|of text input)", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """How requests to one server are written.

    Attributes:
        limit: the name of the bound on a reply's tokens.
        system: the role of the system message.
        left_out: the parameters that are not sent.
        single: whether a request gets one reply, so that several replies need several requests.
    """

    limit: str = "max_tokens"
    system: str = "system"
    left_out: frozenset[str] = frozenset()
    single: bool = False

    def written(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request as this server accepts it."""
        written = {key: value for key, value in body.items() if key not in self.left_out}
        if TEMPLATE in body and TEMPLATE in self.left_out and EFFORT not in self.left_out:
            written[EFFORT] = "none"
        if _THOUGHT in self.left_out:
            written["messages"] = [
                {key: value for key, value in message.items() if key != _THOUGHT} for message in body["messages"]
            ]
        if self.limit != "max_tokens":
            written[self.limit] = written.pop("max_tokens")
        if self.system != "system":
            written["messages"] = [
                {**message, "role": self.system} if message["role"] == "system" else message
                for message in written["messages"]
            ]
        if self.single:
            del written["n"]
        return written

    def copies(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the requests that replace one: one for each reply if the server gives no more, with seeds of their
        own."""
        if not self.single:
            return [self.written(body)]
        seeds = [{"seed": body["seed"] + number} if "seed" in body else {} for number in range(body["n"])]
        return [self.written({**body, **seed}) for seed in seeds]

    def after(self, error: StatusError) -> tuple[Dialect, str, str] | None:
        """Return the dialect to try after an error, the parameter that it is about, and how requests differ then; None
        if the error is about something else."""
        name = refused_parameter(error)
        if name == "max_tokens" and self.limit == "max_tokens":
            limit = "max_completion_tokens"
            return replace(self, limit=limit), name, f"max_tokens is sent as {limit}"
        if name == "role" and self.system != _ROLES[-1]:
            role = _ROLES[_ROLES.index(self.system) + 1]
            return replace(self, system=role), name, f"the system message is sent in the role {role}"
        if name is not None and name in (*_NEUTRAL, *_THINKING, _THOUGHT) and name not in self.left_out:
            instead = f", but {EFFORT}=none" if name == TEMPLATE and EFFORT not in self.left_out else ""
            return replace(self, left_out=self.left_out | {name}), name, f"{name} is not sent{instead}"
        if name == "n" and not self.single:
            return replace(self, single=True), name, "each reply is a request of its own"
        return None

    def loses(self, name: str, body: Mapping[str, Any]) -> bool:
        """Return whether a setting of a request does not reach the server, which then uses its own."""
        if name == TEMPLATE:
            return EFFORT in self.left_out
        sent = name in (EFFORT, _THOUGHT) or (name in body and body[name] != _NEUTRAL.get(name))
        return name in self.left_out and sent


def refused_parameter(error: StatusError) -> str | None:
    """Return the parameter that a server says it does not support; `role` for the role of a message, else None."""
    if error.status not in (400, 422):
        return None
    for field in (*_THINKING, _THOUGHT):
        if field in (error.param or error.message) and _REFUSED.search(f"{error.code} {error.message}"):
            return field
    found = _NAMED.search(error.message)
    name = error.param if error.code in _CODES and error.param else found[1] if found else None
    return "role" if name is not None and _ROLE.fullmatch(name) else name


def joined(completions: Sequence[Completion]) -> Completion:
    """Return the completions of `Dialect.copies` as one."""
    if len(completions) == 1:
        return completions[0]
    return replace(
        completions[0],
        replies=tuple(reply for completion in completions for reply in completion.replies),
        prompt_tokens=sum(completion.prompt_tokens for completion in completions),
        completion_tokens=sum(completion.completion_tokens for completion in completions),
        thought_tokens=sum(completion.thought_tokens for completion in completions),
    )


def overflows(error: StatusError) -> bool:
    if error.status not in (400, 413, 422):
        return False
    return error.code == "context_length_exceeded" or bool(_OVERFLOW.search(error.message))


def reply_room(error: HttpError, requested: int) -> int | None:
    """Tokens left for the reply if the server says that the prompt alone would fit."""
    if not isinstance(error, StatusError) or not overflows(error):
        return None
    length = _LENGTH.search(error.message)
    if length is not None and 0 < int(length[1]) < requested:
        return int(length[1])  # vllm checks this before the prompt, and then truncates the reply itself
    context, prompt = _CONTEXT.search(error.message), _PROMPT.search(error.message)
    if context is None or prompt is None:
        return None
    room = int(context[1]) - int(prompt[1])
    return room if 0 < room < requested else None


def request_failed(error: HttpError, url: str) -> RequestFailed:
    """The error of a request that is not retried."""
    if not isinstance(error, StatusError):
        return RequestFailed(f"The server's answer cannot be used: {error.message}.", where=url)
    kind = ContextOverflow if overflows(error) else RequestFailed
    return kind(f"The server refused the request ({error.status}): {error.message}", where=url)


def unusable(error: StatusError, url: str, role: Role) -> UsageError:
    if error.status in (401, 403):
        return UsageError(
            f"The server refuses the API key ({error.status}): {error.message}",
            where=url,
            fix=f"export {KEY_VARIABLES[role][0]}=…",
        )
    if error.status < 400:
        return UsageError(
            f"The server redirects to another address, which is not followed ({error.status}): {error.message}",
            where=url,
            fix="write the address that it redirects to",
        )
    return UsageError(
        f"This is not an OpenAI-compatible server ({error.status} for /models).",
        where=url,
        fix="check the address (it usually ends in /v1)",
    )


def retries_exhausted(
    error: HttpError, url: str, retry_timeout: float, *, opening: bool = False, answered: bool = True
) -> SweetError:
    """The final error: a server that is down ends the stage; an error or a slow response fails only the request.

    Args:
        opening: no request was made before.
        answered: whether any request was answered before; a server that never answered in time is down.
    """
    status = error.status if isinstance(error, StatusError) else None
    slow = isinstance(error, TransportError) and error.timed_out and answered
    why = error.message if status is None else f"{status} {error.message}"
    if opening or not (slow or (status is not None and status not in (502, 503, 504))):
        return ServerError(
            f"The server at {url} could not be reached for {retry_timeout:g} seconds: {why}",
            where=url,
            fix="start the server or check the address, then run the same command again",
        )
    return RequestFailed(f"The server failed this request for {retry_timeout:g} seconds: {why}", where=url)
