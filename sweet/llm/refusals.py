"""What a server refuses of an OpenAI-compatible request, what it is sent instead, and the error that is raised.

Servers refuse what others require: `max_tokens`, the role `system`, sampling parameters, several replies to one
request, fields that OpenAI's interface does not have, replies that are not streamed. `Dialect` says how requests to one
server are written. Some refusals name the parameter (`Dialect.after`). Where none is named, plainer and plainer forms
of the request are tried (`Dialect.plainer`), and from one that is accepted each part that was changed is restored
(`Dialect.restored`) as far as the server accepts it: what remains is the smallest change that works. Nothing is assumed
from the name of a model or the wording of an error.

The fields that say how much a model shall think are not part of OpenAI's interface, or only of that of some models. A
server that refuses one is sent requests without it, and what is lost by that is said. To switch thinking off, templates
are passed a variable (vLLM, SGLang); where that is refused, `reasoning_effort` is `none`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sweet.errors import AGAIN, ServerError, SweetError, UsageError
from sweet.llm.base import Completion, ContextOverflow, RequestFailed, Role
from sweet.llm.http import HttpError, StatusError, TransportError
from sweet.llm.servers import KEY_VARIABLES

_FORM = (400, 404, 405, 415, 422, 501)
"""Statuses of refusals that may be about the form of a request."""
_CODES = ("unsupported_parameter", "unsupported_value")
_NAMED = re.compile(r"unsupported (?:parameter|value): '([^']{1,80})'", re.IGNORECASE)
_ROLE = re.compile(r"messages\[\d+\]\.role")
_ROLES = ("system", "developer", "user", "")
"""The roles in which the system message is sent, until one is accepted; without a role it begins the first message."""

SAMPLING_FIELDS = frozenset({"top_k", "min_p", "repetition_penalty", "return_token_ids"})
UNNEEDED_FIELDS = (frozenset({"logprobs", "top_logprobs"}), frozenset({"stop"}))
"""Groups of fields whose lack costs no text: what a reply has after a stop is cut in any case."""
_SILENT = SAMPLING_FIELDS.union(*UNNEEDED_FIELDS)
"""Fields that are left out without a word."""
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

_TOOLS = re.compile(r"\btool", re.IGNORECASE)
TOOLS_FIX = "a server that reads calls of tools (vllm: --enable-auto-tool-choice --tool-call-parser NAME)"

_BOUND, _NUMBER = re.compile(r"max_(?:completion_|new_)?tokens"), re.compile(r"(?<![\d.])\d{1,7}(?![\d.]*\d)")
LEAST_BOUND = 64
"""Smaller numbers in an error about the bound of a reply are not the largest bound."""
_OVERFLOWING = ("context_length_exceeded", "exceed_context_size_error")
"""Codes and types of errors that say so: of OpenAI and servers like it, and of llama.cpp."""
_LENGTHS = re.compile(r"messages|prompt|inputs?|input_tokens|max_\w*tokens")
"""The parameters that an error about the length of a request may name."""
_SIZE = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum model length|input token count|prompt is too|max_model_len",
    re.IGNORECASE,
)
_EXCEEDED = re.compile(
    r"exceed|longer than|greater than|too (?:long|large)|reduce the|overflow|is full|however, you", re.IGNORECASE
)
"""Both are in the words of servers that give no code: vLLM, SGLang, LM Studio, Gemini, Mistral. A text that only
mentions the context is about something else."""
_CONTEXT = re.compile(r"context length (?:is|of) (?:only )?(\d+)", re.IGNORECASE)
_LENGTH = re.compile(r"greater than max_model_len=(\d+)", re.IGNORECASE)
_PROMPT = re.compile(r"(?<!\d)(\d++) (?:input tokens|in the messages|in your prompt|of text input)", re.IGNORECASE)

FEWEST_TOKENS = 256
"""The bound on a reply's tokens that is tried where a server refuses a larger one and does not say which it accepts."""


