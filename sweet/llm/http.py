"""Exchanges JSON with one server over persistent connections, at high request rates.

The openai library would need three times the CPU time of aiohttp, which it builds on. Failures are one of three errors.

A server decides neither how much memory nor how much time a request takes. Each request has a time limit, from the
connection to the last byte, however slowly the bytes come. The caller bounds the bytes of the response; they are
counted as they arrive and again as they are decompressed, and reading stops at the bound. Of an error's response only
the beginning is read. A redirect is followed on the same host; to another host, which would get the dialogue, only if
the caller allows it, and never with the key.
"""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from pydantic_core import from_json

from sweet.redaction import redacted

CONNECT_TIMEOUT = 10.0
REQUEST_TIMEOUT = 600.0
"""Default of the seconds for one request and its response."""
KEEPALIVE = 60.0
"""Seconds for which an idle connection is kept; one that the server has closed is detected and not reused."""
MAX_ERROR_BYTES = 1 << 16
"""Bytes of an error's response that are read."""
MAX_REDIRECTS = 5

_REDIRECTS = (301, 302, 307, 308)
_ENCODINGS = ("gzip", "x-gzip", "deflate")
_ANY_HEADER = 32 + zlib.MAX_WBITS
"""Makes zlib read the headers of both gzip and deflate."""
_PORTS = {"http": 80, "https": 443}


class HttpError(Exception):
    """A request without a usable response.

    Attributes:
        message: the server's error message, or why there was no response, without keys.
        retryable: whether the same request may succeed later.
    """

    retryable = True

    def __init__(self, words: str) -> None:
        self.message = " ".join(redacted(words).split())[:500]
        super().__init__(self.message)


class TransportError(HttpError):
    """No connection, a broken connection, or (`timed_out`) no complete response in time."""

    def __init__(self, error: BaseException, *, timed_out: bool = False) -> None:
        self.timed_out = timed_out or isinstance(error, aiohttp.SocketTimeoutError)
        super().__init__("no answer in time" if self.timed_out else str(error) or type(error).__name__)


class AnswerError(HttpError):
    """A response that is not read to its end: it is too large, or it cannot be decompressed."""

    retryable = False


class StatusError(HttpError):
    """A response with an error status, or a redirect that is not followed.

    Attributes:
        status: the HTTP status, 300 or more.
        code: the server's error code, if any.
        param: the parameter of the request that the error is about, if the server names it.
        retry_after: seconds that the server asks to wait, if any; finite and not negative.
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
    def retryable(self) -> bool:  # type: ignore[override]
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
        timeout: seconds for one request and its response.
        follow_redirects: whether redirects to other hosts are followed.
    """

    def __init__(
        self,
        url: str,
        key: str,
        connections: int,
        *,
        trust_env: bool,
        timeout: float = REQUEST_TIMEOUT,
        follow_redirects: bool = False,
    ) -> None:
        self._url, self._timeout = url, timeout
        # The time limit of a request begins when it has a connection, so the queue for them is here.
        self._places = asyncio.Semaphore(max(connections, 8))
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate"}
        self._session = _session({"Authorization": f"Bearer {key}", **headers}, trust_env=trust_env)
        self._elsewhere = _session(headers, trust_env=True) if follow_redirects else None

    async def post(self, path: str, body: bytes, most_bytes: int) -> object:
        """Post JSON; return what `_exchange` returns and raise its errors."""
        return await self._exchange("POST", path, body, most_bytes, self._timeout)

    async def get(self, path: str, most_bytes: int, timeout: float) -> object:
        """Get; return what `_exchange` returns and raise its errors."""
        return await self._exchange("GET", path, None, most_bytes, min(timeout, self._timeout))

    async def _exchange(self, method: str, path: str, body: bytes | None, most_bytes: int, timeout: float) -> object:
        """Return the response's JSON; None, which no validation accepts, if it is not JSON.

        Raises:
            StatusError: the response has an error status, or is a redirect that is not followed.
            AnswerError: the response is larger than `most_bytes`, or cannot be decompressed.
            TransportError: there was no complete response within `timeout` seconds.
        """
        async with self._places:
            try:
                async with asyncio.timeout(timeout) as clock:
                    return await self._follow(method, self._url + path, body, most_bytes)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise TransportError(error, timed_out=clock.expired()) from error

    async def _follow(self, method: str, url: str, body: bytes | None, most_bytes: int) -> object:
        session = self._session
        for _ in range(MAX_REDIRECTS + 1):
            async with session.request(method, url, data=body, allow_redirects=False) as answer:
                if answer.status < 300:
                    return _parsed(await _read(answer, most_bytes))
                if answer.status not in _REDIRECTS or "location" not in answer.headers:
                    raise StatusError(answer.status, await _read_beginning(answer), answer.headers)
                url, session = self._target(url, answer)
        raise StatusError(answer.status, b"it redirects again and again", {})

    def _target(self, url: str, answer: aiohttp.ClientResponse) -> tuple[str, aiohttp.ClientSession]:
        """Return the address that a redirect leads to, and the session for its host.

        Raises:
            StatusError: it is not followed.
        """
        session = None
        try:
            target = urljoin(url, answer.headers["location"])
            same_host = _same_host(self._url, target)
            if urlsplit(target).scheme in _PORTS and not urlsplit(target).username:
                session = self._session if same_host else self._elsewhere
        except ValueError:  # not an address
            target = answer.headers["location"]
        if session is None:
            raise StatusError(answer.status, f"it redirects to {target}".encode(errors="replace"), {})
        return target, session

    async def aclose(self) -> None:
        await self._session.close()
        if self._elsewhere is not None:
            await self._elsewhere.close()


