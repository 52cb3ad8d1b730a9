"""A chat client for models behind OpenAI-compatible servers.

There is one HTTP channel per address (`sweet.llm.http`), all on one event loop. Each request goes to the address with
the fewest requests in flight; `sweet.llm.concurrency` limits how many there are in total. Transient failures (no
connection, 429, 5xx, a time-out) are retried for `retry_timeout` seconds with jittered exponential back-off, at another
address if there is one. Permanent failures raise at once. A request ends when its server has answered none for
`request_timeout` seconds, and its response has at most the bytes that the requested tokens can need (`most_bytes`). An
address that failed several times in a row is avoided for a cool-down period that grows.

Token ids, log-probabilities and the unmodified distribution are requested with fields that vLLM and the embedded server
understand; llama.cpp's server, which says what it is in its list of models, has the ids with the log-probabilities.
Where a server refuses a request, the smallest change with which it accepts it is found out once (`sweet.llm.refusals`),
recorded and said. A server that returns fewer replies than were requested gets a request for each. Of a response only
the text is required (`sweet.llm.response_schema`); one that carries an error is an error.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack

from pydantic import ValidationError

from sweet.deadline import counted_from
from sweet.errors import UsageError, place_and_problem
from sweet.llm.base import Completion, RequestFailed, Role, Sampling, message_content
from sweet.llm.concurrency import AdaptiveLimiter
from sweet.llm.http import CONNECT_TIMEOUT, REQUEST_TIMEOUT, AnswerError, Channel, HttpError, StatusError, encoded
from sweet.llm.refusals import (
    BUDGET,
    EFFORT,
    TEMPLATE,
    Dialect,
    is_of_the_form,
    joined,
    reply_room,
    request_failed,
    retries_exhausted,
    unusable,
)
from sweet.llm.response_schema import ChatAnswer, FewReplies, ServedModel, error_in, most_bytes, served_models
from sweet.llm.servers import base_url, choose_name
from sweet.llm.template import effort_variables
from sweet.llm.thoughts import ALL_MARKS, Marks
from sweet.redaction import reply_redactor
from sweet.serving import allow_open_files
from sweet.tasks.base import Message, chat_rows
from sweet.units import count

FIRST_PAUSE, MAX_PAUSE = 0.1, 8.0
MAX_FAILURES = 3
"""After so many failures in a row an address is used only if all others are in cool-down too: for COOLDOWN seconds,
then for twice as long."""
COOLDOWN, MAX_COOLDOWN = 2.0, 60.0
MAX_SHORTENED = 3
"""How often the reply of one request is shortened because the server says that it does not fit."""

T = TypeVar("T")

LIST_BYTES = 32 << 20
"""Bytes of the list of models that are accepted: more than 100,000 models need."""
_FIRST_SAMPLING = Sampling(max_tokens=64)
_FIRST_CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hello."}],
    "temperature": 1.0,
    "top_p": 1.0,
    "max_tokens": 64,
    "n": 1,
}
"""The request that shows whether a server without a list of models serves one."""
BYTES_OF_TOKEN = 3
"""Bytes of a token where its number is estimated: in English it is about 4, and too many cost less than too few."""
_DIGITS = re.compile(r"\d+")
_NEUTRAL_SAMPLING = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Overrides the sampling options that vllm otherwise reads from the model's generation_config.json, which would change
the sampling distribution."""


