"""What is asked a thousand times a second: JSON posted to one server, over connections that are kept.

The openai client finds out what a server serves, once; for each request it then costs three times the processor time of
aiohttp by itself, which it would stand on. So requests go through aiohttp, and what can go wrong is two errors.
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
"""Seconds an idle connection is kept; one that the server closes before is noticed and not used again."""


class HttpError(Exception):
    """A request without a usable answer. `words` is what the server said of it, or why there was no connection."""

    def __init__(self, words: str) -> None:
        self.message = " ".join(words.split())[:500]
        super().__init__(self.message)


class TransportError(HttpError):
    """No connection, one that broke, or (`slow`) no answer in time."""

    def __init__(self, error: BaseException) -> None:
        self.timed_out = isinstance(error, aiohttp.SocketTimeoutError)
        super().__init__("no answer in time" if self.timed_out else str(error) or type(error).__name__)


class StatusError(HttpError):
    """An answer with an error's status.

    Attributes:
        status: of HTTP, 400 or more.
        code: the server's own word for it, where there is one.
        wait: seconds the server asks to wait, where it does.
    """

    def __init__(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        body = _parsed(data)
        error = body.get("error", body) if isinstance(body, dict) else None
        said = (error.get("message") or error.get("detail")) if isinstance(error, dict) else error
        self.status = status
        self.code = str(error.get("code")) if isinstance(error, dict) else None
        self.retry_after = _seconds(headers.get("retry-after"))
        super().__init__(str(said or data.decode(errors="replace") or "no reason given"))

    @property
    def retryable(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status in (408, 425, 429) or self.status >= 500


def allow_open_files(count: int) -> None:
    """Let this process have so many files and connections open, as far as the system lets it."""
    try:
        import resource
    except ImportError:  # a system that knows no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Channel:
    """Requests to one server. Made inside the event loop that uses it; `aclose` gives the connections back.

    Args:
        url: the address below which the paths lie.
        key: sent as a bearer token.
        connections: at once at most.
        trust_env: whether a proxy that the environment names is used.
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
        """The answer's JSON; None, which no reader accepts, where it is none.

        Raises:
            Refused: the status is an error's.
            Unanswered: there was no answer.
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
