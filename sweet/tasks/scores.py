"""What trajectories are worth: a row of scores, what a kind brings to make it, and how its rewards are read.

`sweet eval` opens the scorer of the run's kind, hands it the trajectories and takes their scores as they are known; it
knows nothing of how they come about. Which rates stand for them, the kind says too (`figures`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from sweet.sandbox.tiers import TierChoice
from sweet.sandbox.values import RELATIVE_TOLERANCE
from sweet.tasks.trajectory import Trajectory

ScoreOutcome = Literal["passed", "failed", "error", "timeout", "crash", "no_answer", "invalid"]
"""`passed`: what the kind asks for is there (every test; a page that loads). `error`: every test raised, or the page
did not load. `invalid`: the task's own reference fails, so the answer says nothing."""


class Score(BaseModel):
    """What the answer of one trajectory was worth.

    Attributes:
        id: the trajectory's.
        reward: 0 to 1 (a cosine may be below); None where the task is invalid.
        passed: tests passed, of `total`; 0 of 0 where the kind has no tests.
        upstream_reward: what the published evaluator gives, where both scorers were asked.
        detail: for people: `why`, under `tests` what became of each test, and what else the kind has to tell.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    task_id: str
    reward: float | None
    passed: int = Field(ge=0)
    total: int = Field(ge=0)
    outcome: ScoreOutcome
    upstream_reward: float | None = None
    detail: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """A mean over scores that is told with its interval.

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


@dataclass(frozen=True)
class ScoringRequest:
    """What `sweet eval` asks of a kind's scorer. A kind takes what concerns it (`TaskKind.scorer_options`).

    Attributes:
        run: the run's folder; what a scorer keeps for others to look at (screenshots) lies there.
        say: tells people one line.
    """

    run: Path
    say: Callable[[str], None]
    scorer: Literal["strict", "upstream", "both"] = "strict"
    tolerance: float = RELATIVE_TOLERANCE
    similarity: str | None = None
    sandbox: TierChoice = "auto"
    workers: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"


class TrajectoryScorer(Protocol):
    """Scores the trajectories of one kind.

    Attributes:
        name: what the rewards are by. Rewards under different names are never compared.
        option: how to ask `sweet eval` for it.
        meta: kept with the scores: what decides the rewards.
        environment: kept with the attempt and told with the metrics: by what and where it was scored.
        figures: those of the kind's figures (`TaskKind.figures`) that it gives.
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
    def figures(self) -> Mapping[str, Figure]: ...

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Each trajectory with its score, in their order. Trajectories are taken as they are needed."""
        ...
