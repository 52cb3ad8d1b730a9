"""Drive the system's Firefox directly by its protocol, WebDriver BiDi: JSON messages over a WebSocket.

Each command has a number, which its answer repeats; several may be in flight at once. No events are subscribed to, so
that Firefox does not report requests, logs and contexts, which is half of the cost of a page when a general library
drives it: 40 reference pages of ColBench with two browsers of each kind, in turn, four rounds on two busy cores, took
Playwright's channel for the same Firefox 2.1 times as long (1.7 to 2.5) and 2.0 times the processor time (1.7 to
2.3).

The browser runs under a supervisor that kills it when this process ends (see `sweet.supervisor`), in its own folder
(see `sweet.render.profiles`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any

import aiohttp

from sweet import supervisor
from sweet.render.driver import Disconnected, DriverError, Scripts, Window
from sweet.render.firefox import Processes, command, environment_of, preferences
from sweet.render.profiles import Profile

LONGEST_ANSWER = 2**28
"""Maximum bytes of an answer; the largest are screenshots."""

SANDBOX = "sweet"
"""Name of the world in which pages are measured."""

CLOSING = 1.0
"""Seconds to wait for the closing handshake."""


class Session:
    """The connection to a Firefox, which accepts only one. Created by `connect`; `close` must be called."""

    def __init__(self, http: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._http = http
        self._socket = socket
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, port: int) -> Session:
        """Connect to a Firefox and open a session.

        Raises:
            Disconnected: nothing listens on the port.
            DriverError: Firefox refuses the session.
        """
        async with AsyncExitStack() as on_error:
            http = await on_error.enter_async_context(aiohttp.ClientSession())
            closing = aiohttp.ClientWSTimeout(ws_close=CLOSING)
            address = f"ws://127.0.0.1:{port}/session"
            try:
                socket = await http.ws_connect(address, max_msg_size=LONGEST_ANSWER, timeout=closing)
            except (aiohttp.ClientError, OSError) as error:
                raise Disconnected(str(error)) from error
            session = cls(http, socket)
            on_error.push_async_callback(session.close)
            capabilities = {"acceptInsecureCerts": True, "unhandledPromptBehavior": {"default": "dismiss"}}
            await session.do("session.new", capabilities={"alwaysMatch": capabilities})
            on_error.pop_all()
            return session

    @property
    def ended(self) -> bool:
        return self._reader.done()

    async def do(self, method: str, **params: Any) -> Any:
        """Send a command and return its result.

        Raises:
            Disconnected: the connection has ended, or ends before the answer.
            DriverError: the answer is an error.
        """
        if self.ended:
            raise Disconnected("Firefox has ended.")
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send_str(json.dumps({"id": number, "method": method, "params": params}))
            return await answer
        except (aiohttp.ClientError, OSError) as error:
            raise Disconnected(str(error)) from error
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """Close the connection without waiting for commands in flight."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()
        await self._http.close()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._take(message.data)
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(Disconnected("Firefox has ended."))

    def _take(self, text: str) -> None:
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # not an answer to a command
            message = json.loads(text)
            answer = self._waiting.get(message["id"])
            if answer is None or answer.done():
                return
            if message["type"] == "success":
                answer.set_result(message["result"])
            else:
                answer.set_exception(DriverError(f"{message.get('error')}: {message.get('message')}"))


class DirectWindow(Window):
    """Sends the commands itself."""

    def __init__(self, firefox: str) -> None:
        self._firefox = firefox
        self._process: subprocess.Popen[bytes] | None = None
        self._session: Session | None = None
        self._context = ""
        self._measure = ""

    async def start(self, port: int, scripts: Scripts, width: int, height: int) -> None:
        self._measure = f"({scripts.measure})()"
        self.profile = Profile(preferences(port))
        self._session = await Session.connect(await self._port(self.profile))
        tree = await self._do("browsingContext.getTree")
        self._context = tree["contexts"][0]["context"]
        viewport = {"width": width, "height": height}
        await self._do("browsingContext.setViewport", context=self._context, viewport=viewport, devicePixelRatio=1)
        await self._do("script.addPreloadScript", functionDeclaration=f"() => {{ {scripts.page} }}")

    async def _port(self, profile: Profile) -> int:
        """Start the program, wait until it accepts commands, and return its port."""
        process = self._process = _start(self._firefox, profile)
        self.processes = Processes(process.pid)
        while (port := profile.port()) is None:
            if process.poll() is not None:
                raise DriverError(f"it ends with status {process.returncode}")
            await asyncio.sleep(0.05)
        return port

    async def _do(self, method: str, **params: Any) -> Any:
        if self._session is None:
            raise Disconnected("Firefox has ended.")
        return await self._session.do(method, **params)

    @property
    def alive(self) -> bool:
        return self._session is not None and not self._session.ended

    async def go(self, address: str) -> None:
        await self._do("browsingContext.navigate", context=self._context, url=address, wait="complete")

    async def measure(self) -> object:
        target = {"context": self._context, "sandbox": SANDBOX}
        answer = await self._do("script.evaluate", expression=self._measure, target=target, awaitPromise=True)
        if answer["type"] != "success":
            raise DriverError(str(answer["exceptionDetails"]["text"])[:300])
        return answer["result"].get("value")

    async def picture(self, width: int, height: int, *, document: bool) -> bytes:
        origin = "document" if document else "viewport"
        clip = {"type": "box", "x": 0, "y": 0, "width": width, "height": height}
        shot = await self._do("browsingContext.captureScreenshot", context=self._context, origin=origin, clip=clip)
        return base64.b64decode(shot["data"])

    async def address(self) -> str:
        tree = await self._do("browsingContext.getTree", root=self._context, maxDepth=0)
        return str(tree["contexts"][0]["url"])

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._process is not None:
            self._process.poll()
        await super().close()


def _start(firefox: str, profile: Profile) -> subprocess.Popen[bytes]:
    with profile.log.open("wb") as log:
        return subprocess.Popen(
            supervisor.supervised(command(firefox, profile.folder), 0.0),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment_of(profile.folder),
            start_new_session=True,
        )