@dataclass(frozen=True)
class Dialect:
    """How requests to one server are written.

    Attributes:
        limit: the name of the bound on a reply's tokens.
        most: the largest bound that is sent.
        system: the role of the system message; empty if it begins the first message.
        single: whether a request gets one reply, so that several replies need several requests.
        streamed: whether replies are streamed.
        switch: the value of `enable_thinking`, which some servers demand.
        ids_in_logprobs: whether the ids of a reply come with its log-probabilities alone, of which at least one
            alternative must be asked for (llama.cpp).
        left_out: the parameters that are not sent.
    """

    limit: str = "max_tokens"
    most: int | None = None
    system: str = "system"
    single: bool = False
    streamed: bool = False
    switch: bool | None = None
    ids_in_logprobs: bool = False
    left_out: frozenset[str] = frozenset()

    def written(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request as this server accepts it."""
        if self.ids_in_logprobs and "return_token_ids" in body:
            body = {**body, "logprobs": True, "top_logprobs": max(1, body.get("top_logprobs", 0))}
        written = {key: value for key, value in body.items() if key not in self.left_out}
        if TEMPLATE in body and TEMPLATE in self.left_out and EFFORT not in self.left_out:
            written[EFFORT] = "none"
        if _THOUGHT in self.left_out:
            written["messages"] = [
                {key: value for key, value in message.items() if key != _THOUGHT} for message in body["messages"]
            ]
        bound = written.pop("max_tokens")
        written[self.limit] = bound if self.most is None else min(bound, self.most)
        if self.system != "system":
            written["messages"] = _without_system(written["messages"], self.system)
        if self.single:
            del written["n"]
        if self.streamed:
            written["stream"] = True
        if self.switch is not None:
            written["enable_thinking"] = self.switch
        return written

    def copies(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the requests that replace one: one for each reply if the server gives no more, with seeds of their
        own."""
        if not self.single:
            return [self.written(body)]
        seeds = [{"seed": body["seed"] + number} if "seed" in body else {} for number in range(body["n"])]
        return [self.written({**body, **seed}) for seed in seeds]

    def after(self, error: StatusError, body: Mapping[str, Any]) -> Dialect | None:
        """Return the dialect to try after an error that names a parameter; None if it names none, or one that is
        required."""
        name = refused_parameter(error)
        if name == "max_tokens" and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        if name == "role" and self.system:
            return replace(self, system=_ROLES[_ROLES.index(self.system) + 1])
        if name == "n" and not self.single:
            return replace(self, single=True)
        group = _group(name)
        named = {*_NEUTRAL, *_THINKING, _THOUGHT}.union(*UNNEEDED_FIELDS)
        if name in named and not group <= self.left_out:
            return replace(self, left_out=self.left_out | group)
        most = _largest_bound(error, body["max_tokens"] if self.most is None else self.most)
        return None if most is None else replace(self, most=most)

    def plainer(self, body: Mapping[str, Any]) -> Iterator[Dialect]:
        """Yield dialects with which a request may be accepted that was refused in this one: without further fields,
        then without all that a request can do without, then that in other forms."""
        for extra in (SAMPLING_FIELDS, _SILENT):
            if extra & body.keys() - self.left_out:
                yield replace(self, left_out=self.left_out | extra)
        neutral = {name for name, value in _NEUTRAL.items() if value is None or body.get(name) == value}
        left_out = self.left_out | _SILENT | {*_THINKING, _THOUGHT, *neutral}
        plain = replace(self, system="", single=True, left_out=left_out)
        yield plain
        yield replace(plain, limit="max_completion_tokens")
        yield replace(plain, streamed=not self.streamed)
        yield replace(plain, switch=False)
        yield replace(plain, switch=True)
        yield replace(plain, most=FEWEST_TOKENS)

    def parts(self, other: Dialect, body: Mapping[str, Any]) -> list[str]:
        """Return the parts in which another dialect writes a request in another way: attributes and parameters."""
        left_out = {min(_group(name)) for name in self.left_out ^ other.left_out}
        return [
            part
            for part in (*_PARTS, *sorted(left_out))
            if self.restored(part, other).copies(body) != self.copies(body)
        ]

    def restored(self, part: str, other: Dialect) -> Dialect:
        """Return the dialect with a part as it is in another one."""
        if part in _PARTS:
            return replace(self, **{part: getattr(other, part)})
        group = _group(part)
        return replace(self, left_out=(self.left_out - group) | (other.left_out & group))

    def phrase(self, part: str, body: Mapping[str, Any]) -> str | None:
        """Return how the requests differ in a part from the usual ones; None if that is of no consequence."""
        if part in _SILENT:
            return None
        role = f"sent in the role {self.system}" if self.system else "sent as the beginning of the first message"
        phrases = {
            "limit": f"max_tokens is sent as {self.limit}",
            "most": f"no reply may have more than {self.most} tokens",
            "system": f"the system message is {role}",
            "single": "each reply is a request of its own",
            "streamed": "replies are streamed",
            "switch": f"enable_thinking={str(self.switch).lower()} is sent",
        }
        if part in phrases:
            return phrases[part]
        instead = f", but {EFFORT}=none" if part == TEMPLATE and EFFORT not in self.left_out else ""
        is_replaced = part in body and self.loses(part, body)
        used = f" (it uses its own instead of {part}={_short(body[part])})" if is_replaced else ""
        return f"{part} is not sent{instead}{used}"

    def loses(self, part: str, body: Mapping[str, Any]) -> bool:
        """Return whether a setting of a request does not reach the server, which then uses its own."""
        if part in ("most", "switch"):
            return True
        if part == TEMPLATE:
            return EFFORT in self.left_out
        is_sent = part in (EFFORT, _THOUGHT) or (part in body and body[part] != _NEUTRAL.get(part))
        return part in self.left_out and is_sent


_PARTS = tuple(field.name for field in fields(Dialect) if field.name != "left_out")


def _group(name: str | None) -> frozenset[str]:
    """Return the parameters that are left out together with one."""
    return next((group for group in (SAMPLING_FIELDS, *UNNEEDED_FIELDS) if name in group), frozenset({str(name)}))


def _without_system(messages: Sequence[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    """Return messages whose system messages have another role; without a role, each begins the message after it."""
    written: list[dict[str, Any]] = []
    before = ""
    for message in messages:
        if message["role"] == "system" and not role:
            before += f"{message['content']}\n\n"
        elif message["role"] == "system":
            written.append({**message, "role": role})
        else:
            if before and message["role"] != "user":
                written.append({"role": "user", "content": before.strip()})
            elif before:
                content = message["content"]
                parts = [{"type": "text", "text": before}, *content] if isinstance(content, list) else before + content
                message = {**message, "content": parts}
            written.append(message)
            before = ""
    return [*written, {"role": "user", "content": before.strip()}] if before else written


def _largest_bound(error: StatusError, requested: int) -> int | None:
    """Return the largest bound on a reply's tokens that an error names, below the one that was requested."""
    if error.status not in (400, 422) or overflows(error) or not _BOUND.search(error.message):
        return None
    named = [int(number) for number in _NUMBER.findall(error.message)]
    return max((number for number in named if LEAST_BOUND <= number < requested), default=None)


def is_of_the_form(error: StatusError, again: bool) -> bool:
    """Return whether a server may have refused the form of a request.

    Args:
        again: whether it answered the same request so before: an error of the server itself is of the form only then.
    """
    return not overflows(error) and (error.status in _FORM or (again and error.status == 500))


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def refused_parameter(error: StatusError) -> str | None:
    """Return the parameter that a server says it does not support; `role` for the role of a message, else None."""
    if error.status not in (400, 422):
        return None
    for field in (*_THINKING, _THOUGHT):
        if field in (error.param or error.message) and _REFUSED.search(f"{error.code} {error.message}"):
            return field
    match = _NAMED.search(error.message)
    name = error.param if error.code in _CODES and error.param else match[1] if match else None
    if name is not None and _TOOLS.search(error.message):
        return name
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
    if {error.code, error.type} & {*_OVERFLOWING}:
        return True
    elsewhere = error.code in _CODES or (error.param is not None and not _LENGTHS.match(error.param))
    return not elsewhere and bool(_SIZE.search(error.message) and _EXCEEDED.search(error.message))


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
    what = f"The server refused the request ({error.status}): {error.message}"
    if overflows(error):
        return ContextOverflow(what, where=url)
    refused = RequestFailed(what, where=url, fix=TOOLS_FIX if _TOOLS.search(error.message) else None)
    refused.is_refusal = True
    return refused


def unusable(error: StatusError, url: str, role: Role, request: str) -> UsageError:
    """The error of a server that refused the first request, which asked for `request`."""
    if error.status in (401, 403):
        refused, fix = "refuses the API key", f"export {KEY_VARIABLES[role][0]}=…"
        if error.status == 403:  # of the model, the address or the region, too
            refused, fix = "forbids the request", f"what the server says; a key that may do it: {fix}"
        return UsageError(f"The server {refused} ({error.status}): {error.message}", where=url, fix=fix)
    if error.status < 400:
        return UsageError(
            f"The server redirects to another address, which is not followed ({error.status}): {error.message}",
            where=url,
            fix="write the address that it redirects to",
        )
    return UsageError(
        f"This is not an OpenAI-compatible server ({error.status} for {request}): {error.message}",
        where=url,
        fix="check the address (it usually ends in /v1) and the name of the model",
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
    after = f" for {retry_timeout:g} seconds" if retry_timeout else ""
    if opening or not (slow or (status is not None and status not in (502, 503, 504))):
        return ServerError(
            f"The server at {url} could not be reached{after}: {why}",
            where=url,
            fix=f"start the server or check the address, then {AGAIN}",
        )
    return RequestFailed(f"The server failed this request{after}: {why}", where=url)
