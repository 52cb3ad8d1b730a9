"""`sweet play --serve` and `sweet view --serve`: textual-serve runs the application for each browser at the page.

Every page of the browser's user may open connections to this machine, so a request is answered only if it comes from
the page itself: its Origin, which browsers send with every WebSocket, must be the address that it asks for, and on a
loopback address that must be a loopback name, or any name server could make another site that address. A
Content-Security-Policy keeps the page from loading anything from elsewhere.

`sweet play` has no password: whoever reaches the address plays. `sweet view` has a token, a random first part of the
path of every address; requests without it are refused. It is in no command line of a process, and the page sends no
referrer.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from sweet.errors import UsageError
from sweet.installation import install_command

LOOPBACK = "127.0.0.1"
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self' ws: wss:; frame-ancestors 'none'"
)
FOCUS = """<script>
  const waiting = setInterval(() => {
    const keys = document.querySelector(".xterm-helper-textarea");
    if (keys !== null && document.body.classList.contains("-first-byte")) {
      keys.focus();
      clearInterval(waiting);
    }
  }, 50);
</script>
</body>"""
"""Gives the terminal the keyboard as soon as the page shows it: textual-serve waits for a click."""
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT` or `PORT`.

    Raises:
        UsageError: it is neither.
    """
    host, _, port = text.rpartition(":")
    host = host or LOOPBACK
    valid = _HOST.fullmatch(host) is not None and port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536
    if not valid:
        raise UsageError(f"{text!r} is no address.", where="--serve", fix="--serve HOST:PORT")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether a name or address is this machine's own."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def refusal(host: str, asked: str, origin: str | None) -> str | None:
    """Return why a request is refused; None if it is answered.

    Args:
        host: that is served.
        asked: the Host of the request. origin: its Origin, if it has one.
    """
    name = urlsplit(f"//{asked}").hostname or ""
    if _HOST.fullmatch(name) is None and ":" not in name:
        return "The request names no host."
    if is_loopback(host) and not is_loopback(name):
        return "This server is for this machine alone."
    if origin is not None and urlsplit(origin).netloc != asked:
        return "The request comes from another site."
    return None


def serve(
    host: str,
    port: int,
    words: Sequence[str],
    ready: Callable[[str], None],
    *,
    extra: str,
    token: str = "",
) -> None:
    """Serve `sweet WORDS` in browsers until the process is interrupted.

    Args:
        port: 0 is any free one.
        ready: called with the address of the page, as soon as it answers.
        extra: the extra of pyproject.toml that has textual-serve.
        token: the first part of the path of every address; empty for none.

    Raises:
        UsageError: textual-serve is not installed, or the address cannot be used.
    """
    try:
        from textual_serve.server import Server
    except ImportError as error:
        raise UsageError(
            "Serving to a browser needs the package textual-serve.", where="--serve", fix=install_command(extra)
        ) from error

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        why = refusal(host, request.host, request.headers.get("Origin"))
        given = request.path.split("/", 2)[1] if token else ""
        if why is None and not hmac.compare_digest(given.encode(), token.encode()):
            why = "The address lacks the token: open the one that was printed."
        if why is None and request.path.endswith("/ws") and "Origin" not in request.headers:
            why = "A WebSocket needs an Origin."
        if why is not None:
            raise web.HTTPForbidden(text=why)
        return await handler(request)

    async def add_policy(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cache-Control"] = "no-store"

    class GuardedServer(Server):  # type: ignore[misc]
        """Serves relative to the address that the browser asks for, and prints nothing of its own."""

        def initialize_logging(self) -> None:
            pass

        async def on_startup(self, app: web.Application) -> None:
            pass

        async def _make_app(self) -> web.Application:
            app: web.Application = await super()._make_app()
            outer = app
            if token:
                outer = web.Application()
                outer.add_subapp(f"/{token}", app)
            outer.middlewares.append(guarded)
            outer.on_response_prepare.append(add_policy)
            return outer

        async def handle_index(self, request: web.Request) -> Any:
            self.public_url = f"{request.scheme}://{request.host}"
            response = await super().handle_index(request)
            response.text = response.text.replace("</body>", FOCUS)
            return response

    shown = f"[{host}]" if ":" in host else host
    command = shlex.join([sys.executable, "-m", "sweet", *words])
    server = GuardedServer(command, host=host, port=port, title=f"sweet {words[0]}")
    path = f"{token}/" if token else ""
    asyncio.run(_serve(server, host, port, lambda port: ready(f"http://{shown}:{port}/{path}")))


async def _serve(server: Any, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Answer until SIGINT or SIGTERM; each game that is running is then left, and keeps its state.

    Args:
        ready: called with the port, which is a free one for 0.

    Raises:
        UsageError: the port is in use, or the host is not this machine's.
    """
    runner = web.AppRunner(await server._make_app(), shutdown_timeout=5)
    await runner.setup()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            what = f"{host}:{port} cannot be served: {error.strerror or error}."
            raise UsageError(what, where="--serve", fix="another port") from error
        ready(runner.addresses[0][1])
        await stopped.wait()
    finally:
        await runner.cleanup()
