"""Servers of scripted humans on loopback, each under a name of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sweet.humans.scripted import ScriptedResponder
from sweet.llm.base import Completion, Sampling
from sweet.llm.listening import listening
from sweet.llm.server import make_app
from sweet.tasks.base import Message, Task
from sweet.tasks.code.kind import CodeKind


class Counting(ScriptedResponder):
    """Attributes:
    asked: the prompts that it got.
    """

    def __init__(self, tasks: Sequence[Task], model: str) -> None:
        super().__init__(CodeKind(), tasks, model)
        self.asked: list[str] = []

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.asked.append(messages[-1].content)
        return await super().chat(messages, sampling)


@contextmanager
def human_server(tasks: Sequence[Task], model: str) -> Iterator[tuple[str, Counting]]:
    """Serve the scripted human of these tasks as `model`; yields the address and the human."""
    human, ready, found = Counting(tasks, model), threading.Event(), list[str]()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with listening(make_app(human), "127.0.0.1", 0) as url:
            found.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(90)
        yield found[0], human
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
