"""An OpenAI-compatible server for one chat client in this process.

    GET  /health, /v1/models
    POST /v1/chat/completions

The application has no queue: the engine batches waiting requests. The request of a client that disconnects is
cancelled, so that its rows leave the batch. In addition to OpenAI's fields, vLLM's `return_token_ids` is supported, and
a thought is returned as vLLM's reasoning parsers do, as `reasoning_content` and `reasoning` of the message. With the
token ids, which include those of the thought, `thought_tokens` is the number of these. Errors have OpenAI's format.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import uvicorn
from pydantic import ValidationError
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
from sweet.llm.request_schema import ChatBody
from sweet.llm.response_schema import describe
from sweet.llm.servers import bind, url_of

MAX_BODY_BYTES = 32 << 20
LOWEST_LOGPROB = -9999.0
"""Sent instead of minus infinity, which JSON does not have."""


class _HTTPError(HTTPException):
    """A response with a status other than 200, in OpenAI's format."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(status, message)
        self.code, self.param = code, param


class _App:
    """The routes, over `client`."""

    def __init__(self, client: ChatClient) -> None:
        self.client = client
        self.created = int(time.time())
        self._token_texts: dict[int, str] = {}

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
        body = await self._body(request)
        work = self.client.chat(body.chat(), body.sampling())
        completion = await _unless_disconnected(request, work)
        answer: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.client.model,
            "choices": [self._choice(body, index, reply) for index, reply in enumerate(completion.replies)],
            "usage": _usage(completion),
        }
        if body.return_token_ids:
            answer["prompt_token_ids"] = completion.prompt_token_ids
        return JSONResponse(answer)

    def _choice(self, body: ChatBody, index: int, reply: Reply) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "message": _message(reply),
            "finish_reason": reply.finish_reason,
            "logprobs": self._logprobs(reply) if body.logprobs else None,
        }
        if body.return_token_ids:
            choice["token_ids"] = reply.token_ids
            if reply.thought_tokens is not None:
                choice["thought_tokens"] = reply.thought_tokens
        return choice

    def _logprobs(self, reply: Reply) -> dict[str, Any] | None:
        if reply.token_ids is None or reply.logprobs is None:
            return None
        content = []
        positions = reply.alternatives or (Alternatives("", ()),) * len(reply.token_ids)
        for token, logprob, position in zip(reply.token_ids, reply.logprobs, positions, strict=True):
            top = [_token(other, p) for other, p in position.top_logprobs]
            content.append(_token(self._token_text(token), logprob) | {"top_logprobs": top})
        return {"content": content}

    def _token_text(self, token: int) -> str:
        if token not in self._token_texts:
            self._token_texts[token] = self.client.decode([token], skip_special=False)  # type: ignore[attr-defined]
        return self._token_texts[token]

    async def _body(self, request: Request) -> ChatBody:
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
            body = ChatBody.model_validate(data)
        except ValidationError as error:
            param = ".".join(map(str, error.errors()[0]["loc"])) or None
            raise _HTTPError(400, describe(error), param=param) from error
        if body.model != self.client.model:
            raise _HTTPError(404, f"The model is called {self.client.model!r} here.", "model_not_found", "model")
        return body


def _message(reply: Reply) -> dict[str, Any]:
    """The message of a reply. One that is a thought alone has no content."""
    if reply.thought is None:
        return {"role": "assistant", "content": reply.text}
    fields = {"reasoning_content": reply.thought, "reasoning": reply.thought}
    return {"role": "assistant", "content": reply.text or None, **fields}


def _usage(completion: Completion) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "total_tokens": completion.prompt_tokens + completion.completion_tokens,
    }
    if completion.thought_tokens:
        usage["completion_tokens_details"] = {"reasoning_tokens": completion.thought_tokens}
    return usage


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": max(logprob, LOWEST_LOGPROB), "bytes": list(text.encode())}


def make_app(client: ChatClient) -> Starlette:
    """Return the application that serves `client`; one whose replies have token ids must `decode` them."""
    app = _App(client)
    routes = [
        Route("/health", app.health),
        Route("/v1/models", app.models),
        Route("/v1/chat/completions", app.chat, methods=["POST"]),
    ]
    return Starlette(
        routes=routes, exception_handlers=dict.fromkeys((HTTPException, RequestFailed, Exception), _refused)
    )


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


async def _refused(request: Request, error: Exception) -> Response:
    """Return the response to a request that failed, in OpenAI's format."""
    if isinstance(error, _HTTPError):
        return _error(error.status_code, error.detail, error.code, error.param)
    if isinstance(error, HTTPException):
        return _error(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    if isinstance(error, ContextOverflow):
        return _error(400, error.what, "context_length_exceeded", "messages")
    if isinstance(error, RequestFailed):
        return _error(500 if isinstance(error, EngineFailed) else 400, error.what)
    return _error(500, f"{type(error).__name__}: {error}")


def _error(status: int, message: str, code: str | None = None, param: str | None = None) -> JSONResponse:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": code}}, status_code=status)


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
