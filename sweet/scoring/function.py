"""Rewards by a Python function, in the place of the scorer of the kind (`sweet.evaluate(run, reward=function)`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from sweet.errors import UsageError, first_problem
from sweet.hints import option
from sweet.scoring.config import EvalConfig
from sweet.stages.base import function_name, with_function
from sweet.tasks.base import NO_ANSWER, TurnRewards
from sweet.tasks.scores import BY_FUNCTION, SCORER_OPTIONS, RewardRule, Score, Verdict, scored
from sweet.tasks.trajectory import FAULTS, Trajectory

RewardFunction = Callable[[Trajectory], float | tuple[float, TurnRewards] | None]
"""Rewards a dialogue, by a number from -1 to 1; a task is solved at 1. None for a dialogue that cannot be scored, which
then counts in no rate. The answer of a dialogue that ended by a fault is `NO_ANSWER`. With the number it may return the
rewards of turns: `0.5, {1: {"facts": 1.0}, 3: {"facts": 0.0, "cost": -0.1}}`."""


class FunctionEvalConfig(EvalConfig):
    """The configuration of an evaluation by a Python function, as the run records it."""

    scorer: str  # type: ignore[assignment]
    """Name of the function (`sweet.stages.base.function_name`)."""


def config_for(function: RewardFunction, config: EvalConfig) -> FunctionEvalConfig:
    """Return the configuration with the function as its scorer.

    Raises:
        UsageError: the configuration names another scorer, or an option of one.
    """
    named = with_function(function, config, FunctionEvalConfig, "scorer")
    for name in (*SCORER_OPTIONS, "ray"):
        if name in config.model_fields_set and getattr(config, name) is not None:
            what = f"{option(name)} is an option of the kind's scorer, and a function gives the rewards."
            raise UsageError(what, where=option(name), fix=f"omit {name}")
    return named


class FunctionScorer:
    """Scores dialogues one after the other by a function (implements `sweet.tasks.scores.TrajectoryScorer`).

    Args:
        rewards: of the kind.
    """

    option = ""

    def __init__(self, function: RewardFunction, rewards: RewardRule) -> None:
        self._function, self._rewards = function, rewards
        self.name = f"{BY_FUNCTION}{function_name(function)}"
        self.meta: Mapping[str, Any] = {"scorer": self.name}
        self.environment = self.meta
        self.metrics = rewards.metrics()

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Yield each trajectory with its score.

        Raises:
            UsageError: the function returned something else than a number from -1 to 1 or None, or with the number
                wrong rewards of turns.
        """
        for trajectory in trajectories:
            answered = trajectory.outcome not in FAULTS
            rewarded = trajectory if answered else trajectory.model_copy(update={"answer": NO_ANSWER})
            value = self._function(rewarded)
            value, turns = value if isinstance(value, tuple) and len(value) == 2 else (value, {})
            try:
                score = scored(trajectory, replace(self._verdict(trajectory.id, value), turn_rewards=turns))
            except ValidationError as error:
                what = f"The rewards of turns of {trajectory.id} are wrong: {first_problem(error)[1]}."
                raise UsageError(what, where=self.name, fix='numbers by index and name: {1: {"facts": 1.0}}') from error
            yield trajectory, score

    def _verdict(self, dialogue_id: str, value: Any) -> Verdict:
        if value is None:
            return Verdict(None, 0, 0, "invalid", {"why": "the function returned no reward"})
        try:
            reward = float(value)
        except (TypeError, ValueError, OverflowError):
            reward = math.nan
        if not -1 <= reward <= 1:
            what = f"The reward of {dialogue_id} is {value!r:.80}."
            raise UsageError(what, where=self.name, fix="return a number from -1 to 1, or None")
        solved = reward >= (1.0 if self._rewards.solved is None else self._rewards.solved)
        return Verdict(reward, 0, 0, "passed" if solved else "failed")