@dataclass(eq=False)
class _Target:
    """One address.

    Attributes:
        dialect: how requests are written. accepted: how the last one was written that was answered.
        context: tokens of prompt and reply together, if the server says so.
        opened: whether its prompts end with the opening mark of a thought, as a reply with the closing one alone has
            shown.
        hopeless: refusals that no form of a request avoided.
        finding: is held by the request that finds a form that is accepted.
    """

    url: str
    channel: Channel
    model: str = ""
    in_flight: int = 0
    failures: int = 0
    cooldown_until: float = 0.0
    dialect: Dialect = field(default_factory=Dialect)
    accepted: Dialect | None = None
    opened: bool = False
    context: int | None = None
    hopeless: set[tuple[int, str | None, str]] = field(default_factory=set)
    finding: asyncio.Lock = field(default_factory=asyncio.Lock)

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
        request_timeout: seconds for a request in which its server answers no other either; by default 600.
        marks: those that a thought in a text may have; by default `sweet.llm.thoughts.ALL_MARKS`.
    """

    concurrency: int
    retry_timeout: float
    request_timeout: float
    marks: Sequence[Marks]


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
        self._marks = settings.get("marks", ALL_MARKS)
        self.limiter = AdaptiveLimiter(concurrency)
        self.retry_timeout = settings.get("retry_timeout", 20.0)
        self.role = role
        self.model = ""
        self.on_deviation: Callable[[str, bool], None] = lambda _sentence, _lost: None
        self.deviations: list[str] = []
        self.on_completion: Callable[[Completion], None] = lambda _completion: None

    @classmethod
    async def open(
        cls,
        model: str,
        urls: Sequence[str],
        role: Role = "agent",
        on_deviation: Callable[[str, bool], None] = lambda _sentence, _lost: None,
        **settings: Unpack[RequestSettings],
    ) -> RemoteClient:
        """Connect, and look up the name under which each server serves `model`.

        Raises:
            UsageError: an address is invalid, or a server refuses the API key or does not serve the model.
            ServerError: a server cannot be reached.
        """
        self = cls(urls, role, **settings)
        self.on_deviation = on_deviation
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
        return {target.url: [*await self._served_models(target)] for target in self.targets}

    @property
    def served_context(self) -> int | None:
        """Tokens of prompt and reply together that each server accepts; None if none says."""
        return min((target.context for target in self.targets if target.context), default=None)

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies. Raises the errors of `ChatClient.chat`."""
        with counted_from(lambda: max(target.channel.answered for target in self.targets)):
            return await self._chat(messages, sampling)

    async def _chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        body: dict[str, Any] = {
            "messages": [_message(m) for m in messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "n": sampling.n,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.stop:
            body["stop"] = [*sampling.stop]
        if sampling.tools:
            body["tools"] = [tool.row() for tool in sampling.tools]
        body |= _thinking(sampling)
        budget, shortened = _RetryBudget(self.retry_timeout), 0
        for retries in itertools.count():
            await self.limiter.acquire()
            target, dropped = self._choose_target(), None
            target.in_flight += 1
            try:
                completion = await self._post(target, body, sampling, again=retries > 0)
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

    async def _post(self, target: _Target, body: dict[str, Any], sampling: Sampling, again: bool) -> Completion:
        """Send a request in the form that the server accepts.

        Args:
            again: whether the server failed it before.
        """
        body = {"model": target.model, **body, **self._further_fields(sampling)}
        while True:
            dialect = target.dialect
            try:
                completion = await self._send(target, dialect, body, sampling)
                target.accepted = dialect
                return completion
            except FewReplies:
                self._adopt(target, dialect, replace(dialect, single=True), body)
            except StatusError as error:
                # Requests at the same time find the same out; the first one decides, the others follow it.
                if (other := dialect.after(error, body)) is not None:
                    self._adopt(target, dialect, other, body)
                    continue
                if not is_of_the_form(error, again):
                    raise
                async with target.finding:
                    if target.dialect != dialect:
                        continue
                    return await self._find_form(target, body, sampling, error)

    async def _find_form(
        self, target: _Target, body: dict[str, Any], sampling: Sampling, error: StatusError
    ) -> Completion:
        """Find the smallest change with which the server accepts a request that it refused by an error, and return the
        response. Raises the error if there is none."""
        signature = (error.status, error.code, _DIGITS.sub("", error.message))
        usual, completion = target.dialect, None
        if signature in target.hopeless:
            raise error
        if target.accepted == usual:  # so far, and perhaps now
            completion, dialect = await self._try(target, usual, body, sampling)
            if completion is not None:
                return completion
        for plainer in usual.plainer(body):
            completion, dialect = await self._try(target, plainer, body, sampling)
            if completion is not None:
                break
        if completion is None:
            target.hopeless.add(signature)
            raise error
        if not plainer.system:  # else only further fields are left out
            for part in dialect.parts(usual, body):
                accepted, other = await self._try(target, dialect.restored(part, usual), body, sampling)
                if accepted is not None:
                    self.on_completion(accepted)
                    dialect = other
        self._adopt(target, usual, dialect, body)
        return completion

    async def _try(
        self, target: _Target, dialect: Dialect, body: dict[str, Any], sampling: Sampling
    ) -> tuple[Completion | None, Dialect]:
        """Return the response to a request in a dialect, None if it is refused; and the dialect, changed by errors that
        named what was refused."""
        while True:
            try:
                return await self._send(target, dialect, body, sampling), dialect
            except FewReplies:
                dialect = replace(dialect, single=True)
            except StatusError as error:
                if (other := dialect.after(error, body)) is not None:
                    dialect = other
                    continue
                if not is_of_the_form(error, again=True):
                    raise
                return None, dialect

    async def _send(self, target: _Target, dialect: Dialect, body: dict[str, Any], sampling: Sampling) -> Completion:
        """Send the requests for the replies of one. Raises HttpError and RequestFailed."""
        posts = [asyncio.create_task(self._exchange(target, copy, sampling)) for copy in dialect.copies(body)]
        try:
            return joined(await asyncio.gather(*posts))
        finally:
            for post in posts:
                post.cancel()
            await asyncio.gather(*posts, return_exceptions=True)

    async def _exchange(self, target: _Target, request: dict[str, Any], sampling: Sampling) -> Completion:
        data = encoded(request)
        path = target.channel.chat_path(target.model)
        raw = await target.channel.post(path, data, most_bytes(request, sampling, len(data)))
        completion, reports_usage = _completion(raw, request.get("n", 1), target, self._redacted, self._marks)
        if not reports_usage:
            completion = _with_estimated_usage(completion, request)
            self._say(f"{target.model} reports no usage: its tokens are estimated by the length of the texts.", True)
        target.succeed()
        self._has_answered = True
        return completion

    def _adopt(self, target: _Target, usual: Dialect, dialect: Dialect, body: dict[str, Any]) -> None:
        """Write the requests to a server in another way from now on, and say how they differ."""
        if target.dialect != usual:
            return
        target.dialect = dialect
        for part in dialect.parts(usual, body):
            phrase, lost = dialect.phrase(part, body), dialect.loses(part, body)
            if phrase is not None:
                self._say(f"{target.model} refuses a part of the usual requests: {phrase}.", lost)

    def _say(self, sentence: str, lost: bool) -> None:
        sentence = self._redacted(sentence)  # a server may give a key as the model's name
        if sentence not in self.deviations:
            self.deviations.append(sentence)
            self.on_deviation(sentence, lost)

    def _further_fields(self, sampling: Sampling) -> dict[str, Any]:
        """The fields requested beyond texts, limited to those that are read: ids and log-probabilities make responses
        large."""
        fields: dict[str, Any] = dict(_NEUTRAL_SAMPLING)
        if self.role == "agent":
            fields["return_token_ids"] = True
        if sampling.logprobs or sampling.top_logprobs:
            fields["logprobs"] = True
        if sampling.top_logprobs:
            fields["top_logprobs"] = sampling.top_logprobs
        return fields

    async def _name_at(self, target: _Target, model: str) -> str:
        """Return the name of the model at a server. Azure lists no deployments: there it is the one in the address, or
        the model's own. Where another server lists nothing, one request shows whether it serves the model."""
        if target.channel.azure is not None:
            return target.channel.azure.deployment or model
        models = await self._served_models(target)
        if models:
            name = choose_name([*models], model, target.url, self.role)
            target.context = models[name].context
            target.dialect = replace(target.dialect, ids_in_logprobs=models[name].owned_by == "llamacpp")
            return name
        target.model = model
        try:
            await self._patiently(target, lambda _: self._post(target, _FIRST_CHAT, _FIRST_SAMPLING, again=True))
        except StatusError as error:
            raise unusable(error, target.url, self.role, f"a chat with {model}") from error
        return model

    async def _served_models(self, target: _Target) -> dict[str, ServedModel]:
        """Return the models that a server lists, see `served_models`; none if it has no list of them."""
        if target.channel.azure is not None:
            named = target.channel.azure.deployment
            return {named: ServedModel(id=named)} if named else {}
        try:
            return served_models(await self._patiently(target, partial(target.channel.get, "/models", LIST_BYTES)))
        except StatusError as error:
            if error.status in (401, 403) or error.status < 400:
                raise unusable(error, target.url, self.role, "/models") from error
            return {}
        except AnswerError as error:
            raise UsageError(
                f"This is not an OpenAI-compatible server; for /models {error.message}.",
                where=target.url,
                fix="check the address (it usually ends in /v1)",
            ) from error

    async def _patiently(self, target: _Target, ask: Callable[[float], Awaitable[T]]) -> T:
        """Ask a server, with a time limit, until it answers. Raises HttpError if that is not to be expected, and
        ServerError if no time is left."""
        budget = _RetryBudget(self.retry_timeout)
        budget.start()
        timeout = CONNECT_TIMEOUT
        while True:
            try:
                return await ask(timeout)
            except HttpError as error:
                if not error.retryable:
                    raise
                failure = error
            pause = budget.next_pause(failure.retry_after if isinstance(failure, StatusError) else None)
            if pause is None:
                raise retries_exhausted(failure, target.url, self.retry_timeout, opening=True) from failure
            await asyncio.sleep(pause)
            timeout = min(CONNECT_TIMEOUT, max(budget.left, FIRST_PAUSE))


def _completion(
    raw: object, n: int, target: _Target, redacted: Callable[[str], str], marks: Sequence[Marks]
) -> tuple[Completion, bool]:
    """The replies in a response, without keys: they are written to files, and a server may repeat what it was sent. And
    whether it reports how many tokens were read and written.

    Raises:
        StatusError: the response carries an error, or no reply.
        FewReplies: it has fewer than `n` replies.
        RequestFailed: it cannot be read.
    """
    if (carried := error_in(raw)) is not None:
        raise carried
    try:
        answer = ChatAnswer.model_validate(raw)
    except ValidationError as error:
        what = f"The server's answer cannot be read: {place_and_problem(error, 'the body')}."
        raise RequestFailed(what, where=target.url) from error
    if len(answer.choices) < n:
        raise FewReplies(f"{count(len(answer.choices), 'reply')} and not {n}")
    target.opened = target.opened or answer.closes_alone(marks)
    replies = answer.replies(redacted, opened=target.opened, known=marks)[:n]
    completion = Completion(
        replies=replies,
        prompt_tokens=answer.prompt_tokens,
        # llama.cpp's server counts the tokens of one of several replies.
        completion_tokens=max(answer.completion_tokens, sum(len(reply.token_ids or ()) for reply in replies)),
        model=redacted(target.model),
        prompt_token_ids=answer.prompt_ids(),
        thought_tokens=answer.thought_tokens(replies),
    )
    return completion, answer.reports_usage


def _with_estimated_usage(completion: Completion, request: Mapping[str, Any]) -> Completion:
    """Return a completion with the tokens that a server does not report: those of the ids that it returned, or an
    estimate, so that a limit of tokens or of their cost holds."""
    contents = (message["content"] for message in request["messages"])
    texts = [text if isinstance(text, str) else "".join(part.get("text", "") for part in text) for text in contents]
    read = len(completion.prompt_token_ids or ()) or _estimated("".join(texts))
    replies = completion.replies
    written = sum(len(reply.token_ids or ()) or _estimated((reply.thought or "") + reply.whole) for reply in replies)
    return replace(
        completion,
        prompt_tokens=completion.prompt_tokens or read,
        completion_tokens=completion.completion_tokens or written,
    )


def _estimated(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_OF_TOKEN)


def _message(message: Message) -> dict[str, Any]:
    """A message as it is sent. A thought is in the field that chat templates read."""
    [row] = chat_rows([message])
    thought = {} if message.thought is None else {"reasoning_content": message.thought}
    return {**row, "content": message_content(message), **thought}


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
