"""Plays many dialogues at once.

Each dialogue is one asyncio task; a feeder starts the next one while fewer than the limit are running. The limit can be
changed meanwhile: SIGUSR1 doubles it, SIGUSR2 halves it, and a number in the file `concurrency` of the run's folder
sets it. It also bounds the requests at once of both clients, which find their own limit below it
(sweet.llm.concurrency). The first Ctrl-C starts no more dialogues and lets the running ones end; the second cancels
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from sweet.errors import InputError, Interrupted
from sweet.humans.base import Human
from sweet.humans.deadline import deadline
from sweet.judges.base import Judge
from sweet.judges.gathering import GatheringJudge
from sweet.llm.base import ChatClient, RequestFailed
from sweet.llm.concurrency import AdaptiveLimiter
from sweet.regular import open_regular
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules, TokenCounts
from sweet.rollouts.metrics import ChoiceMetrics, RolloutMetrics
from sweet.runs.jsonl import JsonlWriter
from sweet.stages.base import Progress, Reporter
from sweet.stages.failures import first_cause
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import dump

LIMIT_FILE = "concurrency"
"""File in the run's folder: a number in it sets the limit of dialogues at once."""
_TICK_SECONDS = 0.5
_TOKENS = ("prompt_tokens", "completion_tokens", "human_prompt_tokens", "human_completion_tokens")


@dataclass
class Choices:
    """Counts of the choices among candidates.

    Attributes:
        turns: with a choice. candidates: at all of them together. unjudged: of those, without an advantage.
        unjudged_turns: turns with no other candidates.
        gain: sum over the other turns of the highest advantage minus the mean one.
    """

    turns: int = 0
    candidates: int = 0
    unjudged: int = 0
    unjudged_turns: int = 0
    gain: float = 0.0

    def add(self, advantages: Sequence[float | None]) -> None:
        """Count a turn, by the advantages of its candidates."""
        known = [advantage for advantage in advantages if advantage is not None]
        self.turns += 1
        self.candidates += len(advantages)
        self.unjudged += len(advantages) - len(known)
        self.unjudged_turns += not known
        if known:
            self.gain += max(known) - fmean(known)

    def metrics(self) -> ChoiceMetrics | None:
        """Return the metrics; None where no reply was chosen among several."""
        judged = self.turns - self.unjudged_turns
        if not self.turns:
            return None
        return ChoiceMetrics(
            candidates=self.candidates,
            unjudged_candidates=self.unjudged,
            unjudged_turns=self.unjudged_turns,
            mean_gain=round(self.gain / judged, 6) if judged else None,
        )


