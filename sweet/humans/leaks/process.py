"""Looks for leaks in a process of its own, so that the event loop of a stage goes on meanwhile.

A search takes milliseconds, as much as the rest of a dialogue's turn. The first `INLINE_SECONDS` of searches are made
in this process; a stage that needs more gets worker processes (`python -m sweet.humans.leaks.process`), which are
shared by all stages of this process and end with it. The replies to one task go to the same worker, which caches what
it has read of the task and the dialogue. Should a worker end, its search is made here, and the next one starts another.

Through their pipes go pickles: both ends are one program, started by one user.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from sweet.device import allowed_threads
from sweet.humans.leaks.find import is_leak
from sweet.installation import child_environment
from sweet.tasks.base import Message

INLINE_SECONDS = 0.5
"""Seconds of searches from which workers are worth the time that they take to start."""
MOST_WORKERS = 4
EXIT_TIMEOUT = 5.0
"""Seconds that a worker gets to end."""

Search = tuple[str, str, list[Message], str]
"""The arguments of `is_leak`."""


async def search(reference: str, request: str, dialogue: Sequence[Message], reply: str) -> bool:
    """Return what `is_leak` returns for these arguments, without holding up the event loop for long."""
    if _pool.spent < INLINE_SECONDS:
        began = time.perf_counter()
        try:
            return is_leak(reference, request, dialogue, reply)
        finally:
            _pool.spent += time.perf_counter() - began
    said = [Message.model_construct(role=message.role, content=message.content) for message in dialogue]
    return await asyncio.wrap_future(_pool.worker(reference).search((reference, request, said, reply)))


class _Worker:
    """A process, and the thread that talks to it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "leaks")
        self._process: subprocess.Popen[bytes] | None = None

    def search(self, asked: Search) -> Future[bool]:
        return self._thread.submit(self._search, asked)

    def _search(self, asked: Search) -> bool:
        try:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "sweet.humans.leaks.process"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=child_environment(dict(os.environ)),
                    start_new_session=True,  # Ctrl-C is for this process, which ends that one
                )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            pickle.dump(asked, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
            found: bool = pickle.load(self._process.stdout)  # noqa: S301 - see above
            return found
        except (OSError, EOFError, pickle.UnpicklingError):
            self._stop()
            return is_leak(*asked)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError, subprocess.TimeoutExpired):
            process.communicate(timeout=EXIT_TIMEOUT)
        process.kill()
        process.wait()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._stop()


class _Pool:
    """The workers of this process, and the seconds that searches have taken in it."""

    def __init__(self) -> None:
        self.spent = 0.0
        self._workers: list[_Worker] = []

    def worker(self, reference: str) -> _Worker:
        if not self._workers:
            self._workers = [_Worker() for _ in range(max(1, min(allowed_threads() - 1, MOST_WORKERS)))]
        return self._workers[hash(reference) % len(self._workers)]

    def close(self) -> None:
        while self._workers:
            self._workers.pop().close()


_pool = _Pool()
atexit.register(_pool.close)


def main() -> None:
    """Answer searches until standard input is closed."""
    answers = sys.stdout.buffer
    while True:
        try:
            asked: Search = pickle.load(sys.stdin.buffer)  # noqa: S301 - see above
        except EOFError:
            return
        pickle.dump(is_leak(*asked), answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    main()
