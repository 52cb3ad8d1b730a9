"""WebDriver BiDi, the protocol by which a Firefox of any make is driven: a WebSocket with JSON both ways.

A command goes out with a number, and the answer comes back with it; several may be on their way at once. Nothing is
subscribed to, so Firefox tells of no requests, logs and contexts: telling of them is half of what a page costs where
a general library drives it.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import count
from typing import Any

import aiohttp

LONGEST_ANSWER = 2**28
"""Bytes of an answer; the largest are screenshots."""


CLOSING = 1.0
"""Seconds for a browser that still lives to say good-bye."""


class BidiError(Exception):
    """Firefox could not do what it was told; `str()` is how it says so."""


class Disconnected(BidiError):
    """The connection has ended, since Firefox has."""


class Session:
    """One connection to a Firefox, which takes no second one. Made by `connect`; `close` must be called."""

    def __init__(self, http: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._http = http
        self._socket = socket
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, port: int) -> Session:
        """Raises:
        Disconnected: nobody listens there.
        BidiError: no session is to be had.
        """
        http = aiohttp.ClientSession()
        try:
            closing = aiohttp.ClientWSTimeout(ws_close=CLOSING)
            address = f"ws://127.0.0.1:{port}/session"
            socket = await http.ws_connect(address, max_msg_size=LONGEST_ANSWER, timeout=closing)
        except (aiohttp.ClientError, OSError) as error:
            await http.close()
            raise Disconnected(str(error)) from error
        except BaseException:
            await http.close()
            raise
        session = cls(http, socket)
        try:
            capabilities = {"acceptInsecureCerts": True, "unhandledPromptBehavior": {"default": "dismiss"}}
            await session.do("session.new", capabilities={"alwaysMatch": capabilities})
        except BaseException:
            await session.close()
            raise
        return session

    @property
    def ended(self) -> bool:
        return self._reader.done()

    async def do(self, method: str, **params: Any) -> Any:
        """Give a command and wait for its result.

        Raises:
            Disconnected: the connection has ended, or ends before the answer.
            BidiError: the answer is an error.
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
        """End the connection at once."""
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
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # nothing that answers a command
            said = json.loads(text)
            answer = self._waiting.get(said["id"])
            if answer is None or answer.done():
                return
            if said["type"] == "success":
                answer.set_result(said["result"])
            else:
                answer.set_exception(BidiError(f"{said.get('error')}: {said.get('message')}"))
