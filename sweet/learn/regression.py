"""Inference with the regression-head critic (`sweet.learn.head`; in arXiv 2503.15478 the ablation for code and the
critic for pages).

There is no reference model; the head's score of a turn is all there is. After a training on preferences its zero point
has no meaning, because only differences were compared, so the advantage of a reply is its score minus the mean score of
the candidates sampled at the same turn: how much better than the agent's usual reply it is. The reply that was actually
given is compared with the same mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sweet.learn.components import Target
from sweet.learn.critic import Reader, ScoredReply, TurnReplies, by_turn
from sweet.learn.logprobs import TOKEN_BUDGET, Scorer, span_values
from sweet.learn.objectives import dialogue_scores
from sweet.learn.sequences import TokenSequence
from sweet.learn.tokens import ChatEncoder
from sweet.tasks.base import ProtocolName
from sweet.tasks.trajectory import Trajectory


class RegressionCritic:
    """Implements `sweet.learn.critic.Critic` with a model that has a regression head.

    Args:
        encoder: encodes dialogues (`sweet.learn.page_encoder` for a critic that sees pages).
        target: what the head has learned.
        max_length: maximum number of tokens of a sequence; None for no limit.
        budget: tokens of one forward pass.
        share: compute prefixes that replies and turns share only once.
    """

    def __init__(
        self,
        model: Any,
        encoder: ChatEncoder,
        *,
        target: Target = "preference",
        protocol: ProtocolName = "paper",
        max_length: int | None = None,
        budget: int = TOKEN_BUDGET,
        share: bool = True,
    ) -> None:
        self.reader = Reader(encoder, informed=True, protocol=protocol, max_length=max_length)
        self.scorer = Scorer(model, share=share)
        self.scorer.computes_logprobs = False
        self.target, self.budget = target, budget

    def judge(self, turns: Sequence[TurnReplies]) -> list[list[ScoredReply]]:
        self.reader.prepare(turns=turns)
        groups = [self.reader.turn(turn) for turn in turns]
        unique = list(dict.fromkeys(row for rows in groups for row in rows))
        scores = {row: float(values[0]) for row, values in zip(unique, self._values(unique), strict=True)}
        scored_replies = []
        for turn, rows in zip(turns, groups, strict=True):
            row_scores = [scores[row] for row in rows]
            sampled = row_scores[: turn.sampled]
            baseline = sum(sampled) / max(len(sampled), 1)
            lengths = [row.spans[0].stop - row.spans[0].start for row in rows]
            scored_replies.append(
                [
                    ScoredReply(score - baseline, size, score=score)
                    for score, size in zip(row_scores, lengths, strict=True)
                ]
            )
        return scored_replies

    def turn_scores(self, dialogues: Sequence[Trajectory], system: str | None) -> list[dict[int, float]]:
        """The score of each turn of the agent, by the turn's index in its dialogue.

        A dialogue is computed once for all its turns. Turns that are dropped because of the length are missing.
        """
        self.reader.prepare(dialogues)
        encoded = [self.reader.dialogue(dialogue, system) for dialogue in dialogues]
        return by_turn(encoded, self._values([row for rows in encoded for row in rows]))

    def score_dialogues(self, dialogues: Sequence[Trajectory], system: str | None) -> list[float | None]:
        """As the training compares dialogues (`sweet.learn.objectives.dialogue_scores`)."""
        return [self._dialogue_score(list(scores.values())) for scores in self.turn_scores(dialogues, system)]

    def _dialogue_score(self, scores: list[float]) -> float | None:
        if not scores:
            return None
        values, owner = torch.tensor(scores), torch.zeros(len(scores), dtype=torch.long)
        return float(dialogue_scores(values, owner, 1, self.target))

    def _values(self, sequences: Sequence[TokenSequence]) -> list[Tensor]:
        return span_values(self.scorer, sequences, self.budget)
