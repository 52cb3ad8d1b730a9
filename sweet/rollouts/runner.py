"""Many dialogues at once: who plays which, how many, what is written, what is told, and how it is stopped.

One asyncio task a dialogue. A feeder starts the next one while fewer than the ceiling are under way. The ceiling may
be moved meanwhile: SIGUSR1 doubles it, SIGUSR2 halves it, a number in the run's file `concurrency` sets it. How many
requests each server gets of that is the client's own affair (sweet.llm.concurrency). The first Ctrl-C starts no more
dialogues and lets those under way end; the second stops them too.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweet.errors import Interrupted
from sweet.humans.base import Human
from sweet.humans.deadline import deadline
from sweet.llm.base import ChatClient, RequestFailed
from sweet.rollouts.dialogue import Assignment, Dialogue, Meter, Rules
from sweet.rollouts.metrics import RolloutMetrics
from sweet.runs.jsonl import JsonlWriter
from sweet.stages.base import Progress, Reporter
from sweet.stages.failures import first_cause
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import dump

CEILING_FILE = "concurrency"
"""In the run's folder: a number there is how many dialogues may be under way."""
_TICK_SECONDS = 0.5
_TOKENS = ("prompt_tokens", "completion_tokens", "human_prompt_tokens", "human_completion_tokens")


