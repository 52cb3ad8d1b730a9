"""The dialogues of one step: played at once, recorded as they finish, and never played twice.

A step has G dialogues on each of B tasks. The tasks are dealt from an order that is drawn for each pass over them, so a
step is known by its number and the seed. A dialogue is named by (task, sample, seed) as everywhere; its sample counts
on from step to step. Its row in the rollouts is that of any dialogue, with the step and the version of the weights that
sampled each of the agent's turns. A row that is there already (after a crash) is used instead of playing the dialogue,
and a dialogue that was under way goes on at its turn (sweet.rollouts.steps).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from itertools import count as numbers
from typing import Any, Literal

from sweet.gathering import run_all
from sweet.humans.base import Human
from sweet.llm.base import ChatClient, RequestFailed
from sweet.online.config import TrainOnlineConfig
from sweet.rollouts.assignments import PlannedHumans
from sweet.rollouts.dialogue import Assignment, DialogueStopped
from sweet.rollouts.runner import DialoguePlayer
from sweet.rollouts.steps import Steps
from sweet.stages.base import Progress
from sweet.stages.failures import are_too_many
from sweet.tasks.base import Task
from sweet.tasks.kind import system_prompt
from sweet.tasks.trajectory import Trajectory
from sweet.units import count

TRIES = 2
"""How often a dialogue that fails is tried; it goes on at its turn."""


def assignments_of_step(
    tasks: Sequence[Task], step: int, size: int, group: int, seed: int, humans: PlannedHumans
) -> list[Assignment]:
    """Return the dialogues of a step, those of a task together.

    Args:
        step: number of the step, from 1.
        size: tasks of a step; with fewer tasks than that a step has one more than once only in different passes.
    """
    occurrences: Counter[str] = Counter()
    assignments: list[Assignment] = []
    for number in range((step - 1) * size, step * size):
        order = list(range(len(tasks)))
        random.Random(f"{seed}/{number // len(tasks)}").shuffle(order)
        place = order[number % len(tasks)]
        task = tasks[place]
        first = ((step - 1) * size + occurrences[task.id]) * group
        occurrences[task.id] += 1
        assignments += [Assignment(task, first + k, seed, humans.name_of(place, first + k)) for k in range(group)]
    return assignments


def branched(assignment: Assignment, dialogues: Mapping[str, Trajectory], size: int, group: int) -> Assignment:
    """Return a dialogue as a branch of the one at whose place its tree begins, from a turn that is drawn at random.

    Args:
        dialogues: that have ended, by id; without that one the dialogue is played from its beginning.
        size: dialogues of a tree, in a group of `group` dialogues.
    """
    sample_in_group = assignment.sample % group
    root = replace(assignment, sample=assignment.sample - sample_in_group % size)
    if (dialogue := dialogues.get(root.id)) is None or not dialogue.agent_turns:
        return assignment
    turn = random.Random(assignment.id).choice(dialogue.agent_turns[1:] or dialogue.agent_turns)
    return replace(assignment, human=dialogue.human, branch=(dialogue, turn))


@dataclass(frozen=True)
class PlayedStep:
    """The dialogues of a step that finished, in the order of their assignments, each with its agent's system prompt.

    Attributes:
        failed: dialogues that did not finish.
        versions: of the weights that sampled the agent's turns, of all dialogues.
    """

    step: int
    dialogues: list[Trajectory]
    failed: int
    versions: list[int]

    def __add__(self, other: PlayedStep) -> PlayedStep:
        dialogues, versions = self.dialogues + other.dialogues, self.versions + other.versions
        return PlayedStep(self.step, dialogues, self.failed + other.failed, versions)


@dataclass(kw_only=True)
class StepPlayer(DialoguePlayer):
    """Plays the dialogues of steps; those of several steps may be under way at once.

    Attributes:
        human: of all dialogues, or one by each name that assignments have.
        recorded: the rows that are in the file already, by the id of their dialogue.
        bar: shows the finished dialogues.
    """

    config: TrainOnlineConfig
    agent: ChatClient
    human: Mapping[str | None, Human]
    bar: Progress
    recorded: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.config.concurrency)

    async def play(self, step: int, assignments: Sequence[Assignment]) -> PlayedStep:
        """Play the dialogues of a step that are not recorded.

        Raises:
            TooManyFailures: too many of them failed.
            ServerError: a server could not be reached.
            Interrupted: the limit of the cost is reached; the dialogues that had ended are recorded.
        """
        results = await run_all(self._rows(step, assignment) for assignment in assignments)
        if missing := results.count("stopped"):
            raise self.budget.stopped(f"Dialogues of step {step}: {len(results) - missing:,}; missing: {missing:,}.")
        rows = [row for played in results if isinstance(played, list) for row in played]
        failed = results.count(None)
        if are_too_many(failed, len(results), self.config.fail_on_error):
            what = f"{failed} of the {count(len(results), 'dialogue')} of step {step}"
            raise self.failures.too_many(what, self.log.path)
        trajectories = [Trajectory.model_validate(row) for row in rows]
        system = {"agent_system": system_prompt(self.kind, self.config.max_turns)}
        dialogues = [t if t.agent_system is not None else t.model_copy(update=system) for t in trajectories]
        versions = [version for row in rows for version in row.get("versions", ())]
        return PlayedStep(step, dialogues, failed, versions)

    async def _rows(self, step: int, assignment: Assignment) -> list[dict[str, Any]] | Literal["stopped"] | None:
        """Return the rows of a dialogue; None if it failed, "stopped" if it was ended by the limit of the cost."""
        rows: list[dict[str, Any]] | None = self._take_recorded(assignment.id)
        if not rows:
            async with self._places:
                try:
                    rows = await self._play_dialogue(step, assignment)
                except DialogueStopped:
                    return "stopped"
        self.bar.advance()
        return rows

    def _take_recorded(self, name: str) -> list[dict[str, Any]]:
        """Take the rows of a dialogue that are recorded: its own, and those of the branches of its session."""
        names = chain([name], (f"{name}~{number}" for number in numbers(1)))
        return list(iter(lambda: self.recorded.pop(next(names), None), None))

    async def _play_dialogue(self, step: int, assignment: Assignment) -> list[dict[str, Any]] | None:
        steps, is_over = Steps(), self.budget.is_spent
        failure: RequestFailed | str = ""
        for _ in range(TRIES):
            steps = Steps(steps.recorded)
            rows = await self.play_one(assignment, self.agent, self.human, is_over=is_over, steps=steps, step=step)
            if isinstance(rows, list):
                return rows
            failure = rows
        self.failures.add(failure)
        return None
