"""What a client and the process of an engine send each other.

Through their socket go frames, each a length of four bytes and a pickle: to the process first `Opening`, which it
answers by `Opened` or the error, then lists of `Request`, which it answers by lists of `Answer`. What becomes ready in
one step of the event loop shares a frame. Both ends are one program, started by one user, so their pickles are trusted.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sweet.device import Device
from sweet.errors import SweetError
from sweet.llm.base import Completion, Effort, Sampling
from sweet.tasks.base import Message

_HEADER = 4
"""Bytes of a frame's length."""


@dataclass(frozen=True)
class Opening:
    """The model that a client opens; see `EmbeddedClient.load`."""

    model: str
    device: Device


@dataclass(frozen=True)
class Opened:
    """What is known of the model. `reads` has for each effort whether the model's template tells it from others."""

    context: int | None
    reads: Mapping[Effort, bool]


@dataclass(frozen=True)
class Request:
    """A request for a chat. Without messages and sampling the request of this number is cancelled."""

    number: int
    messages: Sequence[Message] | None = None
    sampling: Sampling | None = None


@dataclass(frozen=True)
class Answer:
    """The answer to the request of this number."""

    number: int
    completion: Completion | SweetError


class Frames:
    """One end of the socket between a client and the process of an engine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._waiting: list[Request | Answer] = []

    @classmethod
    async def over(cls, end: socket.socket) -> Frames:
        return cls(*await asyncio.open_connection(sock=end))

    def put(self, item: Request | Answer) -> None:
        """Send an item with the next list of them."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(item)

    def _flush(self) -> None:
        items, self._waiting = self._waiting, []
        self.send(items)

    def send(self, value: object) -> None:
        """Send an object. If the other end is closed, nothing happens; the iteration ends."""
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        self._writer.write(len(data).to_bytes(_HEADER, "big") + data)

    def __aiter__(self) -> Frames:
        return self

    async def __anext__(self) -> Any:
        """Return the next object, until the other end is closed."""
        try:
            size = int.from_bytes(await self._reader.readexactly(_HEADER), "big")
            return pickle.loads(await self._reader.readexactly(size))  # noqa: S301 - see above
        except (EOFError, OSError):
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Close the socket, after what was sent."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
