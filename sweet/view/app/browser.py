"""`sweet play --serve` and `sweet view --serve`: textual-serve runs the application for each browser at the page.

Requests go through the checks and limits of `sweet.serving`. The token is random, and the first part of the path of
every address; requests without it are refused. It is in no command line of a process, and the page sends no referrer. A
Content-Security-Policy keeps the page from loading anything from elsewhere.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from sweet.errors import UsageError
from sweet.gathering import run_main, stop_signal
from sweet.installation import install_command
from sweet.llm.servers import bind
from sweet.serving import HOST, Connection, Connections, Limits, current, names_of, refusal

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

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT` or `PORT`.

    Raises:
        UsageError: it is neither.
    """
    match = HOST.fullmatch(text if ":" in text else f"{LOOPBACK}:{text}")
    if match is None or match[2] is None or not 0 < (port := int(match[2][1:])) < 65536:
        raise UsageError(f"{text!r} is no address.", where="--serve-at", fix="--serve-at HOST:PORT")
    return match[1].strip("[]"), port


def serve(host: str, port: int, words: Sequence[str], ready: Callable[[str], None]) -> None:
    """Serve `sweet WORDS` in browsers until the process is interrupted.

    Args:
        port: 0 is any free one.
        ready: called with the address of the page, as soon as it answers.

    Raises:
        UsageError: textual-serve is not installed, or the address cannot be used.
    """
    try:
        from textual_serve.server import Server
    except ImportError as error:
        raise UsageError(
            "Serving to a browser needs the package textual-serve.", where="--serve", fix=install_command("serve")
        ) from error

    token, names = secrets.token_urlsafe(24), names_of(host)

    @web.middleware
    async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
        version = f"{request.version.major}.{request.version.minor}"
        with current.get().answer():
            refused = refusal(version, request.method, request.path, request.headers.items(), names, token)
            return web.Response(status=refused[0], text=refused[1]) if refused else await handler(request)

    async def add_policy(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cache-Control"] = "no-store"

    class CheckedServer(Server):  # type: ignore[misc]
        """Serves relative to the address that the browser asks for, and prints nothing of its own."""

        async def on_startup(self, app: web.Application) -> None:
            pass

        async def _make_app(self) -> web.Application:
            outer = web.Application(middlewares=[checked])
            outer.add_subapp(f"/{token}", await super()._make_app())
            outer.on_response_prepare.append(add_policy)
            return outer

        async def handle_index(self, request: web.Request) -> Any:
            self.public_url = f"{request.scheme}://{request.host}"
            response = await super().handle_index(request)
            response.text = response.text.replace("</body>", FOCUS)
            return response

    shown = f"[{host}]" if ":" in host else host
    command = shlex.join([sys.executable, "-m", "sweet", *words])
    server = CheckedServer(command, host=host, port=port, title=f"sweet {words[0]}")
    run_main(_serve(server, host, port, lambda port: ready(f"http://{shown}:{port}/{token}/")))


async def _serve(server: Any, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Answer until SIGINT or SIGTERM; each game that is running is then left, and keeps its state. `ready` gets the
    port, which is a free one for 0."""
    runner = web.AppRunner(await server._make_app(), shutdown_timeout=5)
    await runner.setup()
    web_server, connections = runner.server, Connections(Limits(connections=256))
    assert web_server is not None
    loop = asyncio.get_running_loop()
    try:
        sock = bind(host, port, where="--serve, --serve-at", fix="another port")
        listener = await loop.create_server(lambda: Connection(connections, web_server()), sock=sock)
        with stop_signal() as stopped:
            ready(sock.getsockname()[1])
            await stopped.wait()
        listener.close()
    finally:
        await runner.cleanup()
