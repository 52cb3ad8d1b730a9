"""From a credit rule's weights of turns to the terms of the tokens of an encoded dialogue.

The ratio of probabilities needs log mu of each token, mu being the model that sampled it. It was recorded with the
dialogue (`Turn.logprobs`), in the order of the sampled ids, and is used where the encoded ids of the turn are these.
Elsewhere (dialogues of other programs, replies that were encoded anew) it is computed
with the policy before its first step; a sampled reply is put into its dialogue for that, in the place of the one given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from sweet.credit.base import Batch, Credit, Models, Subject, TurnLogprobs, Values
from sweet.errors import UsageError
from sweet.learn.components import TokenTerms
from sweet.learn.rows import Candidate, Pair
from sweet.learn.sequences import Span, TokenSequence
from sweet.tasks.trajectory import Trajectory, Turn, unprompted
from sweet.units import count


class Recorded:
    """The recorded probabilities of sampled tokens.

    Args:
        subjects: of the examples whose tokens are weighted.
    """

    def __init__(self, batch: Batch, models: Models, subjects: Sequence[Subject]) -> None:
        self._batch, self._models, self._subjects = batch, models, subjects

    def of(self, subject: Subject, span: Span, ids: Sequence[int]) -> tuple[float, ...] | None:
        """Return the log-probabilities of the ids of a turn, or of a reply that stands alone, when they were sampled;
        None if they are not known."""
        name = _name(subject)
        if isinstance(subject, Pair):
            logprobs = recorded_logprobs(subject.chosen, ids)
        else:
            logprobs = recorded_logprobs(self._batch.dialogues[name].dialogue_history[span.turn], ids)
        if logprobs is not None:
            return logprobs
        computed = self._computed.get(name, {}).get(span.turn)
        return computed.tokens if computed is not None and len(computed.tokens) == len(ids) else None

    @cached_property
    def _computed(self) -> dict[str, dict[int, TurnLogprobs]]:
        dialogues: dict[str, Trajectory] = {}
        for subject in self._subjects:
            if not isinstance(subject, Pair):
                dialogues[_name(subject)] = self._batch.dialogues[_name(subject)]
            elif subject.trajectory_id in self._batch.dialogues:
                dialogues[subject.id] = _with_reply(self._batch.dialogues[subject.trajectory_id], subject)
        return self._models.logprobs("policy", list(dialogues.values()))


def _name(subject: Subject) -> str:
    """Return the id of what has weights of tokens: a dialogue, or a reply that stands alone."""
    if isinstance(subject, Pair):
        return subject.id
    assert isinstance(subject, str), "only dialogues and sampled replies have weights of tokens"
    return subject


def _with_reply(dialogue: Trajectory, pair: Pair) -> Trajectory:
    """Return a dialogue up to a turn, at which a sampled reply was given."""
    reply = pair.chosen
    history = unprompted(dialogue.dialogue_history[: pair.turn])
    reply_turn = Turn(
        role="assistant",
        content=reply.text,
        output=reply.text,
        tool_calls=reply.tool_calls,
        thought=reply.thought,
        thought_tokens=reply.thought_tokens,
        token_ids=reply.token_ids,
        prompt_token_ids=pair.prompt_token_ids,
        finish_reason=None if reply.ended else "length",
    )
    return dialogue.model_copy(update={"id": pair.id, "dialogue_history": (*history, reply_turn)})


def recorded_logprobs(turn: Turn | Candidate, ids: Sequence[int]) -> tuple[float, ...] | None:
    """Return the recorded log-probabilities of the ids of a turn, or of its last ones where its thought is not
    supervised; None if other ids were sampled."""
    token_ids = turn.token_ids or ()
    if not ids or turn.logprobs is None or len(turn.logprobs) != len(token_ids) or tuple(ids) != token_ids[-len(ids) :]:
        return None
    return turn.logprobs[-len(ids) :]


def terms_of(sequence: TokenSequence, credit: Credit, recorded: Recorded) -> TokenTerms:
    """Return the terms of a sequence all of whose turns have weights.

    Raises:
        UsageError: weights or probabilities do not fit the tokens of their turn.
    """
    sampler_logprobs: list[float] = []
    advantages: list[float] = []
    teacher_logprobs: list[float] = []
    top_ids: list[tuple[int, ...]] = []
    top_logprobs: list[tuple[float, ...]] = []
    goals: list[float] = []
    for span in sequence.spans:
        ids = sequence.ids[span.start : span.stop]
        turn_logprobs = recorded.of(credit.of, span, ids)
        if turn_logprobs is None:
            raise _misfit(credit, span, "It is not known how probable its tokens were when they were sampled.")
        sampler_logprobs += turn_logprobs
        if credit.policy:
            advantages += _by_token(credit, credit.policy, span, len(ids))
        if credit.goals:
            goal = credit.goals.get(span.turn)
            turn_goal = [goal, *[math.nan] * (len(ids) - 1)] if isinstance(goal, float | int) else None
            goals += turn_goal or _by_token(credit, credit.goals, span, len(ids))
        if credit.distil:
            teacher = credit.distil.get(span.turn)
            if teacher is None or len(teacher.tokens) != len(ids):
                raise _misfit(credit, span, f"The teacher's probabilities are not of its {count(len(ids), 'token')}.")
            teacher_logprobs += teacher.tokens
            top_ids += teacher.top_ids
            top_logprobs += teacher.top_logprobs
    rows = sampler_logprobs, advantages, teacher_logprobs, top_ids, top_logprobs, goals
    return TokenTerms(*map(tuple, rows))  # type: ignore[arg-type]


def _by_token(credit: Credit, weights: Mapping[int, Values], span: Span, size: int) -> Sequence[float]:
    values = weights.get(span.turn)
    if isinstance(values, float | int):
        return [float(values)] * size
    if values is None or len(values) != size:
        raise _misfit(credit, span, f"Its advantages are not those of its {count(size, 'token')}.")
    return values


def _misfit(credit: Credit, span: Span, what: str) -> UsageError:
    return UsageError(what, where=f"{_name(credit.of)}, turn {span.turn}", fix="correct the credit rule")
