"""Plays dialogues: one, which is recorded, and those of a rollout at once.

Each dialogue is one asyncio task; a feeder starts the next one while fewer than the limit are running. The limit also
bounds the requests at once of both clients, which find their own limit below it (sweet.llm.concurrency).

What was said is on the disk (sweet.rollouts.steps), so a dialogue can stop anywhere and go on from there. After Ctrl-C
the running ones stop at their next turn; those that got no reply within `GRACE` seconds are cancelled, and all at a
second Ctrl-C.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sweet.deadline import deadline
from sweet.errors import Interrupted, SweetError
from sweet.gathering import Gathering, first_cause, handling
from sweet.humans.base import Human
from sweet.judges.base import Judge, Judged
from sweet.learn.rows import CandidateTurn
from sweet.llm.base import ChatClient, RequestFailed
from sweet.llm.concurrency import AdaptiveLimiter
from sweet.llm.scripted import SCRIPTED
from sweet.rollouts.dialogue import Assignment, Dialogue, DialogueStopped, Rules
from sweet.rollouts.metrics import ChoiceMetrics, HumanDialogues, RolloutMetrics, ThoughtMetrics, ToolMetrics
from sweet.rollouts.steps import Steps, StepsFile
from sweet.runs.jsonl import JsonlWriter, LongRow
from sweet.stages.base import Progress
from sweet.stages.failures import Failures
from sweet.stages.leaks import LeakTally, model_plays
from sweet.stages.live import LiveReporter
from sweet.stages.prices import Budget
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import dump, leaks_of
from sweet.units import count

NOTE_SECONDS = 0.5
"""Between two updates of the figures that are shown."""
GRACE = 1.0
"""Seconds after Ctrl-C in which replies under way may still come."""
_TOKENS = ("prompt_tokens", "completion_tokens", "human_prompt_tokens", "human_completion_tokens")


class FinishedDialogues:
    """The ids of the finished dialogues and their counts, those of earlier calls included.

    Args:
        rows: of the rollouts so far.
        sim: the simulated human of the dialogues that name none.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = (), *, sim: str = SCRIPTED) -> None:
        self.sim = sim
        self.ids: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.finish_reasons: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.gain = 0.0
        self.humans: dict[str, Counter[str]] = {}
        self.leaks = LeakTally()
        for row in rows:
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        """Count a row of the rollouts. A second row of the same id is ignored."""
        if row["id"] in self.ids:
            return
        if row.get("session") is None:  # a session is counted once
            self.ids.add(row["id"])
            self.outcomes[row.get("outcome", "answered")] += 1
            self.faults += Counter([row["fault"]] if row.get("fault") else ())
            self._add_human(row)
            if model_plays(row.get("human", self.sim)):
                self.leaks.add(row["task"]["id"], leaks_of(row))
        usage = row.get("usage", {})
        for name in (*_TOKENS, "thought_tokens", "unfinished_thoughts", *ToolMetrics.model_fields):
            self.sums[name] += usage.get(name, 0)
        self.sums["retries"] += usage.get("agent_retries", 0) + usage.get("human_retries", 0)
        for turn in row["dialogue_history"]:
            if turn["role"] == "assistant" and not turn.get("given"):
                self.sums["turns"] += 1
                if turn.get("content") or not turn.get("thought"):  # unfinished thoughts are counted already
                    self.finish_reasons[turn.get("finish_reason") or "stop"] += 1
            self.sums["thought_turns"] += turn.get("thought") is not None or bool(turn.get("thought_tokens"))
            if turn.get("choice"):
                self._add_choice(turn["choice"]["advantages"])

    def _add_choice(self, advantages: Sequence[float | None]) -> None:
        """Count a choice among candidates, by their advantages."""
        known = [advantage for advantage in advantages if advantage is not None]
        self.sums["choices"] += 1
        self.sums["candidates"] += len(advantages)
        self.sums["unjudged_candidates"] += len(advantages) - len(known)
        self.sums["unjudged_turns"] += not known
        self.gain += max(known) - fmean(known) if known else 0.0

    def _choices(self) -> ChoiceMetrics | None:
        """Return the metrics of the choices; None where no reply was chosen among several."""
        if not self.sums["choices"]:
            return None
        judged = self.sums["choices"] - self.sums["unjudged_turns"]
        return ChoiceMetrics(
            **{name: self.sums[name] for name in ("candidates", "unjudged_candidates", "unjudged_turns")},
            mean_gain=round(self.gain / judged, 6) if judged else None,
        )

    def _add_human(self, row: dict[str, Any]) -> None:
        """Count a row for its human, if it names one."""
        if isinstance(name := row.get("human"), str):
            counts = self.humans.setdefault(name, Counter())
            counts["dialogues"] += 1
            counts["answered"] += row.get("outcome", "answered") == "answered"
            counts["faults"] += bool(row.get("fault"))
            counts["turns"] += sum(turn["role"] == "assistant" for turn in row["dialogue_history"])

    def metrics(self, *, failures: Failures, seconds: float, cost: float | None = None) -> RolloutMetrics:
        """Return the metrics of the rollout.

        Args:
            failures: the dialogues of this call that did not finish. seconds: duration of this call.
            cost: of the rollout; None without prices.
        """
        humans = {human: HumanDialogues.model_validate(counts) for human, counts in sorted(self.humans.items())}
        thoughts = {name: self.sums[name] for name in ThoughtMetrics.model_fields}
        tools = {name: self.sums[name] for name in ToolMetrics.model_fields}
        return RolloutMetrics(
            episodes=len(self.ids),
            **{name: self.sums[name] for name in ("turns", "retries", *_TOKENS)},
            outcomes=dict(sorted(self.outcomes.items())),
            human_faults=dict(sorted(self.faults.items())),
            humans=humans or None,
            leaks=self.leaks.metrics(),
            failed=failures.count,
            failures=failures.reasons() or None,
            choices=self._choices(),
            thoughts=ThoughtMetrics(**thoughts) if any(thoughts.values()) else None,
            tools=ToolMetrics(**tools) if any(tools.values()) else None,
            cost=cost,
            seconds=round(seconds, 3),
        )


