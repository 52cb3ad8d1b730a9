"""Models behind OpenAI-compatible servers.

One client for each address, all on one event loop; a request goes to the address with the fewest under way, and
`sweet.llm.concurrency` says how many may be. What may pass when tried again (no connection, 429, 5xx, a time-out) is
tried again with growing, jittered pauses for `patience` seconds, at another address where there is one; the library's
own retries are off, so that this is the only rule. What cannot pass fails at once. An address that failed several
times in a row is left alone for a while that grows.

Token ids, log-probabilities and the plain distribution are asked for in the way vLLM and the embedded server
understand; a server that refuses the question is asked from then on without what OpenAI's interface does not know, and
if that does not help without log-probabilities. Answers are validated before anything reads them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweet.errors import ServerError, SweetError, UsageError
from sweet.llm.address import base_url, is_loopback
from sweet.llm.base import Completion, ContextOverflow, RequestFailed, Role, Sampling
from sweet.llm.concurrency import START, Pace
from sweet.llm.http import CONNECT_TIMEOUT, Channel, HttpError, Refused, Unanswered, allow_open_files
from sweet.llm.images import content_of
from sweet.llm.response_schema import ChatAnswer, Served, describe
from sweet.llm.roles import KEY_VARIABLES, MODEL_OPTIONS, key_of
from sweet.tasks.base import Message

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 8.0
FAILURES = 3
"""So many in a row, and an address is used only when all others rest too: for REST seconds, then for twice as long."""
REST, LONGEST_REST = 2.0, 60.0
GLANCE = 1.0
"""Seconds between looks at whether a request has taken too long, while nobody knows yet what that is."""

_OVERFLOW = re.compile(
    r"context[ _-]?(length|window)|maximum[^.]{0,20}context|prompt is too long|greater than max_model_len",
    re.IGNORECASE,
)
_CONTEXT = re.compile(r"context length (?:is|of) (?:only )?(\d+)", re.IGNORECASE)
_LENGTH = re.compile(r"greater than max_model_len=(\d+)", re.IGNORECASE)
_PROMPT = re.compile(r"(\d+) (?:input tokens|in the messages|in your prompt|of text input)", re.IGNORECASE)


_CHAT = "/chat/completions"
_PLAIN = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Switches off what vllm otherwise takes from the model's own generation_config.json: with it, replies are drawn from
another distribution than the one asked for."""


@dataclass(eq=False)
class _Target:
    """One address. `asked`: for what besides texts; 2 for all, 1 for what OpenAI's interface knows, 0 for nothing."""

    url: str
    channel: Channel
    model: str = ""
    under_way: int = 0
    failures: int = 0
    resting_until: float = 0.0
    asked: int = 2

    def fail(self) -> None:
        self.failures += 1
        if self.failures >= FAILURES:
            rest = min(REST * 2.0 ** (self.failures - FAILURES), LONGEST_REST)
            self.resting_until = time.monotonic() + rest

    def succeed(self) -> None:
        self.failures, self.resting_until = 0, 0.0


