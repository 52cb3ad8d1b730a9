"""An OpenAI-compatible server for one chat client in this process.

    GET  /health, /v1/models
    POST /v1/chat/completions, /v1/completions

The application has no queue: the engine batches waiting requests. The request of a client that disconnects is
cancelled, so that its rows leave the batch. In addition to OpenAI's fields, vLLM's `return_token_ids` is supported, and
a thought is returned as vLLM's reasoning parsers do, as `reasoning_content` and `reasoning` of the message. With the
token ids, which include those of the thought, `thought_tokens` is the number of these. Errors have OpenAI's format.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol, TypeVar

import uvicorn
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sweet.llm.base import (
    Alternatives,
    ChatClient,
    Completion,
    ContextOverflow,
    EngineFailed,
    Reply,
    RequestFailed,
)
from sweet.llm.request_schema import ChatBody, CompletionBody
from sweet.llm.response_schema import describe
from sweet.llm.servers import bind, url_of

LOG = logging.getLogger(__name__)

DEFAULT_MAX_TOKENS = 1024
"""Tokens of a chat reply if the request does not set a limit; the context limits it too."""

MAX_BODY_BYTES = 32 << 20
LOWEST_LOGPROB = -9999.0
"""Sent instead of minus infinity, which JSON does not have."""

BodyT = TypeVar("BodyT", bound=BaseModel)


class _Scored(Protocol):
    @property
    def logprobs(self) -> tuple[float, ...]: ...
    @property
    def best(self) -> tuple[tuple[int, float], ...]: ...


class TextModel(ChatClient, Protocol):
    """A client that can also continue and score token ids, as the embedded one can."""

    tokenizer: Any

    async def complete(self, prompt: Sequence[int], sampling: Any) -> Completion: ...

    async def score(self, ids: Sequence[int]) -> _Scored: ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str: ...


class _HTTPError(Exception):
    """A response with a status other than 200."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param


class _App:
    """The routes, over `client`. `text` is the same client if it can complete texts."""

    def __init__(self, client: ChatClient, text: TextModel | None) -> None:
        self.client = client
        self.text = text
        self.created = int(time.time())
        self._token_texts: dict[int, tuple[str, list[int]]] = {}

    async def health(self, request: Request) -> Response:
        if not getattr(self.client, "alive", True):
            raise _HTTPError(503, "The engine has died.")
        return Response(status_code=200)

    async def models(self, request: Request) -> Response:
        model = {"id": self.client.model, "object": "model", "created": self.created, "owned_by": "sweet"}
        context = getattr(self.client, "context", None)
        if context is not None:
            model["max_model_len"] = context
        return JSONResponse({"object": "list", "data": [model]})

    async def chat(self, request: Request) -> Response:
        body = await self._body(request, ChatBody)
        sampling = body.sampling(body.max_completion_tokens or body.max_tokens or DEFAULT_MAX_TOKENS)
        completion = await _unless_disconnected(request, self.client.chat(body.chat(), sampling))
        choices = []
        for index, reply in enumerate(completion.replies):
            choice: dict[str, Any] = {
                "index": index,
                "message": _message(reply),
                "finish_reason": reply.finish_reason,
                "logprobs": self._chat_logprobs(reply) if body.logprobs else None,
            }
            if body.return_token_ids:
                choice["token_ids"] = reply.token_ids
                if reply.thought_tokens is not None:
                    choice["thought_tokens"] = reply.thought_tokens
            choices.append(choice)
        answer = self._envelope("chat.completion", "chatcmpl", choices, [completion])
        if body.return_token_ids:
            answer["prompt_token_ids"] = completion.prompt_token_ids
        return JSONResponse(answer)

    async def completions(self, request: Request) -> Response:
        body = await self._body(request, CompletionBody)
        if self.text is None:
            raise _HTTPError(400, f"{self.client.model} supports chat only.")
        model = self.text
        prompts = [
            model.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else prompt for prompt in body.prompts()
        ]
        completions = await _unless_disconnected(
            request, _gather([self._complete(model, body, ids) for ids in prompts])
        )
        choices = [choice for _, found in completions for choice in found]
        for index, choice in enumerate(choices):
            choice["index"] = index
        return JSONResponse(
            self._envelope("text_completion", "cmpl", choices, [completion for completion, _ in completions])
        )

    async def _complete(
        self, model: TextModel, body: CompletionBody, ids: list[int]
    ) -> tuple[Completion, list[dict[str, Any]]]:
        """One prompt's replies as choices without their index."""
        if body.max_tokens == 0:
            empty = (Reply("", "length", (), ()),) * (body.n or 1)
            completion = Completion(empty, len(ids), 0, model.model, tuple(ids))
        else:
            max_tokens = 16 if body.max_tokens is None else body.max_tokens
            completion = await model.complete(ids, body.sampling(max_tokens))
        choices = []
        for reply in completion.replies:
            sampled = list(reply.token_ids or ())
            choice: dict[str, Any] = {
                "text": (model.decode(ids, skip_special=False) if body.echo else "") + reply.text,
                "finish_reason": reply.finish_reason,
                "logprobs": None,
            }
            if body.logprobs is not None and (body.echo or body.logprobs):
                scored = await model.score([*ids, *sampled])
                start = 0 if body.echo else len(ids)
                choice["logprobs"] = self._scored_logprobs([*ids, *sampled], scored, start, best=bool(body.logprobs))
            elif body.logprobs is not None:
                choice["logprobs"] = self._logprobs(sampled, reply.logprobs or ())
            if body.return_token_ids:
                choice |= {"token_ids": sampled, "prompt_token_ids": ids}
            choices.append(choice)
        return completion, choices

    def _envelope(
        self, kind: str, prefix: str, choices: list[dict[str, Any]], completions: Sequence[Completion]
    ) -> dict[str, Any]:
        prompt, sampled = sum(c.prompt_tokens for c in completions), sum(c.completion_tokens for c in completions)
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
        }
        if thoughts := sum(c.thought_tokens for c in completions):
            usage["completion_tokens_details"] = {"reasoning_tokens": thoughts}
        return {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self.client.model,
            "choices": choices,
            "usage": usage,
        }

    def _chat_logprobs(self, reply: Reply) -> dict[str, Any] | None:
        if reply.token_ids is None or reply.logprobs is None:
            return None
        content = []
        positions = reply.alternatives or (Alternatives("", ()),) * len(reply.token_ids)
        for token, logprob, position in zip(reply.token_ids, reply.logprobs, positions, strict=True):
            text, raw = self._token_text(token)
            top = [
                {"token": other, "logprob": _finite(p), "bytes": list(other.encode())}
                for other, p in position.top_logprobs
            ]
            content.append({"token": text, "logprob": _finite(logprob), "bytes": raw, "top_logprobs": top})
        return {"content": content}

    def _scored_logprobs(self, ids: list[int], scored: _Scored, start: int, *, best: bool) -> dict[str, Any]:
        """Log-probabilities of a scored text from id `start` on; the text's first id has none."""
        logprobs: list[float | None] = [None, *scored.logprobs]
        answer = self._logprobs(ids[start:], logprobs[start:])
        if best:
            tops: list[dict[str, float] | None] = [None]
            for token, logprob, (top, highest) in zip(ids[1:], scored.logprobs, scored.best, strict=True):
                tops.append({self._token_text(token)[0]: _finite(logprob), self._token_text(top)[0]: _finite(highest)})
            answer["top_logprobs"] = tops[start:]
        return answer

    def _logprobs(self, ids: Sequence[int], logprobs: Sequence[float | None]) -> dict[str, Any]:
        tokens = [self._token_text(token)[0] for token in ids]
        offsets, at = [], 0
        for token in tokens:
            offsets.append(at)
            at += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [None if value is None else _finite(value) for value in logprobs],
            "top_logprobs": None,
            "text_offset": offsets,
        }

    def _token_text(self, token: int) -> tuple[str, list[int]]:
        """One token's text and its bytes."""
        found = self._token_texts.get(token)
        if found is None:
            assert self.text is not None
            text = self.text.decode([token], skip_special=False)
            found = self._token_texts[token] = (text, list(text.encode()))
        return found

    async def _body(self, request: Request, kind: type[BodyT]) -> BodyT:
        chunks, size = [], 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise _HTTPError(413, f"A request may have at most {MAX_BODY_BYTES} bytes.")
            chunks.append(chunk)
        try:
            data = json.loads(b"".join(chunks))
        except (ValueError, RecursionError) as error:
            raise _HTTPError(400, f"The body is not JSON: {error}.") from error
        try:
            body = kind.model_validate(data)
        except ValidationError as error:
            param = ".".join(map(str, error.errors()[0]["loc"])) or None
            raise _HTTPError(400, describe(error), param=param) from error
        if body.model != self.client.model:  # type: ignore[attr-defined]
            raise _HTTPError(404, f"The model is called {self.client.model!r} here.", "model_not_found", "model")
        return body