@dataclass(kw_only=True)
class DialoguePlayer:
    """Plays a dialogue, and writes its rows, or logs why it failed.

    Attributes:
        deadline: seconds for each reply of a dialogue (`sweet.deadline`).
        writer: of the finished dialogues; None for dialogues that are not recorded. log: of those that failed.
        live: shows the progress.
        budget: what the run may cost, at whose limit no dialogue is begun, and those under way end at their next turn.
        failures: counts the dialogues that failed, by their reasons.
        steps: what was said in the dialogues that are not finished; None records it in no file.
        harness: makes the dialogue of a program of the user (`sweet.rollouts.gateway.harness`), which has one or more
            rows; None where the model itself plays.
    """

    kind: TaskKind
    rules: Rules
    deadline: float
    writer: JsonlWriter | None
    log: JsonlWriter
    live: LiveReporter
    budget: Budget
    failures: Failures
    steps: StepsFile | None = None
    harness: Callable[[Assignment, Callable[[], bool]], Any] | None = None

    async def play_one(
        self,
        assignment: Assignment,
        agent: ChatClient,
        human: Human | Mapping[str | None, Human],
        judge: Gathering[CandidateTurn, Judged] | None = None,
        *,
        is_over: Callable[[], bool],
        steps: Steps | None = None,
        step: int | None = None,
    ) -> list[dict[str, Any]] | RequestFailed | str:
        """Return the rows of a dialogue, or why it failed: it can be tried again, and goes on at its turn.

        Args:
            human: of all dialogues, or one by each name that assignments have.
            is_over: is asked before each turn whether the dialogue is to stop there.
            steps: those recorded before, where the runner has no file of them.
            step: of a training, which its rows name, with the version of the weights that sampled each turn.

        Raises:
            DialogueStopped: `is_over` returned true.
            ServerError: a server could not be reached.
        """
        dialogue: Any
        if self.harness is None:
            steps = steps if self.steps is None else self.steps.of(assignment.id)
            human = human[assignment.human] if isinstance(human, Mapping) else human
            dialogue = Dialogue(assignment, agent, human, self.kind, self.rules, judge, is_over, steps)
        else:
            dialogue = self.harness(assignment, is_over)
        why: RequestFailed | str
        try:
            async with deadline(self.deadline):
                played = await dialogue.play()
        except TimeoutError:
            kind, why, record = "deadline", f"no reply within {self.deadline:g} seconds", dialogue.record()
        except RequestFailed as error:
            kind, why, record = type(error).__name__, error, dialogue.record()
        else:
            rows = [dump(row) for row in (played if isinstance(played, list) else [played])]
            if step is not None:
                of_rows = zip(rows, dialogue.versions, strict=True)
                rows = [row | {"step": step, "versions": versions} for row, versions in of_rows]
            try:
                if self.writer is not None:
                    for row in reversed(rows):  # the first row of a session last (sweet.runs.damage)
                        self.writer.write(row)
            except LongRow as error:
                kind, why, record = type(error).__name__, error.what, {"dialogue": assignment.id}
            else:
                if self.steps is not None:
                    self.steps.forget(assignment.id)
                return rows
        in_step = {} if step is None else {"step": step}
        self.log.write({"failed": kind, **in_step, "error": str(why), **record})
        return why


