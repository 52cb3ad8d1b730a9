"""A chat client for models behind OpenAI-compatible servers.

There is one HTTP channel per address (`sweet.llm.http`), all on one event loop. Each request goes to the address with
the fewest requests in flight; `sweet.llm.concurrency` limits how many there are in total. Transient failures (no
connection, 429, 5xx, a time-out) are retried for `retry_timeout` seconds with jittered exponential back-off, at another
address if there is one. Permanent failures raise at once. A request takes at most `request_timeout` seconds, and its
response has at most the bytes that the requested tokens can need (`most_bytes`). An address that failed several times
in a row is avoided for a cool-down period that grows.

Token ids, log-probabilities and the unmodified distribution are requested with fields that vLLM and the embedded server
understand. If a server refuses such a request, it is sent again without the fields that OpenAI's interface does not
have, then without log-probabilities, and later requests start at the level that worked. A server that does not support
a parameter which every request has is sent another form of it (`sweet.llm.refusals`). Responses are validated before
they are used.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

from pydantic import ValidationError

from sweet.errors import UsageError
from sweet.llm.base import Completion, RequestFailed, Role, Sampling, message_content
from sweet.llm.concurrency import AdaptiveLimiter
from sweet.llm.http import (
    CONNECT_TIMEOUT,
    REQUEST_TIMEOUT,
    AnswerError,
    Channel,
    HttpError,
    StatusError,
    allow_open_files,
    encoded,
)
from sweet.llm.refusals import (
    BUDGET,
    EFFORT,
    TEMPLATE,
    Dialect,
    joined,
    overflows,
    reply_room,
    request_failed,
    retries_exhausted,
    unusable,
)
from sweet.llm.response_schema import ChatAnswer, Served, describe, most_bytes
from sweet.llm.servers import base_url, choose_name
from sweet.llm.template import effort_variables
from sweet.redaction import reply_redactor
from sweet.tasks.base import Message
from sweet.units import count

FIRST_PAUSE, MAX_PAUSE = 0.1, 8.0
MAX_FAILURES = 3
"""After so many failures in a row an address is used only if all others are in cool-down too: for COOLDOWN seconds,
then for twice as long."""
COOLDOWN, MAX_COOLDOWN = 2.0, 60.0
MAX_SHORTENED = 3
"""How often the reply of one request is shortened because the server says that it does not fit."""

LIST_BYTES = 32 << 20
"""Bytes of the list of models that are accepted: more than 100,000 models need."""
_NEUTRAL_SAMPLING = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Overrides the sampling options that vllm otherwise reads from the model's generation_config.json, which would change
the sampling distribution."""


@dataclass(eq=False)
class _Target:
    """One address. `extras`: which fields beyond texts are requested; 2 all, 1 those of OpenAI's interface, 0 none.
    `dialect`: how requests are written. `opened`: whether its prompts end with the opening mark of a thought, as a
    reply with the closing one alone has shown."""

    url: str
    channel: Channel
    model: str = ""
    in_flight: int = 0
    failures: int = 0
    cooldown_until: float = 0.0
    extras: int = 2
    dialect: Dialect = field(default_factory=Dialect)
    opened: bool = False

    def fail(self) -> None:
        self.failures += 1
        if self.failures >= MAX_FAILURES:
            rest = min(COOLDOWN * 2.0 ** (self.failures - MAX_FAILURES), MAX_COOLDOWN)
            self.cooldown_until = time.monotonic() + rest

    def succeed(self) -> None:
        self.failures, self.cooldown_until = 0, 0.0


@dataclass
class _RetryBudget:
    """The retries of one request: the remaining time, from the first failure or `start`, and the next pause."""

    seconds: float
    pause: float = FIRST_PAUSE
    ends: float | None = field(default=None, init=False)

    def start(self) -> None:
        self.ends = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds until no attempt is made any more."""
        return self.seconds if self.ends is None else self.ends - time.monotonic()

    def next_pause(self, wish: float | None) -> float | None:
        """Seconds until the next attempt, at least `wish`, the server's Retry-After; None if no time is left."""
        if self.ends is None:
            self.start()
        left = self.left
        pause = max(wish or 0.0, self.pause * random.uniform(0.5, 1.5))
        self.pause = min(self.pause * 2, MAX_PAUSE)
        return None if left <= 0 else min(pause, left)


class RequestSettings(TypedDict, total=False):
    """How servers are asked.

    Attributes:
        concurrency: maximum number of concurrent requests; by default 128.
        retry_timeout: seconds for which a failed request is retried, and for connecting; by default 20.
        request_timeout: seconds for one request and its response; by default 600.
    """

    concurrency: int
    retry_timeout: float
    request_timeout: float


