"""The embedded engine in several processes, for models so small that Python takes as long as the arithmetic.

The first client of this process starts a program (`python -m sweet.llm.engine_processes`) that imports the libraries,
which takes seconds, and forks a process for each socket that it is sent. Such a process loads a model, answers requests
and ends when its socket is closed, so also when this process is killed. The program itself runs no thread, so that it
can be forked, and ends with this process.

Through a socket go pickles, each after its length: both ends are one program, started by one user. First the model, the
device and the marks of thoughts, answered by None or an error; then `(number, request)`, answered by `(number,
completion or error)`. A request is the messages and the sampling, or None to cancel it. The packaged agent with two
cores against one process with two threads, `sweet demo` in turn on a quiet machine: 53 ranked turns a second against
30, and 12 s against 22 s for 512 dialogues.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sweet import collector
from sweet.deadline import off_the_clock
from sweet.device import Device
from sweet.errors import SweetError, first_line
from sweet.llm.base import Completion, EngineFailed, Sampling
from sweet.llm.thoughts import ALL_MARKS, Marks
from sweet.tasks.base import Message

if TYPE_CHECKING:
    from sweet.llm.template import ChatTemplate

MODULE = "sweet.llm.engine_processes"
EXIT_TIMEOUT = 5.0
"""Seconds that the program gets to end."""
_HEADER = 4
"""Bytes of a pickle's length."""


class _Program:
    """The program that forks the processes."""

    def __init__(self) -> None:
        self._control, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE],
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                # The threads that OpenBLAS starts when it is imported would not be there after a fork.
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for this process, which ends that one
            )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def connect(self) -> socket.socket:
        """Return the socket of a new process. Raises OSError if the program has ended."""
        client_end, server_end = socket.socketpair()
        with server_end:
            socket.send_fds(self._control, [b"c"], [server_end.fileno()])
        return client_end

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


def _running_program() -> _Program:
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

    def __init__(self, model: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._model, self._reader, self._writer = model, reader, writer
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Completion]] = {}
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, model: str, device: Device, marks: Sequence[Marks]) -> _Process:
        """Return a process that loads the model. Raises OSError if the program ended meanwhile."""
        process = cls(model, *await asyncio.open_connection(sock=_running_program().connect()))
        _send(process._writer, (model, device, marks))
        return process

    async def loaded(self) -> None:
        """Wait until the model is loaded. Raises the errors of `EmbeddedClient.load`."""
        error = await _receive(self._reader, self._ended())
        if error is not None:
            raise error
        self._reading = asyncio.create_task(self._read())

    @property
    def load(self) -> int:
        """The number of requests that it has not answered."""
        return len(self._waiting)

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self._reading is None or self._reading.done():
            raise self._ended()
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        _send(self._writer, (number, (tuple(messages), sampling)))
        try:
            with off_the_clock():
                return await self._waiting[number]
        except asyncio.CancelledError:
            _send(self._writer, (number, None))
            raise
        finally:
            del self._waiting[number]

    async def _read(self) -> None:
        """Pass answers on until the process ends."""
        while (answer := await _receive(self._reader, None)) is not None:
            self._pass_on(*answer)
        for number in self._waiting:
            self._pass_on(number, self._ended())

    def _pass_on(self, number: int, result: Completion | SweetError) -> None:
        future = self._waiting.get(number)
        if future is None or future.done():  # it was cancelled
            return
        if isinstance(result, SweetError):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _ended(self) -> EngineFailed:
        return EngineFailed(f"A process that ran the model {self._model} has ended.", where=self._model)

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class EngineProcesses:
    """Implements `sweet.llm.base.ChatClient`.

    The dialogues about a task go to one process, which keeps the keys and values of what their prompts share; those
    about a new task go to the process with the fewest requests.

    Attributes:
        model: the name that was requested.
        on_completion: called with each completion.
    """

    def __init__(self, model: str, processes: Sequence[_Process], stack: AsyncExitStack) -> None:
        self.model = model
        self.on_completion: Callable[[Completion], None] = lambda _completion: None
        self._processes, self._stack = processes, stack
        self._process_of: dict[int, _Process] = {}

    @classmethod
    async def open(
        cls, model: str, *, device: Device = "auto", processes: int, marks: Sequence[Marks] = ALL_MARKS
    ) -> EngineProcesses:
        """Load `model` in so many processes. Raises the errors of `EmbeddedClient.load`."""
        async with AsyncExitStack() as stack:
            started = [await _Process.start(model, device, marks) for _ in range(processes)]
            for process in started:
                stack.push_async_callback(process.aclose)
            for process in started:
                await process.loaded()
            return cls(model, started, stack.pop_all())

    @cached_property
    def template(self) -> ChatTemplate:
        from sweet.llm.pretrained import load_tokenizer
        from sweet.llm.template import ChatTemplate

        return ChatTemplate(load_tokenizer(self.model))

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies to chat messages; see `ChatClient.chat`."""
        task = hash(tuple(message.content for message in messages[:2]))  # system prompt and problem description
        if task not in self._process_of:
            self._process_of[task] = min(self._processes, key=lambda process: process.load)
        completion = await self._process_of[task].chat(messages, sampling)
        self.on_completion(completion)
        return completion

    async def aclose(self) -> None:
        """End the processes."""
        await self._stack.aclose()


def _send(writer: asyncio.StreamWriter, value: object) -> None:
    """Send an object. If the other end is closed, nothing happens: the end that reads notices."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    writer.write(len(data).to_bytes(_HEADER, "big") + data)


