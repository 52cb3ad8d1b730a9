"""What trajectories are worth: a row of scores, what a kind brings to make it, and how its rewards are read.

`sweet eval` opens the scorer of the run's kind, hands it the trajectories and takes their scores as they are known; it
knows nothing of how they come about. The kind also names their metrics (`metrics`).
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from sweet.device import Device
from sweet.sandbox.tiers import TierChoice
from sweet.sandbox.values import RELATIVE_TOLERANCE
from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.trajectory import FAULTS, Trajectory

ScoreOutcome = Literal["passed", "failed", "error", "timeout", "crash", "no_answer", "invalid"]
"""`passed`: what the kind asks for is there (every test; a page that loads). `error`: every test raised, or the page
did not load. `invalid`: the task's own reference fails, so the answer says nothing."""


class JudgedTest(BaseModel):
    """What became of one test, for people.

    Attributes:
        expected: the value that the reference gives, or `raised` and the type of its exception.
        got: the value that the answer gave, or what happened instead: `raised` with the exception, `timeout`, `crash`.
    """

    model_config = ConfigDict(frozen=True)

    passed: bool
    expected: str
    got: str


class Score(BaseModel):
    """What the answer of one trajectory was worth.

    Attributes:
        id: the trajectory's.
        reward: 0 to 1 (a cosine may be below); None where the task is invalid.
        passed: tests passed, of `total`; 0 of 0 where the kind has no tests.
        upstream_reward: what the published evaluator gives, where both scorers were asked.
        detail: for people: `why`, under `tests` what became of each test (a JudgedTest), and what else the kind has to
            tell.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    task_id: str
    reward: float | None = Field(allow_inf_nan=False)
    passed: int = Field(ge=0)
    total: int = Field(ge=0)
    outcome: ScoreOutcome
    upstream_reward: float | None = Field(default=None, allow_inf_nan=False)
    detail: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """A mean over scores, reported with its confidence interval.

    Attributes:
        value: a score's part in it; None where it has none.
        low, high: between which values lie.
    """

    value: Callable[[Score], float | None]
    low: float = 0.0
    high: float = 1.0


def reward(score: Score) -> float | None:
    return score.reward


def solved(score: Score) -> float | None:
    """1 where every test passed, else 0."""
    return None if score.reward is None else float(score.reward >= 1)


METRICS: Mapping[str, Metric] = {"success_rate": Metric(solved), "tests_passed": Metric(reward)}
"""The metrics of a kind whose answers are judged by tests."""

_FORMER_NAMES = {"Figure": "Metric", "FIGURES": "METRICS"}


def __getattr__(name: str) -> Any:
    """Return what plug-ins know by a former name."""
    if name not in _FORMER_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"sweet.tasks.scores.{name} is now {_FORMER_NAMES[name]}", DeprecationWarning, stacklevel=2)
    return globals()[_FORMER_NAMES[name]]


@dataclass(frozen=True)
class RewardRule:
    """How a kind's rewards are read by who learns from them.

    Attributes:
        solved: the reward of a dialogue that solved its task; None where a reward is a degree and no task is ever
            solved.
        margin: the least difference of the rewards of a preference, where nobody asks for another.

    With `solved`, the first of a task's solved dialogues is preferred to every worse one, and rejection fine-tuning
    keeps the solved ones. Without, every two dialogues whose rewards differ by the margin make a preference, and
    rejection fine-tuning keeps each task's best one, where it is better than another.
    """

    solved: float | None = 1.0
    margin: float = 0.0

    def worth(self, reward: float) -> float:
        """What a dialogue counts where the best of several is taken: 1 if solved else 0, or the reward itself."""
        return reward if self.solved is None else float(reward >= self.solved)


SCORER_OPTIONS = ("scorer", "tolerance", "similarity")
"""Options of `sweet eval` that decide rewards, of which a kind's scorer takes those that concern it."""


@dataclass(frozen=True)
class ScoringRequest:
    """What `sweet eval` asks of a kind's scorer. A kind takes what concerns it (`TaskKind.scorer_options`).

    Attributes:
        run: the run's folder; what a scorer keeps for others to look at (screenshots) lies there.
        say: tells people one line.
        cores: of this machine, for the scorer; without it all that this process may use.
        ray: the Ray cluster to work on, for a kind whose scorer spreads its work itself (`TaskKind.spreads`).
    """

    run: Path
    say: Callable[[str], None]
    scorer: Literal["strict", "upstream", "both"] = "strict"
    tolerance: float = RELATIVE_TOLERANCE
    similarity: str | None = None
    sandbox: TierChoice = "auto"
    workers: int | None = None
    device: Device = "auto"
    cores: int | None = None
    ray: str | None = None