def _session(headers: Mapping[str, str], *, trust_env: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        headers=headers,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),  # a jar grows with what the server sends
        trust_env=trust_env,
    )


def _same_host(url: str, other: str) -> bool:
    """Whether two addresses have the same scheme, host and port; https is also the same host as http was."""
    one, two = urlsplit(url), urlsplit(other)
    ports = [part.port or _PORTS.get(part.scheme) for part in (one, two)]
    upgraded = (one.scheme, two.scheme, *ports) == ("http", "https", 80, 443)
    return one.hostname == two.hostname and (upgraded or (one.scheme == two.scheme and ports[0] == ports[1]))


async def _read(answer: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """Read and decompress a response.

    Raises:
        AnswerError: it has more than `most_bytes` bytes, or cannot be decompressed.
    """
    body, is_whole = await _read_up_to(answer, most_bytes)
    if not is_whole:
        answer.close()  # a connection on which the rest arrives must not be used again
        raise AnswerError(f"the response is longer than {most_bytes:,} bytes, the most that this request can need")
    return body


async def _read_beginning(answer: aiohttp.ClientResponse) -> bytes:
    """Read the beginning of an error's response, whatever its length and encoding."""
    try:
        body, is_whole = await _read_up_to(answer, MAX_ERROR_BYTES)
    except AnswerError:
        body, is_whole = b"", False
    if not is_whole:
        answer.close()
    return body


async def _read_up_to(answer: aiohttp.ClientResponse, most_bytes: int) -> tuple[bytes, bool]:
    """Return at most `most_bytes` of the decompressed response, and whether that is all of it.

    The compressed bytes are counted too: there is no limit to those that decompress to nothing.
    """
    encoding = answer.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", *_ENCODINGS):
        raise AnswerError(f"the response has the encoding {encoding}, which was not asked for")
    inflate = zlib.decompressobj(_ANY_HEADER) if encoding in _ENCODINGS else None
    chunks: list[bytes] = []
    received = length = 0
    async for chunk in answer.content.iter_any():
        received += len(chunk)
        if inflate is not None:
            try:
                chunk = inflate.decompress(chunk, most_bytes - length + 1)
            except zlib.error as error:
                raise AnswerError(f"the response cannot be decompressed: {error}") from error
        chunks.append(chunk)
        length += len(chunk)
        if length > most_bytes or received > most_bytes:
            return b"".join(chunks)[:most_bytes], False
    return b"".join(chunks), True


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return the body of a request as JSON."""
    return json.dumps(body).encode()


def _parsed(data: bytes) -> Any:
    try:
        return from_json(data)
    except ValueError:
        return None


def _seconds(text: str | None) -> float | None:
    """Return a number of seconds to wait; None for any other text, such as a date, nan or a negative number."""
    try:
        seconds = None if text is None else float(text)
    except ValueError:
        return None
    return seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None
