"""Models behind OpenAI-compatible servers.

One client for each address, all on one event loop; a request goes to the address with the fewest under way. What may
pass when tried again (no connection, 429, 5xx, a time-out) is tried again with growing, jittered pauses for `patience`
seconds, at another address where there is one; the library's own retries are off, so that this is the only rule.
What cannot pass fails at once. An address that failed is left alone for a moment.

Token ids, log-probabilities and the plain distribution are asked for in the way vLLM and the embedded server
understand; a server that refuses the question is asked without it from then on. Answers are validated before anything
reads them.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import openai
from pydantic import ValidationError

from sweet.errors import ServerError, SweetError, UsageError
from sweet.llm.address import base_url, is_loopback
from sweet.llm.answers import ChatAnswer, Served, describe
from sweet.llm.base import Completion, ContextOverflow, RequestFailed, Sampling
from sweet.tasks.base import Message

Role = Literal["agent", "sim"]

KEY_VARIABLES: dict[Role, tuple[str, ...]] = {
    "agent": ("SWEET_AGENT_API_KEY", "OPENAI_API_KEY"),
    "sim": ("SWEET_SIM_API_KEY", "OPENAI_API_KEY"),
}
"""Where an API key is looked for; keys are never taken from flags or files."""

READ_TIMEOUT = 600.0
CONNECT_TIMEOUT = 10.0
KEEPALIVE = 4.0
"""Idle connections are dropped before the servers do it (uvicorn: 5 s), so that none is used as it is closed."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 8.0
REST = 5.0
"""Seconds for which an address that failed is used only when all others failed too."""

_OVERFLOW = re.compile(
    r"context[ _-]?(length|window)|maximum[^.]{0,20}context|prompt is too long|greater than max_model_len",
    re.IGNORECASE,
)
_CONTEXT = re.compile(r"context length (?:is|of) (?:only )?(\d+)", re.IGNORECASE)
_LENGTH = re.compile(r"greater than max_model_len=(\d+)", re.IGNORECASE)
_PROMPT = re.compile(r"(\d+) (?:input tokens|in the messages|in your prompt|of text input)", re.IGNORECASE)