class TrajectoryScorer(Protocol):
    """Scores the trajectories of one kind.

    Attributes:
        name: what the rewards are by. Rewards under different names are never compared.
        option: how to ask `sweet eval` for it.
        meta: kept with the scores: what decides the rewards.
        environment: kept with the attempt and told with the metrics: by what and where it was scored.
        metrics: those of the kind's metrics (`TaskKind.metrics`) that it computes.
    """

    @property
    def name(self) -> str: ...
    @property
    def option(self) -> str: ...
    @property
    def meta(self) -> Mapping[str, Any]: ...
    @property
    def environment(self) -> Mapping[str, Any]: ...
    @property
    def metrics(self) -> Mapping[str, Metric]: ...

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Each trajectory with its score, in their order. Trajectories are taken as they are needed."""
        ...


@dataclass(frozen=True)
class Verdict:
    """What an answer is worth. `reward` is None where the task is invalid; `passed` counts of `total` tests."""

    reward: float | None
    passed: int
    total: int
    outcome: ScoreOutcome
    detail: dict[str, Any] = field(default_factory=dict)


def delivered(trajectory: Trajectory) -> tuple[Task, str]:
    """What a dialogue delivered. One that ended by a fault (of a server, the clock, the context) delivered nothing."""
    return trajectory.task, NO_ANSWER if trajectory.outcome in FAULTS else trajectory.answer


def scored(trajectory: Trajectory, verdict: Verdict, upstream_reward: float | None = None) -> Score:
    """The row of a trajectory whose answer got this verdict."""
    detail = verdict.detail
    if trajectory.outcome in FAULTS and verdict.outcome != "invalid":
        detail = {"why": f"the dialogue ended by a fault: {trajectory.outcome}", "fault": trajectory.outcome}
    return Score(
        id=trajectory.id,
        task_id=trajectory.task_id,
        reward=verdict.reward,
        passed=verdict.passed,
        total=verdict.total,
        outcome=verdict.outcome,
        upstream_reward=upstream_reward,
        detail=detail,
    )


class AnswerScorer(ABC):
    """The usual scorer of a kind: looks at nothing but a task and the answer (implements TrajectoryScorer).

    A kind derives its own, and says what answers are worth (`verdicts`).

    Args:
        name: what the rewards are by; another version of the rules takes another name.
        meta: what else decides the rewards.
    """

    option = ""
    metrics = METRICS

    def __init__(self, name: str, meta: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.meta: Mapping[str, Any] = {"scorer": name, **(meta or {})}
        self.environment = self.meta

    @abstractmethod
    def verdicts(self, answers: Iterable[tuple[Task, str]]) -> Iterator[Verdict]:
        """What each answer to a task is worth, in their order; `NO_ANSWER` where nothing was delivered."""

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Each trajectory with its score, in their order; trajectories may be taken ahead, and by other threads."""
        waiting: deque[Trajectory] = deque()

        def answers() -> Iterator[tuple[Task, str]]:
            for trajectory in trajectories:
                waiting.append(trajectory)
                yield delivered(trajectory)

        for verdict in self.verdicts(answers()):
            if not waiting:
                raise ValueError("there are more verdicts than answers")
            if not isinstance(verdict, Verdict):
                raise TypeError(f"verdicts gave {type(verdict).__name__} in place of Verdict")
            trajectory = waiting.popleft()
            yield trajectory, scored(trajectory, verdict)


def tally(tests: Mapping[str, JudgedTest]) -> Verdict:
    """The verdict on an answer by its tests. The reward is the share that passed.

    Raises:
        ValueError: there is no test.
    """
    if not tests:
        raise ValueError("an answer cannot be judged by no test")
    passed = sum(test.passed for test in tests.values())
    detail: dict[str, Any] = {"tests": {name: test.model_dump() for name, test in tests.items()}}
    failed = next((test for test in tests.values() if not test.passed), None)
    if failed is not None:
        detail["why"] = f"got {failed.got}, expected {failed.expected}"
    outcome: ScoreOutcome = "failed" if failed else "passed"
    return Verdict(passed / len(tests), passed, len(tests), outcome, detail)


def nothing_delivered(task: Task) -> Verdict:
    """The verdict where there is no answer."""
    return Verdict(0.0, 0, len(task.test_cases), "no_answer", {"why": "no answer was delivered"})
