"""From a credit rule's weights of turns to the terms of the tokens of an encoded dialogue.

The ratio of probabilities needs log mu of each token, mu being the model that sampled it. It was recorded with the
dialogue (`Turn.logprobs`), in the order of the sampled ids, and is used where the encoded ids of the turn are these.
Elsewhere (dialogues of other programs, replies that were encoded anew) it is computed with the policy before its first
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from sweet.credit.base import Batch, Credit, Models, SampledReply, TurnLogprobs, Values
from sweet.errors import UsageError
from sweet.learn.components import TokenTerms
from sweet.learn.tokens import Span, TokenSequence
from sweet.tasks.trajectory import Turn
from sweet.units import count


class Recorded:
    """The recorded probabilities of sampled tokens.

    Args:
        names: the dialogues whose tokens are weighted.
    """

    def __init__(self, batch: Batch, models: Models, names: Sequence[str]) -> None:
        self._batch, self._models, self._names = batch, models, names

    def of_turn(self, name: str, span: Span, ids: Sequence[int]) -> tuple[float, ...] | None:
        """Return the log-probabilities of a turn's ids when they were sampled; None if they are not known."""
        turn = self._batch.dialogues[name].dialogue_history[span.turn]
        return recorded_logprobs(turn, ids) or self._computed(name, span.turn, len(ids))

    def _computed(self, name: str, turn: int, size: int) -> tuple[float, ...] | None:
        found = self._missing[name].get(turn)
        return found.tokens if found is not None and len(found.tokens) == size else None

    @cached_property
    def _missing(self) -> dict[str, dict[int, TurnLogprobs]]:
        dialogues = [self._batch.dialogues[name] for name in dict.fromkeys(self._names)]
        return self._models.logprobs("policy", dialogues)


def recorded_logprobs(turn: Turn, ids: Sequence[int]) -> tuple[float, ...] | None:
    """Return the recorded log-probabilities of the ids of a turn, or of its last ones where its thought is not
    supervised; None if other ids were sampled."""
    known = turn.token_ids or ()
    if not ids or turn.logprobs is None or len(turn.logprobs) != len(known) or tuple(ids) != known[-len(ids) :]:
        return None
    return turn.logprobs[-len(ids) :]


def terms_of(sequence: TokenSequence, credit: Credit, recorded: Recorded) -> TokenTerms:
    """Return the terms of a sequence all of whose turns have weights.

    Raises:
        UsageError: weights or probabilities do not fit the tokens of their turn.
    """
    sampled: list[float] = []
    advantages: list[float] = []
    teacher: list[float] = []
    top_ids: list[tuple[int, ...]] = []
    top_logprobs: list[tuple[float, ...]] = []
    for span in sequence.spans:
        ids = sequence.ids[span.start : span.stop]
        known = _sampled(credit, span, ids, recorded)
        if known is None:
            raise _misfit(credit, span, "It is not known how probable its tokens were when they were sampled.")
        sampled += known
        if credit.policy:
            advantages += _by_token(credit, span, len(ids))
        if credit.distil:
            found = credit.distil.get(span.turn)
            if found is None or len(found.tokens) != len(ids):
                raise _misfit(credit, span, f"The teacher's probabilities are not of its {count(len(ids), 'token')}.")
            teacher += found.tokens
            top_ids += found.top_ids
            top_logprobs += found.top_logprobs
    return TokenTerms(tuple(sampled), tuple(advantages), tuple(teacher), tuple(top_ids), tuple(top_logprobs))


def _sampled(credit: Credit, span: Span, ids: Sequence[int], recorded: Recorded) -> Sequence[float] | None:
    if isinstance(credit.of, SampledReply):
        reply = credit.of.reply
        same = reply.logprobs is not None and reply.token_ids == tuple(ids)
        return reply.logprobs if same else None
    assert isinstance(credit.of, str), "only dialogues and sampled replies have weights of tokens"
    return recorded.of_turn(credit.of, span, ids)


def _by_token(credit: Credit, span: Span, size: int) -> Sequence[float]:
    values: Values | None = credit.policy.get(span.turn)
    if isinstance(values, float | int):
        return [float(values)] * size
    if values is None or len(values) != size:
        raise _misfit(credit, span, f"Its advantages are not those of its {count(size, 'token')}.")
    return values


def _misfit(credit: Credit, span: Span, what: str) -> UsageError:
    name = credit.of if isinstance(credit.of, str) else "a sampled reply"
    return UsageError(what, where=f"{name}, turn {span.turn}", fix="correct the credit rule")
