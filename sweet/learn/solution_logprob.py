"""The log-probability of the reference solution, given what the agent has seen.

    sum_l log pi(s_l | o, marker, s_<l)

in nats, over the tokens of the solution s, with the end of the turn, that an agent writes after a marker, having seen o
and not the training-time information. A reply of the human that says what the solution depends on raises it; a question
that brings nothing new leaves it nearly as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sweet.learn.critic import Reader
from sweet.learn.logprobs import TOKEN_BUDGET, scorer_of, span_logprobs
from sweet.learn.rows import CandidateTurn
from sweet.learn.sequences import TokenSequence
from sweet.learn.tokens import ChatEncoder


class SolutionReader(Reader):
    """Encodes what the agent has seen with the solution after it, which alone is supervised.

    Args:
        max_length: tokens of a sequence at most; early turns are omitted to fit it. None for no limit.
    """

    def __init__(self, tokenizer: Any, max_length: int | None) -> None:
        super().__init__(ChatEncoder(tokenizer), informed=False, protocol="paper", max_length=max_length)
        self._tokenizer = tokenizer

    def solution(self, turn: CandidateTurn) -> TokenSequence | None:
        """Return the sequence; None if it does not fit the maximum length.

        Args:
            turn: what the agent has seen, with one reply: the marker, and the solution from the next line on.
        """
        rows = self.turn(turn)
        if not rows:
            return None
        [row] = rows
        [span] = row.spans
        marker_length = self._marker_length(row.ids[span.start : span.stop], turn.replies[0].text.partition("\n")[0])
        return replace(row, spans=(replace(span, start=span.start + marker_length),))

    def _marker_length(self, ids: Sequence[int], marker: str) -> int:
        """Return the number of ids that are the marker's alone, not those that join its end with the solution."""
        marker_ids = self._tokenizer(marker, add_special_tokens=False)["input_ids"]
        pairs = zip(ids, marker_ids, strict=False)
        return next((n for n, (reply_id, marker_id) in enumerate(pairs) if reply_id != marker_id), len(marker_ids))


class SolutionLogprob:
    """Computes them with one model.

    Args:
        max_length: see `SolutionReader`.
        budget: tokens of one forward pass.
        share: compute prefixes that observations share only once.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_length: int | None = None,
        budget: int = TOKEN_BUDGET,
        share: bool = True,
    ) -> None:
        self._scorer, self._budget = scorer_of(model, share=share), budget
        self.reader = SolutionReader(tokenizer, max_length)

    def values(self, turns: Sequence[CandidateTurn]) -> list[float | None]:
        """Return that of each (`SolutionReader.solution`), in order; None where it does not fit the maximum length."""
        rows = [self.reader.solution(turn) for turn in turns]
        sums = iter(span_logprobs(self._scorer, [row for row in rows if row is not None], self._budget))
        return [None if row is None else float(next(sums)[0][0]) for row in rows]