_TOLD = {"logprobs": True, "return_token_ids": True, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""What OpenAI's interface does not know. The last three switch off what vllm otherwise takes from the model's own
generation_config.json: with it, replies are drawn from another distribution than the one asked for."""


@dataclass(eq=False)
class _Target:
    """One address. `told` says whether ids and log-probabilities are still asked for."""

    url: str
    client: openai.AsyncOpenAI
    model: str = ""
    under_way: int = 0
    resting_until: float = 0.0
    told: bool = True


@dataclass
class _Patience:
    """The retries of one request: how long is left, how long to pause."""

    seconds: float
    pause: float = FIRST_PAUSE
    ends: float | None = field(default=None, init=False)

    def next_pause(self, wish: float | None) -> float | None:
        """Seconds until the next try, `wish` being the server's own; None when there is no time for one."""
        now = time.monotonic()
        if self.ends is None:
            self.ends = now + self.seconds
        pause = max(wish or 0.0, self.pause * random.uniform(0.5, 1.5))
        self.pause = min(self.pause * 2, LONGEST_PAUSE)
        left = self.ends - now
        return None if left <= 0 else min(pause, left)


class RemoteClient:
    """Implements `sweet.llm.base.ChatClient` over one or more servers of one model. Made by `open`."""

    def __init__(self, targets: list[_Target], patience: float, role: Role) -> None:
        self.targets = targets
        self.patience = patience
        self.role = role
        self.model = ""

    @classmethod
    async def open(
        cls, model: str, urls: Sequence[str], *, concurrency: int = 128, role: Role = "agent", patience: float = 20.0
    ) -> RemoteClient:
        """Connect, and find out what each server calls `model`.

        Raises:
            UsageError: an address is none, a server refuses the key, or does not serve the model.
            ServerError: a server cannot be reached.
        """
        addresses = dict.fromkeys(base_url(url) for url in urls)
        self = cls([_Target(url, _client(url, concurrency, role)) for url in addresses], patience, role)
        try:
            for target in self.targets:
                target.model = await self._served_name(target, model)
        except BaseException:
            await self.aclose()
            raise
        self.model = self.targets[0].model
        return self

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies; errors as of `ChatClient.chat`."""
        body: dict[str, Any] = {
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "n": sampling.n,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        patience = _Patience(self.patience)
        while True:
            target = self._choose()
            try:
                return await self._ask(target, body, sampling)
            except openai.APIStatusError as error:
                if not _may_pass(error):
                    room = _room(error, body["max_tokens"])
                    if room is None:
                        raise _refused(error, target) from error
                    # The reply is cut at the context's end, as the embedded engine does.
                    body["max_tokens"] = room
                    continue
                failure: openai.APIError = error
            except openai.APIConnectionError as error:
                failure = error
            except openai.APIError as error:
                raise RequestFailed(f"The answer cannot be read: {_words(error)}", where=target.url) from error
            await self._pause(patience, target, failure)

    async def aclose(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(target.client.close() for target in self.targets))

    def _choose(self) -> _Target:
        now = time.monotonic()
        return min(self.targets, key=lambda t: (max(t.resting_until - now, 0.0), t.under_way))

    async def _pause(self, patience: _Patience, target: _Target, error: openai.APIError) -> None:
        """Wait before the next try, or raise what stands when there is no time for one."""
        pause = patience.next_pause(_wish(error))
        if pause is None:
            raise _given_up(error, target, self.patience) from error
        target.resting_until = time.monotonic() + REST
        if any(other.resting_until <= time.monotonic() for other in self.targets):
            return
        await asyncio.sleep(pause)

    async def _ask(self, target: _Target, body: dict[str, Any], sampling: Sampling) -> Completion:
        target.under_way += 1
        try:
            told = target.told
            try:
                raw = await _post(target, {**body, **_TOLD} if told else body)
            except openai.APIStatusError as error:
                if not told or error.status_code not in (400, 422) or _overflows(error):
                    raise
                # Perhaps only the question for ids is refused: ask without it, and go on so if that helps.
                raw = await _post(target, body)
                target.told = False
        finally:
            target.under_way -= 1
        return _completion(raw, sampling, target)

    async def _served_name(self, target: _Target, model: str) -> str:
        patience = _Patience(self.patience)
        while True:
            try:
                raw = await _json(target.client.get("/models", cast_to=object))
                break
            except openai.APIStatusError as error:
                if not _may_pass(error):
                    raise _unusable(error, target, self.role) from error
                failure: openai.APIError = error
            except openai.APIConnectionError as error:
                failure = error
            pause = patience.next_pause(_wish(failure))
            if pause is None:
                raise _given_up(failure, target, self.patience, opening=True) from failure
            await asyncio.sleep(pause)
        try:
            names = Served.model_validate(raw).names
        except ValidationError as error:
            raise UsageError(
                "What answers there is not an OpenAI-compatible server: /models gives no list of models.",
                where=target.url,
                fix="check the address (it usually ends in /v1)",
            ) from error
        if model in names:
            return model
        if len(names) == 1 and _is_local(model):
            return names[0]
        raise UsageError(
            f"The server does not serve {model}. It serves: {', '.join(names) or 'nothing'}.",
            where=target.url,
            fix=f"--{self.role} {names[0]}" if names else "start the server with the model",
        )


def _client(url: str, concurrency: int, role: Role) -> openai.AsyncOpenAI:
    key = next((found for name in KEY_VARIABLES[role] if (found := os.environ.get(name))), "none")
    # Version 2 of the library stands on httpx, version 3 on httpx2; its own limits are of the right one.
    limits = type(openai.DEFAULT_CONNECTION_LIMITS)(
        max_connections=max(concurrency, 8), max_keepalive_connections=max(concurrency, 8), keepalive_expiry=KEEPALIVE
    )
    timeout = openai.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
    make: Any = openai.DefaultAioHttpClient
    # A proxy of the environment must not be asked for what is on this machine.
    http = make(limits=limits, timeout=timeout, trust_env=not is_loopback(url))
    return openai.AsyncOpenAI(
        api_key=key, base_url=url, max_retries=0, timeout=timeout, http_client=http, organization=None, project=None
    )


async def _post(target: _Target, body: dict[str, Any]) -> object:
    return await _json(target.client.post("/chat/completions", body={"model": target.model, **body}, cast_to=object))


async def _json(asking: Awaitable[object]) -> object:
    """The body of an answer; None, which no reader accepts, where it claims to be JSON and is not."""
    try:
        return await asking
    except ValueError:
        return None


def _completion(raw: object, sampling: Sampling, target: _Target) -> Completion:
    try:
        answer = ChatAnswer.model_validate(raw)
    except ValidationError as error:
        raise RequestFailed(f"The server's answer is malformed: {describe(error)}.", where=target.url) from error
    if len(answer.choices) != sampling.n:
        raise RequestFailed(
            f"The server gave {len(answer.choices)} replies where {sampling.n} were asked for.", where=target.url
        )
    return Completion(
        replies=answer.replies(),
        prompt_tokens=answer.usage.prompt_tokens if answer.usage else 0,
        completion_tokens=answer.usage.completion_tokens if answer.usage else 0,
        model=target.model,
        prompt_token_ids=answer.prompt_ids(),
    )


def _is_local(model: str) -> bool:
    """Whether the name says where the model is on some machine, not what a server calls it."""
    return model == "micro" or model.startswith((".", "/", "~")) or Path(model).is_dir()


def _may_pass(error: openai.APIStatusError) -> bool:
    return error.status_code in (408, 425, 429) or error.status_code >= 500


def _wish(error: openai.APIError) -> float | None:
    """Seconds the server asks to wait."""
    response = getattr(error, "response", None)
    try:
        return float(response.headers["retry-after"]) if response is not None else None
    except (KeyError, ValueError):
        return None


def _overflows(error: openai.APIStatusError) -> bool:
    if error.status_code not in (400, 413, 422):
        return False
    return error.code == "context_length_exceeded" or bool(_OVERFLOW.search(_words(error)))


def _room(error: openai.APIStatusError, asked: int) -> int | None:
    """Tokens left for the reply where the server says that the prompt alone would fit."""
    if not _overflows(error):
        return None
    length = _LENGTH.search(_words(error))
    if length is not None and 0 < int(length[1]) < asked:
        return int(length[1])  # vllm looks at this before the prompt, and then cuts by itself
    context, prompt = _CONTEXT.search(_words(error)), _PROMPT.search(_words(error))
    if context is None or prompt is None:
        return None
    room = int(context[1]) - int(prompt[1])
    return room if 0 < room < asked else None


def _refused(error: openai.APIStatusError, target: _Target) -> RequestFailed:
    kind = ContextOverflow if _overflows(error) else RequestFailed
    return kind(f"The server refused the request ({error.status_code}): {_words(error)}", where=target.url)


def _unusable(error: openai.APIStatusError, target: _Target, role: Role) -> UsageError:
    if error.status_code in (401, 403):
        return UsageError(
            f"The server refuses the API key ({error.status_code}): {_words(error)}",
            where=target.url,
            fix=f"export {KEY_VARIABLES[role][0]}=…",
        )
    return UsageError(
        f"What answers there is not an OpenAI-compatible server ({error.status_code} for /models).",
        where=target.url,
        fix="check the address (it usually ends in /v1)",
    )


def _given_up(error: openai.APIError, target: _Target, patience: float, *, opening: bool = False) -> SweetError:
    """A server that is gone ends the stage; one that answers, or takes too long for this request, fails the request."""
    status = getattr(error, "status_code", None)
    slow = type(error.__cause__).__name__ == "ReadTimeout"
    if opening or not (slow or (status is not None and status not in (502, 503, 504))):
        why = _words(error) if status is None else f"{status} {_words(error)}"
        return ServerError(
            f"The server at {target.url} could not be reached for {patience:g} seconds: {why}",
            where=target.url,
            fix="start the server or check the address, then run the same command again",
        )
    why = "no answer in time" if slow else f"{status} {_words(error)}"
    return RequestFailed(f"The server failed this request for {patience:g} seconds: {why}", where=target.url)


def _words(error: openai.APIError) -> str:
    """What the server said, or why there was no connection, in one line."""
    body = error.body
    said = body.get("message") or body.get("detail") if isinstance(body, dict) else None
    cause = str(error.__cause__ or "") if isinstance(error, openai.APIConnectionError) else ""
    text = " ".join(str(said or cause or error.message).split())
    return text[:500] or type(error).__name__
