"""IGPO: a turn is worth what it adds to the probability of the reference solution (arXiv 2510.14967).

The probability is that of the policy, which does not see the solution: the geometric mean over the tokens of the
solution as its answer after the dialogue so far. The last turn earns the reward of the dialogue. The form `log` is that
of Delta-Belief (arXiv 2602.12342).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import fmean
from typing import Literal

from pydantic import Field

from sweet.credit.base import Batch, Models, TurnLogprobs, discounted
from sweet.credit.groups import TurnRule, by_dialogue, normalised
from sweet.errors import UsageError
from sweet.hints import option
from sweet.learn.rows import TurnKey


class IGPO(TurnRule):
    """A_t = the sum over k >= t of gamma^(k - t) times the normalised reward of turn k, which is p(y | o_k+1) -
    p(y | o_k), and R at the last turn; p is the policy's mean probability of a token of the solution y."""

    name = "igpo"

    gain: Literal["probability", "log"] = "probability"
    """probability: the difference of the mean probability per token. log: that of the solution's log-probability, in
    nats, at least 0."""
    together: bool = True
    """Normalise gains and outcomes as one set of rewards; otherwise each by themselves."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount by turn."""
    std: bool = True
    """Divide by the standard deviation of the rewards of the group."""

    def of_turns(self, batch: Batch, models: Models) -> Iterator[dict[TurnKey, float]]:
        if batch.rule.solved is None:
            what = "The rule igpo needs answers that solve a task or do not, and those of this kind are degrees."
            raise UsageError(what, where=option("algorithm", self.name), fix="--algorithm infopo")
        groups = batch.groups()
        solution_logprobs = models.solutions([batch.dialogues[name] for names in groups.values() for name in names])
        for names in groups.values():
            gains: dict[TurnKey, float] = {}
            for name in names:
                gains |= {(name, turn): value for turn, value in self.gains(solution_logprobs[name]).items()}
            outcomes = {(name, batch.dialogues[name].agent_turns[-1]): batch.rewards[name] for name in names}
            parts = [gains | outcomes] if self.together else [gains, outcomes]
            rewards = {key: value for part in parts for key, value in normalised(part, std=self.std).items()}
            advantages: dict[TurnKey, float] = {}
            for name, turn_rewards in by_dialogue(dict(sorted(rewards.items()))).items():
                sums = zip(turn_rewards, discounted(list(turn_rewards.values()), self.gamma), strict=True)
                advantages |= {(name, turn): value for turn, value in sums}
            yield advantages

    def gains(self, logprobs: Mapping[int, TurnLogprobs]) -> dict[int, float]:
        """Return what each turn but the last adds, from the log-probabilities of the solution before the turns."""
        log = self.gain == "log"
        values = {turn: sum(row.tokens) if log else math.exp(fmean(row.tokens)) for turn, row in logprobs.items()}
        min_gain = 0.0 if log else -1.0
        return {turn: max(values[after] - values[turn], min_gain) for turn, after in pairwise(values)}
