"""Asks one server by the client of the package `openai`, over a transport that bounds what the server can do.

`openai.AsyncOpenAI` (for an address of Azure `AsyncAzureOpenAI`) makes the requests: their addresses, keys,
organisation and project, as its environment variables say. It does not retry, and its responses are not parsed by it:
a request takes a third of the processor time that it takes with openai's models of responses over aiohttp
(`benchmarks/requests.py`). What it sends goes through `_Transport`, which uses aiohttp. Proxies and certificates are
those of the environment, as they are for `httpx` (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE); to an address of this machine
there is no proxy.

A server decides neither how much memory nor how much time a request takes. Each request has a time limit, from the
connection to the last byte, however slowly the bytes come; a server that answers one after the other has it for each
(`sweet.deadline`). The caller bounds the bytes of the response; they are counted as they arrive and again as they are
decompressed, and reading stops at the bound. Of an error's response only the beginning is read. A redirect is followed
on the same host, and never to another one, which would get the dialogue. Failures are one of three errors.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
import re
import ssl
import time
import zlib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from pydantic_core import from_json

from sweet import collector
from sweet.deadline import deadline
from sweet.errors import UsageError
from sweet.llm.base import Role
from sweet.llm.event_stream import is_event_stream, joined_events
from sweet.llm.servers import AZURE_KEY, AzureAddress, api_key, azure_address, azure_key
from sweet.redaction import redacted
from sweet.runs.jsonl import plain
from sweet.serving import is_loopback

with collector.paused():  # openai has 900 modules
    import aiohttp
    import httpx2
    import openai

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
_NOT_SENT = re.compile(r"x-stainless-|connection$|host$|content-length$|accept-encoding$")
"""Headers that are not sent as they come from openai: those about this machine, and those that aiohttp writes."""

_most_bytes: ContextVar[int] = ContextVar("_most_bytes", default=1 << 20)
"""Bytes that the response to the request which is being sent may have."""


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
        message = str(error) or type(error).__name__
        if isinstance(error, aiohttp.ClientResponseError) and not isinstance(error, aiohttp.ClientHttpProxyError):
            message = f"its answer is not HTTP: {error.message}"
        super().__init__("no answer in time" if self.timed_out else message)


class AnswerError(HttpError):
    """A response that is not read to its end: it is too large, or it cannot be decompressed."""

    retryable = False


class StatusError(HttpError):
    """A response with an error status, or a redirect that is not followed.

    Attributes:
        status: the HTTP status, 300 or more.
        code, type: the server's error code and its kind of error, if any.
        param: the parameter of the request that the error is about, if the server names it.
        retry_after: seconds that the server asks to wait, if any; finite and not negative.
    """

    def __init__(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        body = _parsed(data)
        if isinstance(body, list) and len(body) == 1:  # as Google's servers write it
            (body,) = body
        error = body.get("error", body) if isinstance(body, dict) else None
        message = (error.get("message") or error.get("detail")) if isinstance(error, dict) else error
        self.status = status
        self.code = str(error.get("code")) if isinstance(error, dict) else None
        self.type = str(error.get("type")) if isinstance(error, dict) else None
        param = error.get("param") if isinstance(error, dict) else None
        self.param = param if isinstance(param, str) else None
        self.retry_after = _seconds(headers.get("retry-after"))
        super().__init__(str(message or data.decode(errors="replace") or "no reason given"))

    @property
    def retryable(self) -> bool:  # type: ignore[override]
        return self.status in (408, 425, 429) or (self.status >= 500 and self.status != 501)


class Channel:
    """A client of one server. Created inside the event loop that uses it; `aclose` closes its connections.

    Args:
        url: the base URL.
        role: of the model, which names the variable of its key.
        connections: maximum number of open connections.
        timeout: seconds for one request and its response, from the server's last answer to any request.

    Attributes:
        azure: the parts of an address of Azure, else None.
        answered: when the server answered last, by the monotonic clock; 0 if it has not.

    Raises:
        UsageError: a variable of the environment is missing or cannot be used for this address.
    """

    def __init__(self, url: str, role: Role, connections: int, *, timeout: float = REQUEST_TIMEOUT) -> None:
        self._timeout, self.answered = timeout, 0.0
        # The time limit of a request begins when it has a connection, so the queue for them is here.
        self._places = asyncio.Semaphore(max(connections, 8))
        self.azure = azure_address(url)
        self._transport = _Transport(url)
        self._client = _openai_client(url, role, self.azure, _HttpClient(self._transport))

    def chat_path(self, model: str) -> str:
        """The path for chats with a model."""
        return f"/deployments/{quote(model, safe='')}/chat/completions" if self.azure else "/chat/completions"

    async def post(self, path: str, body: bytes, most_bytes: int) -> object:
        """Post JSON; return what `_exchange` returns and raise its errors."""
        return await self._exchange("POST", path, body, most_bytes, self._timeout)

    async def get(self, path: str, most_bytes: int, timeout: float) -> object:
        """Get; return what `_exchange` returns and raise its errors."""
        return await self._exchange("GET", path, b"", most_bytes, min(timeout, self._timeout))

    async def _exchange(self, method: str, path: str, body: bytes, most_bytes: int, timeout: float) -> object:
        """Return the response's JSON; its text, which no validation accepts, if it is not JSON.

        Raises:
            StatusError: the response has an error status, or is a redirect that is not followed.
            AnswerError: the response is larger than `most_bytes`, or cannot be decompressed.
            TransportError: there was no complete response within `timeout` seconds, in which the server answered no
                other request either.
        """
        async with self._places:
            token = _most_bytes.set(most_bytes)
            try:
                async with deadline(timeout, lambda: self.answered) as clock:
                    content = (await self._client.send(method, path, body)).content
                    self.answered = time.monotonic()
                    return _parsed(content)
            except openai.APIStatusError as error:
                raise StatusError(error.status_code, error.response.content, error.response.headers) from error
            except openai.APIConnectionError as error:
                # Versions before 3 wrap every error of a transport.
                is_wrapped = isinstance(error.__cause__, HttpError | UsageError)
                raise error.__cause__ if is_wrapped and error.__cause__ else TransportError(error) from error
            except TimeoutError as error:
                raise TransportError(error, timed_out=clock.expired()) from error
            finally:
                _most_bytes.reset(token)

    async def aclose(self) -> None:
        await self._client.close()


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return the body of a request as JSON."""
    return json.dumps(body).encode()


