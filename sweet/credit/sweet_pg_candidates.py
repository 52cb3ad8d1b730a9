"""SWEET's candidates in a policy gradient: all replies that were sampled at a turn, weighed by the critic's advantages.

Where `sweet` makes pairs of the best and the worst candidates, every candidate counts here by how far it is above or
below the mean of its turn. The candidates are those of `sweet rank`, by whatever judge.
"""

from __future__ import annotations

from sweet.credit.base import Batch, Credit, Models, SampledReply, nothing_to_learn
from sweet.credit.clipped import ClippedRule, normalised


class SweetPGCandidates(ClippedRule):
    """A_k = (A(o_t, a_k, c) - mean of the turn's candidates) / (their standard deviation + epsilon), for each token of
    candidate k."""

    name = "sweet-pg-candidates"
    reads = "candidates"

    std: bool = True
    """Divide by the standard deviation of the turn's candidates."""

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        credits: list[Credit] = []
        for row in batch.candidates:
            values = {number: candidate.advantage for number, candidate in enumerate(row.candidates)}
            if len(set(values.values())) > 1:
                found = normalised(values, std=self.std)
                credits += [Credit(SampledReply(row, row.candidates[k]), policy={row.turn: found[k]}) for k in values]
        if not credits:
            raise nothing_to_learn("The candidates of each turn have equal advantages", batch)
        return credits
