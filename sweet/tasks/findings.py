"""What a check of tasks finds, and the check of any kind of task by its scorer (`TaskKind.check`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.scores import RewardRule, Score, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory, Turn

Problem = Literal["invalid", "flaky", "slow", "trivial", "unnamed", "duplicate", "leak"]
"""`invalid`: the reference or a test fails. `flaky`: the reference gives other values when it runs again. `slow`: it
takes so long that the time limit is near, or exceeded. `trivial`: an answer that does nothing passes. `unnamed`: the
tests use a name that the request does not have. `duplicate`: another task is the same, or has the same reference.
`leak`: the request that the agent reads contains the reference."""


@dataclass(frozen=True)
class Finding:
    """One problem of one task.

    Attributes:
        what: the problem, a clause without a full stop.
        fix: what to change.
        unusable: whether no answer to the task can be scored: `sweet eval` calls it invalid.
    """

    task_id: str
    problem: Problem
    what: str
    fix: str
    unusable: bool = False


Checked = tuple[Task, list[Finding]]
"""A task, and what was found."""


def check_by_scorer(
    scorer: TrajectoryScorer, rewards: RewardRule, tasks: Iterable[Task], repeats: int
) -> Iterator[Checked]:
    """Yield each task with what its scorer says of a missing answer, which is scored `repeats` times.

    A task without a reward is invalid, one whose reward changes is flaky, and one that is solved by nothing is trivial.
    """

    def dialogues() -> Iterator[Trajectory]:
        for task in tasks:
            request = Turn(role="user", content=task.problem_description)
            for repeat in range(repeats):
                name = f"{task.id}-s{repeat}-r0"
                yield Trajectory(id=name, task=task, dialogue_history=(request,), answer=NO_ANSWER, sample=repeat)

    scores: list[Score] = []
    for trajectory, score in scorer.score(dialogues()):
        scores.append(score)
        if len(scores) == repeats:
            yield trajectory.task, list(_findings(trajectory.task, scores, rewards))
            scores = []


def _findings(task: Task, scores: list[Score], rewards: RewardRule) -> Iterator[Finding]:
    first = scores[0]
    if first.reward is None:
        why = str(first.detail.get("why") or "its reference cannot be scored")
        yield Finding(task.id, "invalid", why, "correct the task's reference", unusable=True)
    elif any(score.reward != first.reward for score in scores):
        what = (
            f"the same answer scores {first.reward:g} and {next(s.reward for s in scores if s.reward != first.reward)}"
        )
        yield Finding(task.id, "flaky", what, "make the reference deterministic", unusable=True)
    elif rewards.solved is not None and first.reward >= rewards.solved:
        yield Finding(task.id, "trivial", "a missing answer solves it", "add a test that needs the answer")