# The client of openai ---------------------------------------------------------------------------------------------


class _RequestsByPath:
    """Has `openai` make the options, the address and the headers of a path once: they are the same for all requests of
    a client, and take most of the time of one.

    Should a version of openai call the method otherwise, each request is made anew.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(max_retries=0, **settings)  # type: ignore[call-arg]
        self._prepared: dict[tuple[str, str], tuple[Any, httpx2.Request]] = {}

    async def send(self, method: str, path: str, body: bytes) -> httpx2.Response:
        """Send a request and return the response, which `_Transport` has read."""
        client: Any = self
        if (prepared := self._prepared.get((method, path))) is not None:
            response: httpx2.Response = await client.request(
                httpx2.Response, prepared[0].model_copy(update={"content": body})
            )
        elif method == "GET":
            response = await client.get(path, cast_to=httpx2.Response)
        else:
            response = await client.post(path, cast_to=httpx2.Response, content=body)
        return response

    def _build_request(self, options: Any, **more: Any) -> httpx2.Request:
        key = options.method.upper(), options.url
        if key not in self._prepared:
            request: httpx2.Request = super()._build_request(options, **more)  # type: ignore[misc]
            request.extensions["sent"] = _Sent(
                str(request.url),
                {name: value for name, value in request.headers.items() if not _NOT_SENT.match(name)}
                | {"accept-encoding": "gzip, deflate"},
            )
            self._prepared[key] = options, request
        base = self._prepared[key][1]
        stream = httpx2.ByteStream(options.content or b"")
        return httpx2.Request(base.method, base.url, headers=base.headers, stream=stream, extensions=base.extensions)


class SweetOpenAI(_RequestsByPath, openai.AsyncOpenAI):
    """Asks an OpenAI-compatible server."""


class SweetAzureOpenAI(_RequestsByPath, openai.AsyncAzureOpenAI):
    """Asks Azure."""


@dataclass(frozen=True)
class _Sent:
    """The address and the headers of a request as aiohttp sends them."""

    url: str
    headers: dict[str, str]


class _Response(httpx2.Response):
    """A response that has been read and decompressed."""

    def __init__(self, status: int, data: bytes, retry_after: str | None = None) -> None:
        headers = None if retry_after is None else {"retry-after": retry_after}
        super().__init__(status, headers=headers, stream=_EMPTY)
        self._data = data

    @property
    def content(self) -> bytes:
        return self._data


_EMPTY = httpx2.ByteStream(b"")


class _HttpClient(httpx2.AsyncClient):
    """Hands requests to the transport, which follows redirects; there are no cookies, hooks and logs."""

    def __init__(self, transport: _Transport) -> None:
        super().__init__(transport=transport, trust_env=False)
        self._bounded = transport

    async def send(self, request: httpx2.Request, **_: Any) -> httpx2.Response:
        response = await self._bounded.handle_async_request(request)
        response.request = request
        return response


def _openai_client(
    url: str, role: Role, azure: AzureAddress | None, http: _HttpClient
) -> SweetOpenAI | SweetAzureOpenAI:
    if azure is None:
        return SweetOpenAI(base_url=url, api_key=api_key(role), http_client=http)
    try:
        return SweetAzureOpenAI(
            azure_endpoint=azure.endpoint, api_version=azure.version, api_key=azure_key(role), http_client=http
        )
    except openai.OpenAIError as error:
        raise UsageError("There is no key for Azure.", where=url, fix=f"export {AZURE_KEY}=…") from error


# The transport ----------------------------------------------------------------------------------------------------


class _Transport(httpx2.AsyncBaseTransport):
    """Sends the requests of one client by aiohttp, within the bounds that the module describes."""

    def __init__(self, url: str) -> None:
        self._url, self._connection = url, _connection(url)
        self._session: aiohttp.ClientSession | None = None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),  # a jar grows with what the server sends
            )
        return self._session

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises AnswerError and TransportError."""
        sent: _Sent = request.extensions["sent"]
        url, connection = sent.url, self._connection
        body = await request.aread()
        try:
            for _ in range(MAX_REDIRECTS + 1):
                async with self._opened().request(
                    request.method, url, data=body or None, headers=sent.headers, allow_redirects=False, **connection
                ) as answer:
                    if answer.status < 300:
                        return _Response(answer.status, await _read(answer, _most_bytes.get()))
                    if answer.status not in _REDIRECTS or "location" not in answer.headers:
                        return _Response(
                            answer.status, await _read_beginning(answer), answer.headers.get("retry-after")
                        )
                    target = self._target(url, answer.headers["location"])
                    if target is None:
                        return _Response(answer.status, f"it redirects to {answer.headers['location']}".encode())
                    url, connection = target, _connection(target)
        except aiohttp.ClientConnectorCertificateError as error:
            raise UsageError(
                f"The certificate of the server is not trusted: {redacted(str(error.certificate_error))}",
                where=self._url,
                fix="export SSL_CERT_FILE=FILE with the certificate that it is signed by, if you know the server",
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(error) from error
        return _Response(answer.status, b"it redirects again and again")

    def _target(self, url: str, location: str) -> str | None:
        """Return the address that a redirect leads to; None if it is not followed."""
        try:
            target = urljoin(url, location)
            parts = urlsplit(target)
            is_usable = parts.scheme in _PORTS and bool(parts.hostname) and not parts.username
            return target if is_usable and _same_host(self._url, target) else None
        except ValueError:  # not an address
            return None

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


def _same_host(url: str, other: str) -> bool:
    """Whether two addresses have the same scheme, host and port; https is also the same host as http was."""
    first, second = urlsplit(url), urlsplit(other)
    ports = [part.port or _PORTS.get(part.scheme) for part in (first, second)]
    upgraded = (first.scheme, second.scheme, *ports) == ("http", "https", 80, 443)
    return first.hostname == second.hostname and (upgraded or (first.scheme == second.scheme and ports[0] == ports[1]))


def _connection(url: str) -> dict[str, Any]:
    """Return the arguments of a request for its proxy and its certificates."""
    arguments: dict[str, Any] = {"proxy": proxy} if (proxy := proxy_of(url)) else {}
    if url.startswith("https:"):
        arguments["ssl"] = _ssl_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return arguments


def proxy_of(url: str) -> str | None:
    """Return the proxy of the environment for an address; None without one, and for an address of this machine.

    Raises:
        UsageError: its kind is not supported.
    """
    parts = urlsplit(url)
    if is_loopback(parts.hostname or "") or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if urlsplit(proxy).scheme not in _PORTS:
        raise UsageError(
            f"The proxy {redacted(proxy)} is not an HTTP proxy.",
            where=f"{parts.scheme.upper()}_PROXY or ALL_PROXY",
            fix=f"name an HTTP proxy, or export NO_PROXY={parts.hostname}",
        )
    return proxy


@functools.cache
def _ssl_context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """Return what `httpx` and openai trust where the variables have these values."""
    return httpx2.create_ssl_context()


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


def _parsed(data: bytes) -> Any:
    """Return the JSON of a response, also if it is streamed; its text if it is neither. What is no character, such as
    half of one that JSON has in two parts, becomes the replacement character."""
    try:
        return joined_events(data) if is_event_stream(data) else from_json(data)
    except ValueError:
        text = data.decode(json.detect_encoding(data), "replace")
    try:
        return plain(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _seconds(text: str | None) -> float | None:
    """Return a number of seconds to wait; None for any other text, such as a date, nan or a negative number."""
    try:
        seconds = None if text is None else float(text)
    except ValueError:
        return None
    return seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None
