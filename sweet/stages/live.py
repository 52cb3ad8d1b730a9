"""What a running stage shows to other terminals, and what they ask of it.

`LiveReporter` passes every message on to the reporter of the call, and writes the counts to the file of the attempt
(`sweet.runs.progress`), which `sweet status` reads. Stages make it as soon as their attempt has begun, so it does not
matter who calls them.

A stage that `sweet control` can pause says so by `accepts` and calls `poll` about twice a second. One that works in an
event loop waits for `unpaused` before it starts something new; another calls `wait_while_paused` where nothing is under
way.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from sweet.errors import UsageError
from sweet.runs.attempt import ActiveAttempt
from sweet.runs.control import Action, Request, Requests
from sweet.runs.progress import Answer, ProgressFile
from sweet.stages.base import Progress, Reporter

POLL_SECONDS = 0.5
PAUSE: tuple[Action, ...] = ("pause", "resume")

Act = Callable[[Request], str]
"""Does what a request asks, and returns what has been done, in one sentence; raises UsageError to refuse it."""


class LiveReporter:
    """The reporter of a running attempt (implements `sweet.stages.base.Reporter`).

    Args:
        accepts: what can be asked of the stage.

    Attributes:
        paused: whether it is paused.
        tokens: counts what the models of the attempt read and write.
    """

    def __init__(self, reporter: Reporter, attempt: ActiveAttempt, accepts: Sequence[Action] = ()) -> None:
        self._reporter, self._accepts = reporter, accepts
        self._attempt, self.tokens = attempt, attempt.tokens
        self._file = ProgressFile(attempt.progress_path, accepts)
        self._requests = Requests(attempt.control_path)
        self._polling = threading.Lock()
        self._due = 0.0
        self._going = asyncio.Event()
        self._going.set()
        self.paused = False

    def say(self, text: str) -> None:
        self._reporter.say(text)

    def warn(self, text: str) -> None:
        self._reporter.warn(text)

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Progress]:
        with self._file.counting(title, total) as counter, self._reporter.progress(title, total) as bar:
            yield _Bars(bar, counter)

    def step(self, title: str, figures: Mapping[str, object]) -> AbstractContextManager[object]:
        """Show a title and figures to other terminals alone, within the block."""
        return self._file.counting(title, None, figures)

    def poll(self, act: Act | None = None) -> None:
        """Do what has been asked, and answer; at most every `POLL_SECONDS`.

        Args:
            act: does all but pausing.
        """
        with self._polling:
            if time.monotonic() < self._due:
                return
            self._due = time.monotonic() + POLL_SECONDS
            self.tokens.write_when_due()  # counted since the last write, which nothing may follow for long
            for request in self._requests.new():
                try:
                    answer = Answer(number=request.number, text=self._do(request, act))
                    self.say(answer.text)
                except UsageError as error:
                    answer = Answer(number=request.number, text=error.what, refused=True)
                self._file.answer(answer, paused=self.paused)

    def wait_while_paused(self, unless: Callable[[], bool] = lambda: False) -> None:
        """Poll, and return when the stage is not paused, or it is to do something all the same. Blocks the calling
        thread."""
        self.poll()
        while self.paused and not unless():
            time.sleep(POLL_SECONDS)
            self.poll()

    async def unpaused(self) -> None:
        """Wait until the stage is not paused; another task polls."""
        await self._going.wait()

    def _do(self, request: Request, act: Act | None) -> str:
        if request.action not in self._accepts:
            raise UsageError(f"{self._attempt.id} cannot do that.")
        if request.action not in PAUSE:
            assert act is not None, "a stage does what it accepts"
            return act(request)
        self.paused = request.action == "pause"
        if self.paused:
            self._going.clear()
            return f"{self._attempt.id} is paused: what is under way is finished, nothing new is started."
        self._going.set()
        return f"{self._attempt.id} goes on."


class _Bars:
    """Counts in several places: on a bar of the reporter of the call, and in the file."""

    def __init__(self, *bars: Progress) -> None:
        self._bars = bars

    def advance(self, by: int = 1) -> None:
        for bar in self._bars:
            bar.advance(by)

    def note(self, **figures: object) -> None:
        for bar in self._bars:
            bar.note(**figures)