class FinishedDialogues:
    """The ids of the finished dialogues and their counts, those of earlier calls included.

    Args:
        rows: of the rollouts so far.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        self.ids: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.choices = Choices()
        for row in rows:
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        """Count a row of the rollouts. A second row of the same id is ignored."""
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
        for turn in row["dialogue_history"]:
            self.sums["turns"] += turn["role"] == "assistant"
            if turn.get("choice"):
                self.choices.add(turn["choice"]["advantages"])

    def metrics(self, *, failed: int, seconds: float) -> RolloutMetrics:
        """Return the metrics of the rollout.

        Args:
            failed: dialogues of this call that did not finish. seconds: duration of this call.
        """
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
            choices=self.choices.metrics(),
            seconds=round(seconds, 3),
        )


@dataclass
class DialogueRunner:
    """Plays assignments at once, writes the finished dialogues and logs those that failed.

    Attributes:
        limit: dialogues at once at most.
        deadline: seconds for each dialogue, without the time for rendering pages.
        folder: of the run, in which `LIMIT_FILE` may be.
        writer: of the finished dialogues. log: of those that failed.
        finished: counts the finished dialogues.
        failed, running: numbers of dialogues.
        draining: whether no more dialogues are started.
    """

    kind: TaskKind
    rules: Rules
    limit: int
    deadline: float
    folder: Path
    writer: JsonlWriter
    log: JsonlWriter
    finished: FinishedDialogues
    reporter: Reporter
    failed: int = 0
    running: int = 0
    draining: bool = False
    counts: TokenCounts = field(default_factory=TokenCounts)

    async def play(
        self,
        assignments: Iterable[Assignment],
        total: int,
        agent: ChatClient,
        human: Human,
        limiters: Sequence[AdaptiveLimiter] = (),
        judge: Judge | None = None,
    ) -> None:
        """Play all assignments.

        Args:
            total: number of the assignments.
            limiters: of the clients that are asked; `limit` bounds them too.
            judge: chooses the agent's replies; required if `rules.best_of` is more than 1.

        Raises:
            Interrupted: the user stopped it; the dialogues that had ended are written.
            ServerError: a server could not be reached.
        """
        self.agent, self.human, self.limiters = agent, human, limiters
        self.judge = None if judge is None else GatheringJudge(judge)
        self._slot_free = asyncio.Event()
        self._started = time.monotonic()
        self._missing = total
        self._limit_file_mtime = 0
        self._cancelled = False
        self._set_limit(self.limit)
        self._check_limit_file()
        with self.reporter.progress("dialogues", total) as bar, self._signals():
            self._bar: Progress = bar
            ticking = asyncio.create_task(self._tick())
            try:
                async with asyncio.TaskGroup() as group:
                    await self._feed(assignments, group)
            except BaseExceptionGroup as errors:
                raise first_cause(errors) from errors
            except asyncio.CancelledError:
                if not self._cancelled:
                    raise
                raise self._interrupted() from None
            finally:
                ticking.cancel()
                self._note()
        if self.draining and self._missing:
            raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        return Interrupted(f"Stopped. {len(self.finished.ids)} dialogues are done, {self._missing} are missing.")

    async def _feed(self, assignments: Iterable[Assignment], group: asyncio.TaskGroup) -> None:
        for assignment in assignments:
            while self.running >= self.limit and not self.draining:
                self._slot_free.clear()
                await self._slot_free.wait()
            if self.draining:
                return
            self.running += 1
            group.create_task(self._one(assignment))

    async def _one(self, assignment: Assignment) -> None:
        dialogue = Dialogue(assignment, self.agent, self.human, self.kind, self.rules, self.counts, self.judge)
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
            self.finished.add(row)
            self._missing -= 1
            self._bar.advance()
        finally:
            self.running -= 1
            self._slot_free.set()

    def _fail(self, dialogue: Dialogue, kind: str, why: str) -> None:
        """Log a dialogue that may succeed when it is tried again: it becomes no row, so the next call plays it."""
        self.failed += 1
        self.log.write({"failed": kind, "error": why, **dialogue.record()})
        self._bar.advance()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._check_limit_file()
            self._note()

    def _check_limit_file(self) -> None:
        file = self.folder / LIMIT_FILE
        with contextlib.suppress(OSError):
            changed = file.stat().st_mtime_ns
            if changed != self._limit_file_mtime:
                self._limit_file_mtime = changed
                try:
                    self._read_limit_file(file)
                except InputError as error:  # it is not a regular file
                    self.reporter.warn(f"{file} is not read; {self.limit} stays. {error.what}")

    def _read_limit_file(self, file: Path) -> None:
        with open_regular(file) as opened:
            text = opened.read(20).strip()
        if text.isdigit() and int(text) > 0:
            self._set_limit(int(text))
            self.reporter.say(f"At most {self.limit} dialogues at once, as {file} says.")
        else:
            self.reporter.warn(f"{file} does not hold a number of dialogues; {self.limit} stays.")

    def _set_limit(self, value: int) -> None:
        self.limit = max(1, value)
        for limiter in self.limiters:
            limiter.max_limit = self.limit
        self._slot_free.set()

    def _note(self) -> None:
        seconds = max(time.monotonic() - self._started, 1e-9)
        figures: dict[str, object] = {}
        if self.running:
            figures["running"] = self.running
        if self.failed:
            figures["failed"] = self.failed
        if self.finished.ids:
            figures["answered"] = f"{self.finished.outcomes['answered'] / len(self.finished.ids):.0%}"
        figures["agent tok/s"] = round(self.counts.agent_tokens / seconds)
        if self.counts.human_tokens:
            figures["human tok/s"] = round(self.counts.human_tokens / seconds)
        self._bar.note(**figures)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Handle signals within the block. Python delivers them to the main thread; in another one nothing is done."""
        main = threading.current_thread() is threading.main_thread()
        actions: dict[str, Callable[[], None]] = {
            "SIGINT": self._interrupt,
            "SIGTERM": self._stop,
            "SIGHUP": self._stop,
            "SIGUSR1": lambda: self._scale_limit(2.0),
            "SIGUSR2": lambda: self._scale_limit(0.5),
        }
        handled = {getattr(signal, name): act for name, act in actions.items() if main and hasattr(signal, name)}
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            handled.pop(signal.SIGHUP, None)  # nohup
        loop = asyncio.get_running_loop()
        self._play_task = asyncio.current_task()
        before = {number: signal.getsignal(number) for number in handled}
        for number, act in handled.items():
            loop.add_signal_handler(number, act)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _scale_limit(self, factor: float) -> None:
        self._set_limit(int(self.limit * factor))
        self.reporter.say(f"At most {self.limit} dialogues at once.")

    def _stop(self) -> None:
        if self._play_task is not None:
            self._cancelled = True
            self._play_task.cancel()

    def _interrupt(self) -> None:
        if self.draining:
            self._stop()
            return
        self.draining = True
        self._slot_free.set()
        self.reporter.say(f"Stopping: {self.running} dialogues are played to their end. Ctrl-C again stops at once.")