@dataclass(kw_only=True)
class DialogueRunner(DialoguePlayer):
    """Plays the assignments of a rollout at once.

    Attributes:
        limit: dialogues at once at most.
        finished: counts the finished dialogues.
        played: number of dialogues that finished in this call.
        running: the number of those that are played now.
        draining: whether dialogues stop at their next turn and no more are started, as the user asked.
    """

    limit: int
    finished: FinishedDialogues
    played: int = 0
    running: int = 0
    draining: bool = False

    async def play(
        self,
        assignments: Iterable[Assignment],
        total: int,
        agent: ChatClient,
        human: Human | Mapping[str | None, Human],
        limiters: Sequence[AdaptiveLimiter] = (),
        judge: Judge | None = None,
    ) -> None:
        """Play all assignments.

        Args:
            total: number of the assignments.
            human: of all dialogues, or one by each name that the assignments have.
            limiters: of the clients that are asked; `limit` bounds them too.
            judge: chooses the agent's replies; required if `rules.best_of` is more than 1.

        Raises:
            Interrupted: the user stopped it; the dialogues that had ended are written.
            ServerError: a server could not be reached.
        """
        self.agent, self.human = agent, human
        self.judge = (
            None if judge is None else Gathering(judge.judge, batch_size=judge.batch_size, max_calls=judge.max_calls)
        )
        self._slot_free = asyncio.Event()
        self._started = time.monotonic()
        self._total = total
        self._is_spent = self._is_hopeless = False
        for limiter in limiters:
            limiter.max_limit = self.limit
        with self.live.progress("dialogues", total) as bar:
            self._bar: Progress = bar
            ticking = asyncio.create_task(self._tick())
            self._playing = asyncio.create_task(self._play_all(assignments))
            stop = {signal.SIGINT: self._interrupt, signal.SIGTERM: self._stop, signal.SIGHUP: self._stop}
            try:
                with handling(stop):
                    await self._playing
            except BaseExceptionGroup as errors:
                if not (isinstance(cause := first_cause(errors), SweetError) and self.draining):
                    raise cause from errors  # Ctrl-C ends what is just being started, too
            except asyncio.CancelledError:
                if not self.draining:
                    raise
            finally:
                ticking.cancel()
                self._note()
        if (self.draining or self._is_spent) and self._missing:
            raise self._interrupted()

    @property
    def _missing(self) -> int:
        return self._total - self.played

    @property
    def ended(self) -> int:
        """Number of dialogues of this call that finished or failed."""
        return self.played + self.failures.count

    def _interrupted(self) -> Interrupted:
        done = f"Done: {count(len(self.finished.ids), 'dialogue')}; missing: {self._missing:,}."
        if self._is_spent:
            return self.budget.stopped(done)
        return Interrupted(f"Stopped. {done}")

    async def _play_all(self, assignments: Iterable[Assignment]) -> None:
        left = iter(assignments)
        async with asyncio.TaskGroup() as group:
            while not self._over():
                self._slot_free.clear()
                if self.running >= self.limit:
                    await self._slot_free.wait()
                elif (assignment := next(left, None)) is not None:
                    self.running += 1
                    group.create_task(self._one(assignment)).add_done_callback(self._ended)
                else:
                    return

    def _over(self) -> bool:
        """Return whether no more dialogues are started: the user asked for that, their cost has reached its limit, or
        all of them are refused."""
        self._is_unaffordable()
        is_hopeless = self.failures.is_hopeless(self.played)
        if is_hopeless and not self._is_hopeless:
            self.live.warn(f"No more dialogues are begun: {self.failures.summary()}.")
        self._is_hopeless = is_hopeless
        return self.draining or self._is_spent or is_hopeless

    def _is_unaffordable(self) -> bool:
        """Return whether the limit of the cost is reached, at which the dialogues that are played end at their next
        turn: what they may still cost is then one reply each."""
        if not self._is_spent and self.budget.is_spent():
            self._is_spent = True
            if self.running:
                self.live.say(f"{self.budget.reached()} {count(self.running, 'dialogue')} will end at the next turn.")
        return self._is_spent

    def _stops(self) -> bool:
        """Return whether dialogues stop at their next turn."""
        return self.draining or self._is_unaffordable()

    async def _one(self, assignment: Assignment) -> None:
        try:
            rows = await self.play_one(assignment, self.agent, self.human, self.judge, is_over=self._stops)
        except DialogueStopped:
            return
        if isinstance(rows, list):
            for row in rows:
                self.finished.add(row)
            self.played += 1
        else:
            self.failures.add(rows)
        self._bar.advance()

    def _ended(self, _: asyncio.Task[None]) -> None:
        """Called at the end of each dialogue's task, also of one that was cancelled before its first step."""
        self.running -= 1
        self._slot_free.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(NOTE_SECONDS)
            self.live.tokens.write_when_due()  # counted since the last write, which nothing may follow for long
            self._note()

    def _note(self) -> None:
        seconds = max(time.monotonic() - self._started, 1e-9)
        figures: dict[str, object] = {}
        if self.running:
            figures["running"] = self.running
        if self.failures.count:
            figures["failed"] = self.failures.count
        if self.finished.ids:
            figures["answered"] = self.finished.outcomes["answered"] / len(self.finished.ids)
        written = {role: tokens.completion for role, tokens in self.live.tokens.counts.items()}
        figures["agent tokens/s"] = round(written.get("agent", 0) / seconds)
        if written.get("sim"):
            figures["human tokens/s"] = round(written["sim"] / seconds)
        self._bar.note(**figures, **self.budget.shown())

    def _stop(self) -> None:
        """Stop at once (SIGTERM, SIGHUP, a second Ctrl-C)."""
        self.draining = True
        self._playing.cancel()

    def _interrupt(self) -> None:
        """Stop the dialogues at their next turn (Ctrl-C)."""
        if self.draining:
            self._stop()
            return
        self.draining = True
        self._slot_free.set()
        asyncio.get_running_loop().call_later(GRACE, self._playing.cancel)
        self.live.say(f"Stopping {count(self.running, 'dialogue')}. What was said is kept.")
