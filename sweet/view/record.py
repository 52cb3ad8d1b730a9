"""One trajectory of a run: its row in a table, and all data about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sweet.learn.rows import CandidateRow, Pair
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory


class Summary(NamedTuple):
    """The row of one trajectory in a table.

    Attributes:
        ended: how the dialogue ended (answered, out_of_turns, …).
        outcome: how its answer scored (passed, failed, …); None if it was not scored.
        tokens: sampled by the agent; None if they were not counted.
        fault: what the simulated human did wrong (refusal, …), else the dialogue's fault (deadline, …); empty
            without a fault.
        sample, seed: with the task they identify the dialogue; seed is None for imported dialogues.
        offset, length: position of its line in the rollouts' file, in bytes.
        request: the beginning of what the human asks for, on one line.
    """

    id: str
    task_id: str
    ended: str
    outcome: str | None
    reward: float | None
    passed: int | None
    total: int | None
    turns: int
    tokens: int | None
    seconds: float | None
    fault: str
    sample: int
    seed: int | None
    offset: int
    length: int
    request: str = ""


@dataclass(frozen=True)
class Record:
    """All data about one trajectory, which has the rewards of turns of its score. `ranked` and `pairs` are by turn."""

    trajectory: Trajectory
    score: Score | None = None
    ranked: dict[int, CandidateRow] = field(default_factory=dict)
    pairs: dict[int, list[Pair]] = field(default_factory=dict)

    @property
    def reward(self) -> float | None:
        return self.trajectory.reward if self.score is None else self.score.reward

    def advantage(self, turn: int) -> float | None:
        """Return the advantage that the judge gave to the actual reply of this turn; None if there is none."""
        taken = self.ranked[turn].taken if turn in self.ranked else None
        return None if taken is None else taken.advantage

    @property
    def scale(self) -> float:
        """The largest absolute advantage in the dialogue: the value of a full bar."""
        candidates = [c.advantage for turn in self.ranked.values() for c in (*turn.candidates, turn.taken) if c]
        return max(map(abs, candidates), default=0.0)
