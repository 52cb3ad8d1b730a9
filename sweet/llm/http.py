"""Posts JSON to one server over persistent connections, at high request rates.

The openai client is used once, to list the models that a server serves. For each request it would need three times the
CPU time of aiohttp, which it builds on, so requests use aiohttp directly. Failures are one of two errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp
from pydantic_core import from_json

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 600.0
KEEPALIVE = 60.0
"""Seconds for which an idle connection is kept; one that the server has closed is detected and not reused."""


class HttpError(Exception):
    """A request without a usable response. `message` is the server's error message, or why there was no response."""

    def __init__(self, words: str) -> None:
        self.message = " ".join(words.split())[:500]
        super().__init__(self.message)


class TransportError(HttpError):
    """No connection, a broken connection, or (`timed_out`) no response in time."""

    def __init__(self, error: BaseException) -> None:
        self.timed_out = isinstance(error, aiohttp.SocketTimeoutError)
        super().__init__("no answer in time" if self.timed_out else str(error) or type(error).__name__)


class StatusError(HttpError):
    """A response with an error status.

    Attributes:
        status: the HTTP status, 400 or more.
        code: the server's error code, if any.
        param: the parameter of the request that the error is about, if the server names it.
        retry_after: seconds that the server asks to wait, if any.
    """

    def __init__(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        body = _parsed(data)
        error = body.get("error", body) if isinstance(body, dict) else None
        said = (error.get("message") or error.get("detail")) if isinstance(error, dict) else error
        self.status = status
        self.code = str(error.get("code")) if isinstance(error, dict) else None
        param = error.get("param") if isinstance(error, dict) else None
        self.param = param if isinstance(param, str) else None
        self.retry_after = _seconds(headers.get("retry-after"))
        super().__init__(str(said or data.decode(errors="replace") or "no reason given"))

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (408, 425, 429) or self.status >= 500


def allow_open_files(count: int) -> None:
    """Raise this process's limit of open files and connections to `count`, as far as the system allows."""
    try:
        import resource
    except ImportError:  # a system without such a limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Channel:
    """Connections to one server. Created inside the event loop that uses it; `aclose` closes them.

    Args:
        url: the base URL.
        key: sent as a bearer token.
        connections: maximum number of open connections.
        trust_env: whether to use a proxy from the environment.
    """

    def __init__(self, url: str, key: str, connections: int, *, trust_env: bool) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=max(connections, 8), keepalive_timeout=KEEPALIVE),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT),
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
            trust_env=trust_env,
        )

    async def post(self, path: str, body: dict[str, Any]) -> object:
        """Return the response's JSON; None, which no validation accepts, if it is not JSON.

        Raises:
            StatusError: the response has an error status.
            TransportError: there was no response.
        """
        try:
            async with self._session.post(self._url + path, data=json.dumps(body).encode()) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransportError(error) from error
        if answer.status >= 400:
            raise StatusError(answer.status, data, answer.headers)
        return _parsed(data)

    async def aclose(self) -> None:
        await self._session.close()


def _parsed(data: bytes) -> Any:
    try:
        return from_json(data)
    except ValueError:
        return None


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
