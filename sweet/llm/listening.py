"""Serves an application of this program over HTTP, behind the checks of `sweet.serving`."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from sweet.errors import ServerError, UsageError
from sweet.llm.base import ContextOverflow, EngineFailed, RequestFailed
from sweet.llm.servers import bind, url_of
from sweet.serving import Connection, Connections, Limits, current, names_of, refusal

DRAINED = 8
"""Times the largest body that are read of one that is refused."""


class HTTPError(HTTPException):
    """A response with a status other than 200, in OpenAI's format."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(status, message)
        self.code, self.param = code, param


def _checked(app: ASGIApp, names: frozenset[str]) -> ASGIApp:
    """Return an application behind the checks of `sweet.serving`. `app` gets each body as a whole, and is cancelled if
    its client disconnects."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        connection, body, most = current.get(), bytearray(), current.get().limits.body_bytes
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        refused = refusal(scope["http_version"], scope["method"], scope["path"], headers, names)
        connection.task, stream = asyncio.current_task(), Request(scope, receive).stream()
        connection.wait(connection.limits.body_seconds, begun=True)
        with suppress(ClientDisconnect, asyncio.CancelledError):
            if refused is None:
                async for chunk in stream:
                    body += chunk
                    if len(body) > most:
                        refused = 413, f"The body of a request may have at most {most} bytes."
                        break
            events = [{"type": "http.request", "body": bytes(body)}]

            async def replayed() -> Any:
                return events.pop() if events else await receive()

            with connection.answer():
                if refused is None:
                    await app(scope, replayed, send)
                    return
                response = error_response(*refused)
                if refused[0] == 400:  # where the next request begins is not known
                    response.headers["Connection"] = "close"
                await response(scope, receive, partial(_not_ended, send) if refused[0] == 413 else send)
            if refused[0] == 413:  # a client that is still sending would get a reset in the place of the answer
                with suppress(TimeoutError):
                    async with asyncio.timeout(connection.limits.body_seconds):
                        left = DRAINED * most
                        while left > 0 and (chunk := await anext(stream, b"")):
                            left -= len(chunk)
                await send({"type": "http.response.body"})

    return answer


async def _not_ended(send: Send, message: Any) -> None:
    """Send a part of a response, and leave the response open behind its last part."""
    await send({**message, "more_body": True} if message["type"] == "http.response.body" else message)


@asynccontextmanager
async def listening(
    app: ASGIApp, host: str, port: int, names: Sequence[str] = (), limits: Limits | None = None
) -> AsyncIterator[str]:
    """Serve `app` while the context is open, behind the checks of `sweet.serving`, and yield the server's URL.

    Args:
        port: 0 selects a free one.
        names: by which the server is asked, besides `host` and those of this machine.

    Raises:
        UsageError: the address cannot be bound.
    """
    sock = bind(host, port)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or each response waits 40 ms for an acknowledgement
    checked = _checked(app, await asyncio.to_thread(names_of, host, names))
    connections, state = Connections(limits or Limits()), ServerState()
    config = uvicorn.Config(checked, log_config=None, log_level="error", access_log=False, ws="none")
    config.timeout_keep_alive = math.ceil(connections.limits.idle_seconds)
    config.load()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(connections, H11Protocol(config, state, {})), sock=sock, backlog=2048
    )
    try:
        yield url_of(host, sock.getsockname()[1])
    finally:
        server.close()
        for connection in [each for each in connections.open if not each.requests]:
            connection.drop()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=5)
        for connection in [*connections.open]:
            connection.drop()


async def refused(request: Request, error: Exception) -> Response:
    """Return the response to a request that failed, in OpenAI's format."""
    if isinstance(error, HTTPError):
        return error_response(error.status_code, error.detail, error.code, error.param)
    if isinstance(error, HTTPException):
        return error_response(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    if isinstance(error, ContextOverflow):
        return error_response(400, error.what, "context_length_exceeded", "messages")
    if isinstance(error, ServerError):
        return error_response(503, error.what, "server_away")
    if isinstance(error, RequestFailed | UsageError):
        return error_response(500 if isinstance(error, EngineFailed) else 400, error.what)
    return error_response(500, f"{type(error).__name__}: {error}")


def error_response(status: int, message: str, code: str | None = None, param: str | None = None) -> JSONResponse:
    """Return an error in OpenAI's format."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": code}}, status_code=status)
