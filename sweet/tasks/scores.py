"""The scores of trajectories: their rows, the interface of scorers, and how rewards are interpreted.

`sweet eval` opens the scorer of the run's kind, passes it the trajectories and receives their scores one by one; how
they are computed is up to the kind. The kind also names their metrics (`TaskKind.metrics`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from operator import not_
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from sweet.device import Device
from sweet.errors import SweetError
from sweet.gathering import Gathering
from sweet.render.page import Renderer
from sweet.sandbox.program import TierChoice
from sweet.sandbox.values import RELATIVE_TOLERANCE
from sweet.tasks.base import NO_ANSWER, Task, TurnRewards, is_none
from sweet.tasks.trajectory import FAULTS, Trajectory

ScoreOutcome = Literal["passed", "failed", "error", "timeout", "crash", "no_answer", "invalid"]
"""`passed`: the answer meets what the kind requires (every test passes; the page loads). `error`: every test raised, or
the page did not load. `invalid`: the task's own reference fails, so that the answer cannot be scored."""


class JudgedTest(BaseModel):
    """The result of one test, as text for display.

    Attributes:
        expected: the value that the reference returns, or `raised` and the type of its exception.
        got: the value that the answer returned, or else `raised` with the exception, `timeout` or `crash`.
    """

    model_config = ConfigDict(frozen=True)

    passed: bool
    expected: str
    got: str


class Score(BaseModel):
    """The score of one trajectory's answer.

    Attributes:
        id: the id of the trajectory.
        reward: 0 to 1 (a cosine may be negative); None if the task is invalid.
        passed: number of passed tests, of `total`; 0 of 0 if the kind has no tests.
        upstream_reward: the reward by the published evaluator, if both scorers were asked for.
        human: the human of the dialogue, where it names one (`Trajectory.human`); absent otherwise.
        session: of a further branch of a program's session, its first row (`Trajectory.session`); absent otherwise.
        turn_rewards: rewards of the agent's turns; in a file also those that the dialogue has. Absent without any.
        detail: for display: `why`, the result of each test under `tests` (a JudgedTest), and others that the kind adds.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    task_id: str
    reward: float | None = Field(allow_inf_nan=False)
    passed: int = Field(ge=0)
    total: int = Field(ge=0)
    outcome: ScoreOutcome
    upstream_reward: float | None = Field(default=None, allow_inf_nan=False)
    human: str | None = Field(default=None, exclude_if=is_none)
    session: str | None = Field(default=None, exclude_if=is_none)
    turn_rewards: TurnRewards = Field(default={}, exclude_if=not_)
    detail: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """A mean over scores, reported with its confidence interval.

    Attributes:
        value: returns the value of one score; None leaves the score out of the mean.
        low, high: the bounds of the values.
    """

    value: Callable[[Score], float | None]
    low: float = 0.0
    high: float = 1.0


def reward(score: Score) -> float | None:
    return score.reward


def solved(score: Score) -> float | None:
    """Return 1 if every test passed, else 0."""
    return None if score.reward is None else float(score.reward >= 1)


def share_passed(score: Score) -> float | None:
    """Return the share of the tests that passed, or the reward where there are none."""
    return score.passed / score.total if score.reward is not None and score.total else score.reward


METRICS = {"success_rate": Metric(solved), "tests_passed": Metric(reward)}
"""The metrics of a kind whose answers are judged by tests: the reward is the share that passed."""
ALL_OR_NOTHING = METRICS | {"tests_passed": Metric(share_passed)}
"""The metrics of a kind whose reward is 0 unless all tests passed."""


@dataclass(frozen=True)
class RewardRule:
    """How trainings interpret the rewards of a kind.

    Attributes:
        solved: the least reward of a dialogue that solved its task; None if rewards are degrees and no task is ever
            solved.
        margin: the default for the least difference of the rewards in a preference.

    With `solved`, the first of a task's solved dialogues is preferred to every worse one, and rejection fine-tuning
    keeps the solved ones. Without it, every two dialogues whose rewards differ by the margin form a preference, and
    rejection fine-tuning keeps the best dialogue of each task whose rewards differ.
    """

    solved: float | None = 1.0
    margin: float = 0.0

    def worth(self, reward: float) -> float:
        """Return a dialogue's value when the best of several is chosen: 1 if solved else 0, or the reward itself."""
        return reward if self.solved is None else float(reward >= self.solved)

    def metrics(self) -> Mapping[str, Metric]:
        """Return the metrics of rewards from -1 to 1 that a function of the user gives."""
        success = Metric(lambda score: None if score.reward is None else self.worth(score.reward))
        return {**({} if self.solved is None else {"success_rate": success}), "reward": Metric(reward, low=-1.0)}