class RemoteClient:
    """Implements `sweet.llm.base.ChatClient` for one or more servers of one model. Created by `open`.

    Attributes:
        on_deviation: called with a sentence for the user, and with whether a setting is lost, when a server turns out
            to require another form of the requests.
        deviations: the sentences so far.
        on_completion: called with each completion.
    """

    def __init__(self, urls: Sequence[str], role: Role = "agent", **settings: Unpack[RequestSettings]) -> None:
        """Return a client that knows no model yet; see `open`."""
        concurrency = settings.get("concurrency", 128)
        timeout = settings.get("request_timeout", REQUEST_TIMEOUT)
        # A pool for each address and role, and the same number again for other files.
        allow_open_files(4 * concurrency * max(len(urls), 1) + 256)
        self.targets = [
            _Target(url, Channel(url, role, concurrency, timeout=timeout))
            for url in dict.fromkeys(base_url(url) for url in urls)
        ]
        self._has_answered = False
        self._redacted = reply_redactor()
        self.limiter = AdaptiveLimiter(concurrency)
        self.retry_timeout = settings.get("retry_timeout", 20.0)
        self.role = role
        self.model = ""
        self.on_deviation: Callable[[str, bool], None] = lambda _sentence, _lost: None
        self.deviations: list[str] = []
        self.on_completion: Callable[[Completion], None] = lambda _completion: None

    @classmethod
    async def open(
        cls, model: str, urls: Sequence[str], role: Role = "agent", **settings: Unpack[RequestSettings]
    ) -> RemoteClient:
        """Connect, and look up the name under which each server serves `model`.

        Raises:
            UsageError: an address is invalid, or a server refuses the API key or does not serve the model.
            ServerError: a server cannot be reached.
        """
        self = cls(urls, role, **settings)
        try:
            for target in self.targets:
                target.model = await self._name_at(target, model)
        except BaseException:
            await self.aclose()
            raise
        self.model = self.targets[0].model
        return self

    async def served_names(self) -> dict[str, list[str]]:
        """Return the names of the models that each server serves, by its address. Raises the errors of `open`."""
        return {target.url: await self._served_names(target) for target in self.targets}

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies. Raises the errors of `ChatClient.chat`."""
        body: dict[str, Any] = {
            "messages": [_message(m) for m in messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "n": sampling.n,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        body |= _thinking(sampling)
        budget, shortened = _RetryBudget(self.retry_timeout), 0
        for retries in itertools.count():
            await self.limiter.acquire()
            target, dropped = self._choose_target(), None
            target.in_flight += 1
            try:
                completion = await self._post(target, body, sampling)
                dropped = False
            except HttpError as failure:
                error, dropped = failure, True if failure.retryable else None
            finally:
                target.in_flight -= 1
                self.limiter.release(dropped=dropped)
            if dropped is False:
                self.on_completion(completion)
                return replace(completion, retries=retries)
            if dropped:
                target.fail()
                await self._back_off(budget, target, error)
                continue
            room = reply_room(error, body["max_tokens"])
            shortened += 1
            if room is None or shortened > MAX_SHORTENED:
                raise request_failed(error, target.url) from error
            # Limit the reply to the remaining context, as the embedded engine does.
            body["max_tokens"] = room
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(target.channel.aclose() for target in self.targets))

    def _choose_target(self) -> _Target:
        now = time.monotonic()
        return min(self.targets, key=lambda t: (max(t.cooldown_until - now, 0.0), t.in_flight))

    async def _back_off(self, budget: _RetryBudget, target: _Target, error: HttpError) -> None:
        """Wait before the next attempt; raise the final error if no time is left."""
        pause = budget.next_pause(error.retry_after if isinstance(error, StatusError) else None)
        if pause is None:
            raise retries_exhausted(error, target.url, self.retry_timeout, answered=self._has_answered) from error
        if any(not other.failures for other in self.targets if other is not target):
            return
        await asyncio.sleep(pause)

    async def _post(self, target: _Target, body: dict[str, Any], sampling: Sampling) -> Completion:
        extras = target.extras
        while True:
            fields, dialect = self._extra_fields(sampling, extras), target.dialect
            requests = dialect.copies({"model": target.model, **body, **fields})
            posts = [asyncio.create_task(self._send(target, request, sampling)) for request in requests]
            try:
                completions = await asyncio.gather(*posts)
            except StatusError as error:
                if (other := dialect.after(error)) is not None:
                    # Requests at the same time find the same out; the first one decides, the others follow it.
                    if target.dialect == dialect:
                        target.dialect, name, phrase = other
                        self._say_once(target, name, phrase, body)
                    continue
                # The server may refuse only the extra fields: request fewer, and remember the level that works.
                smaller = [level for level in range(extras) if self._extra_fields(sampling, level) != fields]
                if not smaller or error.status not in (400, 422) or overflows(error):
                    raise
                extras = max(smaller)
            else:
                target.extras = min(target.extras, extras)
                return joined(completions)
            finally:
                for post in posts:
                    post.cancel()
                await asyncio.gather(*posts, return_exceptions=True)

    async def _send(self, target: _Target, request: dict[str, Any], sampling: Sampling) -> Completion:
        data = encoded(request)
        path = target.channel.chat_path(target.model)
        raw = await target.channel.post(path, data, most_bytes(request, sampling, len(data)))
        target.succeed()
        self._has_answered = True
        return _completion(raw, request.get("n", 1), target, self._redacted)

    def _say_once(self, target: _Target, name: str, phrase: str, body: dict[str, Any]) -> None:
        """Say how requests to a server differ from now on."""
        lost = target.dialect.loses(name, body)
        used = f" (it uses its own instead of {name}={_short(body[name])})" if lost and name in body else ""
        sentence = f"{target.model} refuses a part of the usual requests: {phrase}{used}."
        if sentence not in self.deviations:
            self.deviations.append(sentence)
            self.on_deviation(sentence, lost)

    def _extra_fields(self, sampling: Sampling, extras: int) -> dict[str, Any]:
        """The fields requested beyond texts, limited to those that are read: ids and log-probabilities make responses
        large."""
        fields: dict[str, Any] = dict(_NEUTRAL_SAMPLING) if extras == 2 else {}
        if extras == 2 and self.role == "agent":
            fields["return_token_ids"] = True
        if extras and (sampling.logprobs or sampling.top_logprobs):
            fields["logprobs"] = True
        if extras and sampling.top_logprobs:
            fields["top_logprobs"] = sampling.top_logprobs
        return fields

    async def _name_at(self, target: _Target, model: str) -> str:
        """Return the name of the model at a server. Azure lists no deployments: there it is the one in the address, or
        the model's own."""
        if target.channel.azure is not None:
            return target.channel.azure.deployment or model
        return choose_name(await self._served_names(target), model, target.url, self.role)

    async def _served_names(self, target: _Target) -> list[str]:
        """Return the names of the models that a server serves."""
        if target.channel.azure is not None:
            return [target.channel.azure.deployment] if target.channel.azure.deployment else []
        budget = _RetryBudget(self.retry_timeout)
        budget.start()
        timeout = CONNECT_TIMEOUT
        while True:
            try:
                return Served.model_validate(await target.channel.get("/models", LIST_BYTES, timeout)).names
            except (AnswerError, ValidationError) as error:
                raise UsageError(
                    "This is not an OpenAI-compatible server: /models returns no list of models.",
                    where=target.url,
                    fix="check the address (it usually ends in /v1)",
                ) from error
            except HttpError as error:
                if isinstance(error, StatusError) and not error.retryable:
                    raise unusable(error, target.url, self.role) from error
                failure = error
            pause = budget.next_pause(failure.retry_after if isinstance(failure, StatusError) else None)
            if pause is None:
                raise retries_exhausted(failure, target.url, self.retry_timeout, opening=True) from failure
            await asyncio.sleep(pause)
            timeout = min(CONNECT_TIMEOUT, max(budget.left, FIRST_PAUSE))


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _completion(raw: object, n: int, target: _Target, redacted: Callable[[str], str]) -> Completion:
    """The replies in a response, without keys: they are written to files, and a server may repeat what it was sent."""
    try:
        answer = ChatAnswer.model_validate(raw)
    except ValidationError as error:
        raise RequestFailed(f"The server's answer is malformed: {describe(error)}.", where=target.url) from error
    if len(answer.choices) != n:
        raise RequestFailed(
            f"The server returned {count(len(answer.choices), 'reply')} and not {n}, as requested.",
            where=target.url,
        )
    target.opened = target.opened or answer.closes_alone
    replies = answer.replies(redacted, opened=target.opened)
    return Completion(
        replies=replies,
        prompt_tokens=answer.usage.prompt_tokens if answer.usage else 0,
        completion_tokens=answer.usage.completion_tokens if answer.usage else 0,
        model=target.model,
        prompt_token_ids=answer.prompt_ids(),
        thought_tokens=answer.thought_tokens(replies),
    )


def _message(message: Message) -> dict[str, Any]:
    """A message as it is sent. A thought is in the field that chat templates read."""
    thought = {} if message.thought is None else {"reasoning_content": message.thought}
    return {"role": message.role, "content": message_content(message), **thought}


def _thinking(sampling: Sampling) -> dict[str, Any]:
    """The fields by which a request says how much the model shall think."""
    fields: dict[str, Any] = {}
    if sampling.effort == "none":
        fields[TEMPLATE] = effort_variables("none")
    elif sampling.effort is not None:
        fields[EFFORT] = sampling.effort
    if sampling.max_thought_tokens is not None:
        fields[BUDGET] = sampling.max_thought_tokens
    return fields
