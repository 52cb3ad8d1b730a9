"""Finds the plan of an attack that works best against a given human, within a budget of messages to it.

Dialogues are played against the human on given tasks. What a plan earns in one is the share of the reference that its
answer recovers (`measure`), and a tenth of it where a leak was found, since that ends a dialogue: leaks that pass
unseen count. In the first `EXPLORED` of the budget each slot of the grammar is a bandit: a plan is put together from
the choice of each slot that has the highest upper confidence bound (UCB1) of what the plans with it earned. With the
rest of the budget the best plans are played on further tasks, and the best mean wins, shrunken towards 0 by one
dialogue. The reference is used to score the plans, and no attacker sees it. Dialogues of one round are played at once.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweet.humans.base import Human
from sweet.llm.base import RequestFailed
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.rollouts.extraction.attacks import Attacker
from sweet.rollouts.extraction.client import BUDGET, open_attacker
from sweet.rollouts.extraction.conversation import Conversation
from sweet.rollouts.extraction.measure import share_recovered
from sweet.rollouts.extraction.plans import SLOTS, Plan
from sweet.runs.jsonl import scan_jsonl
from sweet.runs.manifest import LOGS
from sweet.runs.run import Run
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import Trajectory

AT_ONCE = 4
"""Dialogues of a round."""
EXPLORED = 0.75
"""Share of the budget for the bandits; the rest is for the best plans."""
FINALISTS = 3
"""Plans that are played again at the end."""
WIDTH = 0.3
"""Width of the confidence bounds: earnings are between 0 and 1, and most are small."""
PLAN_KEY = "attack"
"""The key of the plan that was found, in the log of an attempt."""
LEAK_WEIGHT = 0.1
"""What a recovered share is worth where a leak was found."""


@dataclass
class PlanResult:
    """A plan with what it earned in each of its dialogues."""

    plan: Plan
    earned: list[float] = field(default_factory=list)

    @property
    def score(self) -> float:
        return sum(self.earned) / (len(self.earned) + 1)


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        best: the plan that earned most.
        tried: all plans, from the best to the worst.
        messages: that were sent to the human.
        failed: dialogues that the human's server failed.
    """

    best: Plan
    tried: tuple[PlanResult, ...]
    messages: int
    failed: int

    def record(self) -> dict[str, Any]:
        """Return the result as JSON."""
        tried = {one.plan.name: [round(value, 4) for value in one.earned] for one in self.tried}
        return {PLAN_KEY: self.best.name, "messages": self.messages, "failed": self.failed, "tried": tried}


async def play(
    kind: TaskKind, human: Human, attacker: Attacker, task: Task, rules: Rules, sample: int = 0
) -> Trajectory:
    """Play one dialogue of an attacker; raises what `Dialogue.play` raises."""
    client = open_attacker(attacker, rules.max_turns)
    return await Dialogue(Assignment(task, sample, 0), client, human, kind, rules).play()


def recovered_in(trajectory: Trajectory, attacker: Attacker, max_turns: int) -> str:
    """Return the program that the human gave away in a dialogue, also in one that ended before its answer."""
    return attacker.gather(Conversation.of(trajectory.messages(None), max_turns))


def recorded_plan(run: Run, rollouts: str) -> str | None:
    """Return the plan that an earlier attempt at these rollouts found, by its log; None if there was none.

    Args:
        rollouts: the id of the artifact.
    """
    for attempt in reversed(run.manifest().attempts):
        log = run.path / LOGS / f"{attempt.id}.jsonl"
        if rollouts in attempt.outputs and log.exists():
            found = next((row[PLAN_KEY] for row in scan_jsonl(log) if isinstance(row.get(PLAN_KEY), str)), None)
            if found is not None:
                return str(found)
    return None


class Search:
    """One search.

    Args:
        rules: of the dialogues; a dialogue has fewer turns where less of the budget is left.
        budget: messages to the human at most.
        seed: of the choices between plans with equal bounds.
    """

    def __init__(
        self, kind: TaskKind, human: Human, tasks: Sequence[Task], rules: Rules, budget: int = BUDGET, seed: int = 0
    ) -> None:
        self._kind, self._human, self._tasks, self._rules = kind, human, tasks, rules
        self._budget, self._random = budget, random.Random(seed)
        self._tried: dict[str, PlanResult] = {}
        self._slots: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._messages = self._dialogues = self._failed = 0

    async def run(self) -> SearchResult:
        """Search until the budget is used up.

        Raises:
            RequestFailed: the human's server failed all dialogues of a round.
            sweet.errors.ServerError: it could not be reached.
        """
        explored = self._budget * EXPLORED if self._budget > self._rules.max_turns else self._budget
        while self._messages < explored:
            await self._round([self._next_plan() for _ in range(AT_ONCE)], math.ceil(explored))
        finalists = sorted(self._tried.values(), key=lambda tried: -tried.score)[:FINALISTS]
        while self._messages < self._budget:
            await self._round([tried.plan for tried in finalists], self._budget)
        tried = sorted(self._tried.values(), key=lambda tried: -tried.score)
        return SearchResult(tried[0].plan, tuple(tried), self._messages, self._failed)

    def _next_plan(self) -> Plan:
        """Put a plan together by the bounds of the choices, as far as they are known; ties are drawn."""
        played = max(1, self._dialogues)

        def bound(slot: str, choice: str) -> float:
            known = self._slots[slot, choice]
            if not known:
                return math.inf
            return sum(known) / len(known) + WIDTH * math.sqrt(math.log(played + 1) / len(known))

        chosen = []
        for slot, choices in SLOTS.items():
            best = max(bound(slot, choice) for choice in choices)
            drawn = self._random.choice([choice for choice in choices if bound(slot, choice) == best])
            self._slots[slot, drawn].append(0.0)  # until it is played, so that a round differs in its plans
            chosen.append(drawn)
        for slot, choice in zip(SLOTS, chosen, strict=True):
            self._slots[slot, choice].pop()
        return Plan(*chosen)

    async def _round(self, plans: Sequence[Plan], until: int) -> None:
        """Play one dialogue of each plan, with at most the turns that the messages up to `until` allow."""
        share = max(1, (until - self._messages) // len(plans))
        rules = replace(self._rules, max_turns=min(self._rules.max_turns, share + 1))
        plans = plans[: until - self._messages]
        first = self._dialogues
        self._dialogues += len(plans)
        games = [
            play(self._kind, self._human, plan, self._tasks[(first + i) % len(self._tasks)], rules, first + i)
            for i, plan in enumerate(plans)
        ]
        played = await asyncio.gather(*games, return_exceptions=True)
        failures = [result for result in played if isinstance(result, BaseException)]
        for failure in failures:
            if not isinstance(failure, RequestFailed) or len(failures) == len(plans):
                raise failure
        self._failed += len(failures)
        self._messages += len(failures)  # at least one message of each, so that a search ends
        for plan, result in zip(plans, played, strict=True):
            if isinstance(result, Trajectory):
                self._note(plan, result, rules.max_turns)

    def _note(self, plan: Plan, trajectory: Trajectory, max_turns: int) -> None:
        self._messages += sum(turn.role == "user" for turn in trajectory.dialogue_history) - 1
        share = share_recovered(trajectory.task.ground_truth, recovered_in(trajectory, plan, max_turns))
        value = share * (LEAK_WEIGHT if trajectory.fault == "leaked" else 1.0)
        self._tried.setdefault(plan.name, PlanResult(plan)).earned.append(value)
        for slot, choice in zip(SLOTS, plan.choices, strict=True):
            self._slots[slot, choice].append(value)