BY_FUNCTION = "function "
"""The beginning of the name of a function of the user as a scorer."""

SCORER_OPTIONS = ("scorer", "tolerance", "similarity", "window", "pictures")
"""Options of `sweet eval` that determine rewards; each kind's scorer accepts some of them."""


@dataclass(frozen=True)
class ScoringRequest:
    """The options with which `sweet eval` opens a scorer. A kind uses those in `TaskKind.scorer_options`.

    Attributes:
        run: the run's folder, where a scorer may store files for display (screenshots).
        say: called with each line of text for the user.
        cores: cores of this machine that the scorer may use; None means all that this process may use.
        window, pictures: how pages are rendered (`sweet.render.window`); None is the default. `pictures` is
            `placeholder`, or `photo@DIGEST`.
        renderer: renders pages, by these settings and for any event loop; None lets a scorer open browsers of its own.
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
    window: str | None = None
    pictures: str | None = None
    renderer: Renderer | None = None


class TrajectoryScorer(Protocol):
    """Scores the trajectories of one kind.

    Attributes:
        name: identifies the rules by which rewards are computed. Rewards under different names are never compared.
        option: the option of `sweet eval` that selects the scorer.
        meta: everything that determines the rewards; recorded with the scores.
        environment: the tools and machines used; recorded with the attempt and reported with the metrics.
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
        """Yield each trajectory with its score, in their order. Trajectories are consumed as they are needed."""
        ...


AsyncScorer = Gathering[Trajectory, Score]
"""An open scorer, for the tasks of one event loop, which scores at once what many of them ask for."""


@asynccontextmanager
async def for_event_loop(opened: AbstractContextManager[TrajectoryScorer]) -> AsyncIterator[AsyncScorer]:
    """Open a scorer for the tasks of an event loop, for the duration of the context.

    Raises:
        SweetError: something that the scorer needs is missing.
    """
    # Opening, scoring and closing block, and some scorers start an event loop of their own.
    scorer = await asyncio.to_thread(opened.__enter__)

    async def scores(trajectories: Sequence[Trajectory]) -> list[Score]:
        return await asyncio.to_thread(lambda: [score for _, score in scorer.score(iter(trajectories))])

    gathering = Gathering(scores)
    try:
        yield gathering
    finally:
        await gathering.aclose()
        await asyncio.to_thread(opened.__exit__, None, None, None)


@dataclass(frozen=True)
class Verdict:
    """The result of scoring one answer: `reward` is None if the task is invalid; `passed` of `total` tests passed."""

    reward: float | None
    passed: int
    total: int
    outcome: ScoreOutcome
    detail: dict[str, Any] = field(default_factory=dict)
    turn_rewards: TurnRewards = field(default_factory=dict)


def delivered(trajectory: Trajectory) -> tuple[Task, str]:
    """Return the task and the answer of a dialogue. One that ended by a fault counts as having no answer."""
    return trajectory.task, NO_ANSWER if trajectory.outcome in FAULTS else trajectory.answer


def scored(trajectory: Trajectory, verdict: Verdict, upstream_reward: float | None = None) -> Score:
    """Return the row of a trajectory whose answer received this verdict."""
    detail = verdict.detail
    if trajectory.outcome in FAULTS and verdict.outcome != "invalid":
        why = f"the dialogue ended by a fault: {trajectory.outcome}"
        detail = detail | {"why": why, "fault": trajectory.outcome}
    return Score(
        id=trajectory.id,
        task_id=trajectory.task_id,
        reward=verdict.reward,
        passed=verdict.passed,
        total=verdict.total,
        outcome=verdict.outcome,
        upstream_reward=upstream_reward,
        turn_rewards=verdict.turn_rewards,
        detail=detail,
    )


def with_turn_rewards(trajectory: Trajectory, score: Score) -> Trajectory:
    """Return a dialogue with the rewards that its score has for its turns.

    Raises:
        SweetError: the score rewards a turn that is not the agent's.
    """
    try:
        return trajectory.with_rewards(score.turn_rewards)
    except ValueError as error:
        fix = "indices into dialogue_history of the agent's turns"
        raise SweetError(f"The score has turn_rewards that do not fit: {error}.", where=score.id, fix=fix) from error


def with_dialogue(score: Score, trajectory: Trajectory) -> Score:
    """Return the row to write: the score of a trajectory with its human, its session and the rewards of its turns.

    Raises:
        SweetError: the score rewards a turn that is not the agent's.
    """
    rewarded = with_turn_rewards(trajectory, score)
    named = {"human": trajectory.human, "session": trajectory.session}
    return score.model_copy(update={**named, "turn_rewards": rewarded.turn_rewards})