class Book:
    """What the finished dialogues come to, those of earlier calls included."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        self.ids: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        for row in rows:
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        """Take a row of the rollouts. A row that is named twice counts once."""
        if row["id"] in self.ids:
            return
        self.ids.add(row["id"])
        self.outcomes[row.get("outcome", "answered")] += 1
        if row.get("fault"):
            self.faults[row["fault"]] += 1
        usage = row.get("usage", {})
        for name in _TOKENS:
            self.sums[name] += usage.get(name, 0)
        self.sums["retries"] += usage.get("agent_retries", 0) + usage.get("human_retries", 0)
        self.sums["turns"] += sum(turn["role"] == "assistant" for turn in row["dialogue_history"])

    def metrics(self, *, failed: int, seconds: float) -> RolloutMetrics:
        """The metrics of the rollout, of whose current call `failed` dialogues did not finish."""
        return RolloutMetrics(
            episodes=len(self.ids),
            turns=self.sums["turns"],
            prompt_tokens=self.sums["prompt_tokens"],
            completion_tokens=self.sums["completion_tokens"],
            human_prompt_tokens=self.sums["human_prompt_tokens"],
            human_completion_tokens=self.sums["human_completion_tokens"],
            retries=self.sums["retries"],
            outcomes=dict(sorted(self.outcomes.items())),
            human_faults=dict(sorted(self.faults.items())),
            failed=failed,
            seconds=round(seconds, 3),
        )


@dataclass
class Crew:
    """Plays assignments.

    Attributes:
        ceiling: dialogues under way at most.
        deadline: seconds for each, time for rendering pages aside.
        folder: the run's, where the ceiling's file is looked for.
        writer, log: where finished dialogues go, and those that failed.
        book: counts finished dialogues.
    """

    kind: TaskKind
    rules: Rules
    ceiling: int
    deadline: float
    folder: Path
    writer: JsonlWriter
    log: JsonlWriter
    book: Book
    reporter: Reporter
    failed: int = 0
    running: int = 0
    draining: bool = False
    meter: Meter = field(default_factory=Meter)

    async def play(self, assignments: Iterable[Assignment], total: int, agent: ChatClient, human: Human) -> None:
        """Play them all.

        Raises:
            Interrupted: the user stopped it; what had ended is written.
            ServerError: a server could not be reached.
        """
        self.agent, self.human = agent, human
        self._room = asyncio.Event()
        self._began = time.monotonic()
        self._left = total
        self._ceiling_seen = 0
        self._cut_off = False
        self._set_ceiling(self.ceiling)
        self._look_for_ceiling()
        with self.reporter.progress("dialogues", total) as bar, self._signals():
            self._bar: Progress = bar
            ticking = asyncio.create_task(self._tick())
            try:
                async with asyncio.TaskGroup() as group:
                    await self._feed(assignments, group)
            except BaseExceptionGroup as errors:
                raise first_cause(errors) from errors
            except asyncio.CancelledError:
                if not self._cut_off:
                    raise
                raise self._interrupted() from None
            finally:
                ticking.cancel()
                self._note()
        if self.draining and self._left:
            raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        return Interrupted(f"Stopped. {len(self.book.ids)} dialogues are done, {self._left} are missing.")

    async def _feed(self, assignments: Iterable[Assignment], group: asyncio.TaskGroup) -> None:
        for assignment in assignments:
            while self.running >= self.ceiling and not self.draining:
                self._room.clear()
                await self._room.wait()
            if self.draining:
                return
            self.running += 1
            group.create_task(self._one(assignment))

    async def _one(self, assignment: Assignment) -> None:
        dialogue = Dialogue(assignment, self.agent, self.human, self.kind, self.rules, self.meter)
        try:
            async with deadline(self.deadline):
                trajectory = await dialogue.play()
        except TimeoutError:
            self._fail(dialogue, "deadline", f"not finished within {self.deadline:g} seconds")
        except RequestFailed as error:
            self._fail(dialogue, type(error).__name__, str(error))
        else:
            row = dump(trajectory)
            self.writer.write(row)
            self.book.add(row)
            self._left -= 1
            self._bar.advance()
        finally:
            self.running -= 1
            self._room.set()

    def _fail(self, dialogue: Dialogue, kind: str, why: str) -> None:
        """What may pass when tried again is no row of the rollouts: it is logged, and played again by the next call."""
        self.failed += 1
        self.log.write({"failed": kind, "error": why, **dialogue.record()})
        self._bar.advance()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._look_for_ceiling()
            self._note()

    def _look_for_ceiling(self) -> None:
        file = self.folder / CEILING_FILE
        with contextlib.suppress(OSError):
            changed = file.stat().st_mtime_ns
            if changed != self._ceiling_seen:
                self._ceiling_seen = changed
                self._read_ceiling(file)

    def _read_ceiling(self, file: Path) -> None:
        text = file.read_bytes()[:20].strip()
        if text.isdigit() and int(text) > 0:
            self._set_ceiling(int(text))
            self.reporter.say(f"At most {self.ceiling} dialogues at once, as {file} says.")
        else:
            self.reporter.warn(f"{file} does not hold a number of dialogues; {self.ceiling} stays.")

    def _set_ceiling(self, value: int) -> None:
        self.ceiling = max(1, value)
        for side in (self.agent, getattr(self.human, "client", None)):
            pace = getattr(side, "pace", None)
            if pace is not None:
                pace.ceiling = self.ceiling
        self._room.set()

    def _note(self) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        figures: dict[str, object] = {}
        if self.running:
            figures["running"] = self.running
        if self.failed:
            figures["failed"] = self.failed
        if self.book.ids:
            figures["answered"] = f"{self.book.outcomes['answered'] / len(self.book.ids):.0%}"
        figures["agent tok/s"] = round(self.meter.agent_tokens / seconds)
        if self.meter.human_tokens:
            figures["human tok/s"] = round(self.meter.human_tokens / seconds)
        self._bar.note(**figures)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals go to the main thread of a process: in another one nobody listens to them."""
        main = threading.current_thread() is threading.main_thread()
        wanted: dict[str, Callable[[], None]] = {
            "SIGINT": self._interrupt,
            "SIGTERM": self._stop,
            "SIGHUP": self._stop,
            "SIGUSR1": lambda: self._move_ceiling(2.0),
            "SIGUSR2": lambda: self._move_ceiling(0.5),
        }
        handled = {getattr(signal, name): do for name, do in wanted.items() if main and hasattr(signal, name)}
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            handled.pop(signal.SIGHUP, None)  # nohup
        loop = asyncio.get_running_loop()
        self._whole = asyncio.current_task()
        before = {number: signal.getsignal(number) for number in handled}
        for number, do in handled.items():
            loop.add_signal_handler(number, do)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _move_ceiling(self, factor: float) -> None:
        self._set_ceiling(int(self.ceiling * factor))
        self.reporter.say(f"At most {self.ceiling} dialogues at once.")

    def _stop(self) -> None:
        if self._whole is not None:
            self._cut_off = True
            self._whole.cancel()

    def _interrupt(self) -> None:
        if self.draining:
            self._stop()
            return
        self.draining = True
        self._room.set()
        self.reporter.say(f"Stopping: {self.running} dialogues are played to their end. Ctrl-C again stops at once.")