def _message(reply: Reply) -> dict[str, Any]:
    """The message of a reply. One that is a thought alone has no content."""
    if reply.thought is None:
        return {"role": "assistant", "content": reply.text}
    fields = {"reasoning_content": reply.thought, "reasoning": reply.thought}
    return {"role": "assistant", "content": reply.text or None, **fields}


def make_app(client: ChatClient, text: TextModel | None = None) -> Starlette:
    """The application that serves `client`; `text` is the same client if it can complete texts."""
    app = _App(client, text)
    routes = [
        Route("/health", _handle_errors(app.health)),
        Route("/v1/models", _handle_errors(app.models)),
        Route("/v1/chat/completions", _handle_errors(app.chat), methods=["POST"]),
        Route("/v1/completions", _handle_errors(app.completions), methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _no_route})


@asynccontextmanager
async def listening(app: Any, host: str, port: int) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    """Serve `app` while the context is open. Port 0 selects a free one.

    Yields:
        The server's URL, and the task that ends when it stops.

    Raises:
        UsageError: the address cannot be bound.
    """
    sock = bind(host, port)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=5)
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        is_up = asyncio.create_task(server.is_up.wait())
        await asyncio.wait({is_up, task}, return_when=asyncio.FIRST_COMPLETED)
        is_up.cancel()
        yield url_of(host, sock.getsockname()[1]), task
    finally:
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await task
        sock.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the caller, which also has a model to close."""
        yield


def _handle_errors(work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Turn the errors of `work` into responses."""

    async def endpoint(request: Request) -> Response:
        try:
            return await work(request)
        except _HTTPError as error:
            return _error(error.status, error.message, error.code, error.param)
        except ContextOverflow as error:
            return _error(400, error.what, "context_length_exceeded", "messages")
        except EngineFailed as error:
            return _error(500, error.what)
        except RequestFailed as error:
            return _error(400, error.what)
        except Exception as error:
            LOG.exception("a request failed")
            return _error(500, f"{type(error).__name__}: {error}")

    return endpoint


def _error(status: int, message: str, code: str | None = None, param: str | None = None) -> JSONResponse:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": code}}, status_code=status)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"{request.method} {request.url.path}: {error.detail}")


T = TypeVar("T")


async def _unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled if the client disconnects."""
    task = asyncio.ensure_future(work)
    disconnected = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({task, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _HTTPError(499, "The client has disconnected.")
        return task.result()
    finally:
        disconnected.cancel()
        task.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _gather(works: Sequence[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*works))


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST_LOGPROB)