def given_score(trajectory: Trajectory, reward: float, rule: RewardRule) -> Score:
    """Return the score of a dialogue by a reward that was given with it. The number of passed tests is known if the
    reward is a share of the task's tests."""
    total = len(trajectory.task.test_cases)
    passed = round(reward * total)
    if abs(reward * total - passed) > 1e-6 or not 0 <= passed <= total:
        passed = total = 0
    delivered = trajectory.answer != NO_ANSWER
    solved = delivered if rule.solved is None else reward >= rule.solved
    unsolved: ScoreOutcome = "failed" if delivered else "no_answer"
    return Score(
        id=trajectory.id,
        task_id=trajectory.task_id,
        reward=reward,
        passed=passed,
        total=total,
        session=trajectory.session,
        outcome="passed" if solved else unsolved,
        turn_rewards=trajectory.turn_rewards,
    )


class _NamedScorer:
    """A scorer without options, which implements TrajectoryScorer.

    Args:
        name: identifies the rules by which rewards are computed; other rules require another name.
        meta: whatever else determines the rewards.
    """

    option = ""
    metrics: Mapping[str, Metric] = METRICS

    def __init__(self, name: str, meta: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.meta: Mapping[str, Any] = {"scorer": name, **(meta or {})}
        self.environment = self.meta


class DialogueScorer(_NamedScorer, ABC):
    """The base class of scorers that judge a dialogue by all that was said and done in it.

    A kind derives a class that implements `verdict`.
    """

    @abstractmethod
    def verdict(self, trajectory: Trajectory) -> Verdict:
        """Return the verdict on a dialogue that was not ended by a fault."""

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Yield each trajectory with its score, in their order."""
        for trajectory in trajectories:
            verdict = nothing_delivered(trajectory.task) if trajectory.outcome in FAULTS else self.verdict(trajectory)
            if not isinstance(verdict, Verdict):
                raise TypeError(f"verdict returned {type(verdict).__name__} instead of Verdict")
            yield trajectory, scored(trajectory, verdict)


class AnswerScorer(_NamedScorer, ABC):
    """The usual base class of scorers: depends only on the task and the answer.

    A kind derives a class that implements `verdicts`.
    """

    @abstractmethod
    def verdicts(self, answers: Iterable[tuple[Task, str]]) -> Iterator[Verdict]:
        """Yield the verdict on each answer to a task, in their order. An answer that is missing is `NO_ANSWER`."""

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Yield each trajectory with its score, in their order. Trajectories may be read ahead, by other threads."""
        waiting: deque[Trajectory] = deque()

        def answers() -> Iterator[tuple[Task, str]]:
            for trajectory in trajectories:
                waiting.append(trajectory)
                yield delivered(trajectory)

        for verdict in self.verdicts(answers()):
            if not waiting:
                raise ValueError("there are more verdicts than answers")
            if not isinstance(verdict, Verdict):
                raise TypeError(f"verdicts yielded {type(verdict).__name__} instead of Verdict")
            trajectory = waiting.popleft()
            yield trajectory, scored(trajectory, verdict)


def tally(tests: Mapping[str, JudgedTest]) -> Verdict:
    """Return the verdict on an answer by its tests. The reward is the share that passed.

    Raises:
        ValueError: `tests` is empty.
    """
    if not tests:
        raise ValueError("an answer cannot be judged without tests")
    passed = sum(test.passed for test in tests.values())
    outcome: ScoreOutcome = "passed" if passed == len(tests) else "failed"
    detail = tests_detail({name: test.model_dump() for name, test in tests.items()})
    return Verdict(passed / len(tests), passed, len(tests), outcome, detail)


def tests_detail(tests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the detail of a score by tests with the fields of `JudgedTest`: the tests, and why the first failed."""
    detail: dict[str, Any] = {"tests": tests}
    failed = next((test for test in tests.values() if not test["passed"]), None)
    if failed is not None:
        detail["why"] = f"got {failed['got']}, expected {failed['expected']}"
    return detail


def nothing_delivered(task: Task) -> Verdict:
    """Return the verdict for a missing answer."""
    return Verdict(0.0, 0, len(task.test_cases), "no_answer", {"why": "no answer was delivered"})


UPSTREAM_METRICS = {
    "upstream_success_rate": Metric(
        lambda score: None if score.upstream_reward is None else float(score.upstream_reward >= 1)
    ),
    "upstream_tests_passed": Metric(lambda score: score.upstream_reward),
}
