"""What every HTTP server of this program does before its application sees a request.

`refusal` decides by the head of a request. A browser sends requests for any page, and a name server can give any name
an address of this machine (DNS rebinding). So the Host must be an IP address, a name of this machine or one that the
user gave; an Origin must be the address that is asked; a POST must be JSON, which a page cannot send to another site.

`Connection` stands between a socket and the protocol of uvicorn or aiohttp; the application tells it by `answer` that a
request has come. Other connections wait, and are closed after a time. If all places are taken, the one that has waited
longest is closed for a new one, so half-sent requests lock nobody out. One address has at most half of the places.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


@dataclass(frozen=True)
class Limits:
    """Bounds of one server.

    Attributes:
        connections: open at once, as far as the system allows.
        head_seconds: for the head of a request. body_seconds: for its body, and for a client that does not read.
        idle_seconds: between two requests.
        body_bytes: of one request.
    """

    connections: int = 2048
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 75.0
    body_bytes: int = 4 << 20


def is_loopback(host: str) -> bool:
    """Return whether a name or address is this machine's own."""
    is_name = host == "localhost" or host.endswith(".localhost")
    return is_name or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def names_of(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of a server that listens on `host`; for a machine that others reach a name server is asked."""
    names = {host, *more, socket.gethostname(), *([] if is_loopback(host) else [socket.getfqdn()])}
    return frozenset(name.strip().lower() for name in names)


def refusal(
    version: str, method: str, path: str, headers: Iterable[tuple[str, str]], names: Collection[str], token: str = ""
) -> tuple[int, str] | None:
    """Return the status and the reason with which a request is refused, or None.

    Args:
        names: of the server; see `names_of`.
        token: the first part of the path of every address; empty for none.
    """
    fields = [(name.lower(), value.strip()) for name, value in headers]
    found, hosts = dict(fields), sum(name == "host" for name, _ in fields)
    asked, origin = found.get("host", ""), found.get("origin")
    match = HOST.fullmatch(asked)
    name = match[1].lower().removesuffix(".").strip("[]") if match else ""
    is_own = name in names or is_loopback(name) or _is_address(name)
    has_two_lengths = "transfer-encoding" in found and ("content-length" in found or version == "1.0")
    given = path.split("/", 2)[1] if token and path.startswith("/") else ""
    has_token = hmac.compare_digest(given.encode(errors="replace"), token.encode())
    is_json = found.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    rules = (
        (sum(len(name) + len(value) for name, value in fields) > 32 << 10, 431, "The headers are too large."),
        (has_two_lengths, 400, "The request states the length of its body by Transfer-Encoding where it must not."),
        (hosts > 1 or (hosts == 0 and version != "1.0"), 400, "The request must have one Host."),
        (hosts > 0 and not is_own, 421, f"This server is not called {asked[:100]!r}; use its IP address."),
        (origin is not None and origin.partition("://")[2] != asked, 403, "The request comes from another site."),
        (origin is None and found.get("upgrade", "").lower() == "websocket", 403, "A WebSocket needs an Origin."),
        (not has_token, 403, "The address lacks the token: open the one that was printed."),
        (method == "POST" and not is_json, 415, "A POST must have the header Content-Type: application/json."),
    )
    return next(((status, why) for fails, status, why in rules if fails), None)


def allow_open_files(count: int) -> int:
    """Raise this process's limit of open files and connections to `count`, as far as the system allows; return it."""
    try:
        import resource
    except ImportError:  # a system without such a limit
        return count
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


class Connections:
    """The open connections of one server."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.open = limits, set[Connection]()
        self._most = min(limits.connections, allow_open_files(2 * limits.connections) // 2)

    def admit(self, new: Connection) -> bool:
        """Add a connection if there is a place, or another makes room; return whether it was added."""
        rivals = {other for other in self.open if other.address == new.address}
        if len(rivals) < (self._most + 1) // 2:
            rivals = self.open if len(self.open) >= self._most else set()
        waiting = [other for other in rivals if not other.requests]
        if waiting:
            min(waiting, key=lambda other: other.since).drop()
        elif rivals:
            return False
        self.open.add(new)
        return True


class Connection(asyncio.Protocol):
    """Passes a connection on to the protocol of a web server, within the limits. `requests` are being answered, `since`
    is when it began to wait, and `task` is cancelled if the client disconnects."""

    def __init__(self, server: Connections, protocol: asyncio.Protocol) -> None:
        self._server, self._protocol, self.limits = server, protocol, server.limits
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = False
        self.address, self.requests, self.since = "", 0, self._loop.time()
        self.task: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._server.admit(self):
            self._protocol = asyncio.Protocol()  # it does nothing
            self._close("503 Service Unavailable", "The server answers too many requests: try again later.")
        current.set(self)
        self._protocol.connection_made(transport)
        self.wait(self.limits.head_seconds)

    def data_received(self, data: bytes) -> None:
        if not self.requests and not self._has_begun:
            self.wait(self.limits.head_seconds, begun=True)
        current.set(self)
        self._protocol.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.wait(None)
        self._server.open.discard(self)
        self._protocol.connection_lost(exc)
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()
        self._stalled = self._loop.call_later(self.limits.body_seconds, self.drop)

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
        self._stalled.cancel()

    @contextmanager
    def answer(self) -> Iterator[None]:
        """While the context is open, a request whose head has come is answered."""
        self.requests += 1
        self.wait(None)
        try:
            yield
        finally:
            self.requests -= 1
            self.wait(self.limits.idle_seconds)

    def wait(self, seconds: float | None, *, begun: bool = False) -> None:
        """Close the connection after a time unless this is called again; None is no limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._has_begun, self.since = begun, self._loop.time()
        ending = (self._close, "408 Request Timeout", f"It took over {seconds:g} s to send.") if begun else (self.drop,)
        self._timer = None if seconds is None else self._loop.call_later(seconds, *ending)

    def drop(self) -> None:
        """Close the connection at once, without an answer."""
        self._server.open.discard(self)
        self._transport.abort()

    def _close(self, status: str, why: str) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
        self._transport.write(f"{head}{why}".encode())
        self._transport.close()


current: ContextVar[Connection] = ContextVar("current")
"""The connection of a task: uvicorn starts one for each request, aiohttp one for each connection."""
