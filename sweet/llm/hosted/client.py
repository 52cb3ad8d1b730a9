"""The embedded engine as a chat client, in several processes (`sweet.llm.hosted.program`).

All clients of this process get their processes from one program, which the first client starts and which runs until
this process ends. The dialogues about a task go to the same process, which keeps the keys and values of what their
prompts share; those about a new task go to the process with the fewest requests.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from sweet.device import Device
from sweet.errors import SweetError
from sweet.hf import import_expected
from sweet.llm.base import Completion, Effort, EngineFailed, Sampling
from sweet.llm.hosted.frames import Frames, Opened, Opening, Request
from sweet.tasks.base import Message

MODULE = "sweet.llm.hosted"
EXIT_TIMEOUT = 5.0
"""Seconds that the program gets to end."""


class _Program:
    """The program that forks the processes of engines."""

    def __init__(self) -> None:
        self._control, other = socket.socketpair()
        # The threads that OpenBLAS starts when it is imported would not be there after a fork.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE],
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process, which ends that one
            )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def connect(self) -> socket.socket:
        """Return the socket of a new process.

        Raises:
            OSError: the program has ended.
        """
        own, other = socket.socketpair()
        with other:
            socket.send_fds(self._control, [b"c"], [other.fileno()])
        return own

    def close(self) -> None:
        self._control.close()
        try:
            self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_lock = threading.Lock()
_program: list[_Program] = []
"""The one that runs, if one does."""


def start() -> _Program:
    """Start the program, unless it runs already. It is ready to fork some seconds later."""
    with _lock:
        if _program and not _program[0].runs:
            _program.pop().close()
        if not _program:
            _program.append(_Program())
        return _program[0]


def stop() -> None:
    """End the program."""
    with _lock:
        while _program:
            _program.pop().close()


atexit.register(stop)


class _Process:
    """The process of one engine."""

    def __init__(self, model: str, frames: Frames) -> None:
        self.model = model
        self._frames = frames
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Completion]] = {}
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, model: str, device: Device) -> _Process:
        """Raises OSError if the program ended meanwhile."""
        frames = await Frames.over(start().connect())
        frames.send(Opening(model, device))
        return cls(model, frames)

    async def opened(self) -> Opened:
        """Wait until the model is loaded. Raises the errors of `EmbeddedClient.load`."""
        opened: Opened | SweetError = await anext(self._frames, self._ended())
        if isinstance(opened, SweetError):
            raise opened
        self._reading = asyncio.create_task(self._read())
        return opened

    @property
    def load(self) -> int:
        """Requests that it has not answered."""
        return len(self._waiting)

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self._reading is None or self._reading.done():
            raise self._ended()
        number = next(self._numbers)
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._frames.put(Request(number, tuple(messages), sampling))
        try:
            return await future
        except asyncio.CancelledError:
            self._frames.put(Request(number))
            raise
        finally:
            del self._waiting[number]

    async def _read(self) -> None:
        """Pass answers on until the process ends."""
        async for answers in self._frames:
            for answer in answers:
                self._pass_on(answer.number, answer.completion)
        for number in self._waiting:
            self._pass_on(number, self._ended())

    def _pass_on(self, number: int, completion: Completion | SweetError) -> None:
        future = self._waiting.get(number)
        if future is None or future.done():  # it was cancelled
            return
        if isinstance(completion, SweetError):
            future.set_exception(completion)
        else:
            future.set_result(completion)

    def _ended(self) -> EngineFailed:
        return EngineFailed(f"A process that ran the model {self.model} has ended.", where=self.model)

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._frames.aclose()


class HostedClient:
    """Implements `sweet.llm.base.ChatClient`.

    Attributes:
        model: the name that was requested.
        context: the maximum number of tokens of prompt and reply together; None if the model does not define one.
        on_completion: called with each completion.
    """

    limiter = None

    def __init__(self, model: str, processes: Sequence[_Process], opened: Opened, stack: AsyncExitStack) -> None:
        self.model = model
        self.context = opened.context
        self.on_completion: Callable[[Completion], None] = lambda _completion: None
        self._reads = opened.reads
        self._processes, self._stack = processes, stack
        self._process_of: dict[int, _Process] = {}

    @classmethod
    async def open(cls, model: str, *, device: Device = "auto", processes: int) -> HostedClient:
        """Load `model` in so many processes. Raises the errors of `EmbeddedClient.load`."""
        started: list[_Process] = []
        async with AsyncExitStack() as stack:
            for _ in range(processes):
                process = await _Process.start(model, device)
                stack.push_async_callback(process.aclose)
                started.append(process)
            await asyncio.to_thread(import_expected)  # while the program does the same
            opened = [await process.opened() for process in started]
            return cls(model, started, opened[0], stack.pop_all())

    def reads(self, effort: Effort) -> bool:
        """Return whether the model's template tells this effort from others."""
        return self._reads[effort]

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies to chat messages; see `ChatClient.chat`."""
        completion = await self._process(messages).chat(messages, sampling)
        self.on_completion(completion)
        return completion

    def _process(self, messages: Sequence[Message]) -> _Process:
        task = hash(tuple(message.content for message in messages[:2]))  # system prompt and problem description
        if task not in self._process_of:
            self._process_of[task] = min(self._processes, key=lambda process: process.load)
        return self._process_of[task]

    async def aclose(self) -> None:
        """End the processes."""
        await self._stack.aclose()