class _Failed(Exception):
    """A request that failed, and which address it had gone to."""

    def __init__(self, target: _Target, error: HttpError) -> None:
        super().__init__(error.words)
        self.target, self.error = target, error


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

    def __init__(self, targets: list[_Target], pace: Pace, patience: float, role: Role) -> None:
        self.targets = targets
        self.pace = pace
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
        # A pool for each address and role, and as much again for whatever else is open.
        allow_open_files(4 * concurrency * max(len(urls), 1) + 256)
        addresses = dict.fromkeys(base_url(url) for url in urls)
        targets = [_Target(url, _channel(url, concurrency, role)) for url in addresses]
        self = cls(targets, Pace(concurrency, START * len(targets)), patience, role)
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
            "messages": [{"role": m.role, "content": content_of(m)} for m in messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "n": sampling.n,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        patience = _Patience(self.patience)
        for retries in itertools.count():
            await self.pace.enter()
            try:
                completion, seconds = await self._first(body, sampling)
            except _Failed as failed:
                target, error = failed.target, failed.error
                if not isinstance(error, Refused) or error.may_pass:
                    self.pace.refused()
                    await self._pause(patience, target, error)
                    continue
                self.pace.withdraw()
                room = _room(error, body["max_tokens"])
                if room is None:
                    raise _refused(error, target) from error
                # The reply is cut at the context's end, as the embedded engine does.
                body["max_tokens"] = room
            except BaseException:
                self.pace.withdraw()
                raise
            else:
                self.pace.leave(seconds)
                return replace(completion, retries=retries)
        raise AssertionError("unreachable")

    async def _first(self, body: dict[str, Any], sampling: Sampling) -> tuple[Completion, float]:
        """The first answer to the request, which is sent once more where it takes too long (see sweet.llm.concurrency).

        With it the seconds that it took, by itself: with those of a lost one before it, pace would lose patience late.
        """
        under_way = {asyncio.create_task(self._ask(body, sampling))}
        sent = time.monotonic()
        try:
            while True:
                patience = self.pace.patience()
                wait = GLANCE if patience is None else max(0.0, sent + patience - time.monotonic())
                done, under_way = await asyncio.wait(under_way, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                failed = [task for task in done if task.exception() is not None]  # asked of all, or it is complained of
                if len(failed) < len(done) or not under_way:
                    return (done.difference(failed) or done).pop().result()
                if not done and patience is not None:
                    self.pace.spare()
                    under_way.add(asyncio.create_task(self._ask(body, sampling)))
                    sent = time.monotonic()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def aclose(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(target.channel.aclose() for target in self.targets))

    def _choose(self) -> _Target:
        now = time.monotonic()
        return min(self.targets, key=lambda t: (max(t.resting_until - now, 0.0), t.under_way))

    async def _pause(self, patience: _Patience, target: _Target, error: HttpError) -> None:
        """Wait before the next try, or raise what stands when there is no time for one."""
        pause = patience.next_pause(error.wait if isinstance(error, Refused) else None)
        if pause is None:
            raise _given_up(error, target, self.patience) from error
        if any(not other.failures for other in self.targets if other is not target):
            return
        await asyncio.sleep(pause)

    async def _ask(self, body: dict[str, Any], sampling: Sampling) -> tuple[Completion, float]:
        target, began = self._choose(), time.monotonic()
        target.under_way += 1
        try:
            raw = await self._post(target, body, sampling)
        except HttpError as error:
            if not isinstance(error, Refused) or error.may_pass:
                target.fail()
            raise _Failed(target, error) from error
        finally:
            target.under_way -= 1
        target.succeed()
        return _completion(raw, sampling, target), time.monotonic() - began

    async def _post(self, target: _Target, body: dict[str, Any], sampling: Sampling) -> object:
        asked = target.asked
        while True:
            more = self._more(sampling, asked)
            try:
                raw = await target.channel.post(_CHAT, {"model": target.model, **body, **more})
            except Refused as error:
                # Perhaps only what is asked for besides is refused: ask for less, and go on so if that helps.
                less = [fewer for fewer in range(asked) if self._more(sampling, fewer) != more]
                if not less or error.status not in (400, 422) or _overflows(error):
                    raise
                asked = max(less)
            else:
                target.asked = min(target.asked, asked)
                return raw

    def _more(self, sampling: Sampling, asked: int) -> dict[str, Any]:
        """What is asked for beyond texts, and no more than is read: ids and figures make answers long."""
        more: dict[str, Any] = dict(_PLAIN) if asked == 2 else {}
        if asked == 2 and self.role == "agent":
            more["return_token_ids"] = True
        if asked and (sampling.logprobs or sampling.likeliest):
            more["logprobs"] = True
        if asked and sampling.likeliest:
            more["top_logprobs"] = sampling.likeliest
        return more

    async def _served_name(self, target: _Target, model: str) -> str:
        patience = _Patience(self.patience)
        while True:
            try:
                names = await _names(target.url, self.role)
                break
            except HttpError as error:
                if isinstance(error, Refused) and not error.may_pass:
                    raise _unusable(error, target, self.role) from error
                failure = error
            pause = patience.next_pause(failure.wait if isinstance(failure, Refused) else None)
            if pause is None:
                raise _given_up(failure, target, self.patience, opening=True) from failure
            await asyncio.sleep(pause)
        if model in names:
            return model
        if len(names) == 1 and _is_local(model):
            return names[0]
        raise UsageError(
            f"The server does not serve {model}. It serves: {', '.join(names) or 'nothing'}.",
            where=target.url,
            fix=f"{MODEL_OPTIONS[self.role]} {names[0]}" if names else "start the server with the model",
        )


def _channel(url: str, connections: int, role: Role) -> Channel:
    # A proxy of the environment must not be asked for what is on this machine.
    return Channel(url, key_of(role), connections, trust_env=not is_loopback(url))


async def _names(url: str, role: Role) -> list[str]:
    """What a server serves.

    Raises:
        HttpError: it does not say so now.
        UsageError: it is no such server.
    """
    import openai

    make: Any = openai.DefaultAioHttpClient  # of httpx or httpx2, whichever the library's version stands on
    http = make(timeout=CONNECT_TIMEOUT, trust_env=not is_loopback(url))
    client = openai.AsyncOpenAI(
        api_key=key_of(role), base_url=url, max_retries=0, http_client=http, organization=None, project=None
    )
    async with client:
        try:
            return Served.model_validate(await client.get("/models", cast_to=object)).names
        except openai.APIStatusError as error:
            raise Refused(error.status_code, error.response.content, error.response.headers) from error
        except openai.APIConnectionError as error:
            raise Unanswered(error.__cause__ or error) from error
        except (openai.APIError, ValueError) as error:
            raise UsageError(
                "What answers there is not an OpenAI-compatible server: /models gives no list of models.",
                where=url,
                fix="check the address (it usually ends in /v1)",
            ) from error


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


def _overflows(error: Refused) -> bool:
    if error.status not in (400, 413, 422):
        return False
    return error.code == "context_length_exceeded" or bool(_OVERFLOW.search(error.words))


def _room(error: Refused, asked: int) -> int | None:
    """Tokens left for the reply where the server says that the prompt alone would fit."""
    if not _overflows(error):
        return None
    length = _LENGTH.search(error.words)
    if length is not None and 0 < int(length[1]) < asked:
        return int(length[1])  # vllm looks at this before the prompt, and then cuts by itself
    context, prompt = _CONTEXT.search(error.words), _PROMPT.search(error.words)
    if context is None or prompt is None:
        return None
    room = int(context[1]) - int(prompt[1])
    return room if 0 < room < asked else None


def _refused(error: Refused, target: _Target) -> RequestFailed:
    kind = ContextOverflow if _overflows(error) else RequestFailed
    return kind(f"The server refused the request ({error.status}): {error.words}", where=target.url)


def _unusable(error: Refused, target: _Target, role: Role) -> UsageError:
    if error.status in (401, 403):
        return UsageError(
            f"The server refuses the API key ({error.status}): {error.words}",
            where=target.url,
            fix=f"export {KEY_VARIABLES[role][0]}=…",
        )
    return UsageError(
        f"What answers there is not an OpenAI-compatible server ({error.status} for /models).",
        where=target.url,
        fix="check the address (it usually ends in /v1)",
    )


def _given_up(error: HttpError, target: _Target, patience: float, *, opening: bool = False) -> SweetError:
    """A server that is gone ends the stage; one that answers, or takes too long for this request, fails the request."""
    status = error.status if isinstance(error, Refused) else None
    slow = isinstance(error, Unanswered) and error.slow
    why = error.words if status is None else f"{status} {error.words}"
    if opening or not (slow or (status is not None and status not in (502, 503, 504))):
        return ServerError(
            f"The server at {target.url} could not be reached for {patience:g} seconds: {why}",
            where=target.url,
            fix="start the server or check the address, then run the same command again",
        )
    return RequestFailed(f"The server failed this request for {patience:g} seconds: {why}", where=target.url)