async def _receive(reader: asyncio.StreamReader, at_end: Any) -> Any:
    """Return the next object; `at_end` if the other end is closed."""
    try:
        size = int.from_bytes(await reader.readexactly(_HEADER), "big")
        return pickle.loads(await reader.readexactly(size))  # noqa: S301 - see above
    except (EOFError, OSError):
        return at_end


# In the program and its processes -------------------------------------------------------------------------------------


def main() -> None:
    """Fork a process for each socket that comes, until the other end of standard input is closed."""
    with collector.paused():
        import transformers.models.llama.modeling_llama  # noqa: F401 - of this kind are small models

        import sweet.llm.embedded  # noqa: F401
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are forked
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # no other file may become standard input
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        if not os.fork():
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(_serve(socket.socket(fileno=descriptors[0])))
            os._exit(0)  # to free the objects of all modules first takes longer than to load a small model
        os.close(descriptors[0])


async def _serve(end: socket.socket) -> None:
    """Load the model that the other end names, and answer its requests until it is closed."""
    import torch

    from sweet.llm.embedded import EmbeddedClient

    reader, writer = await asyncio.open_connection(sock=end)
    opening = await _receive(reader, None)
    if opening is None:
        return
    torch.set_num_threads(1)  # there is a process for each core
    model, device, marks = opening
    try:
        client = EmbeddedClient.load(model, device=device, marks=marks)
    except SweetError as error:
        _send(writer, error)
        writer.close()
        return
    _send(writer, None)

    async def answer(number: int, messages: Sequence[Message], sampling: Sampling) -> None:
        result: Completion | SweetError
        try:
            result = await client.chat(messages, sampling)
        except SweetError as error:
            result = error
        except Exception as error:
            result = EngineFailed(f"The model {model} failed: {first_line(error)}", where=model)
        _send(writer, (number, result))
        del running[number]

    running: dict[int, asyncio.Task[None]] = {}
    while (received := await _receive(reader, None)) is not None:
        number, request = received
        if request is not None:
            running[number] = asyncio.create_task(answer(number, *request))
        elif number in running:
            running.pop(number).cancel()
    for task in running.values():
        task.cancel()
    await client.aclose()


if __name__ == "__main__":
    main()
