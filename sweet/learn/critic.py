"""Critics at work: what they say of replies to an observation and of whole dialogues.

A `Critic` is one of two, and nobody else needs to know which: `AdvantageCritic` measures equation (3), and
`sweet.learn.regression` has the one with a regression head. Both see dialogues through a `Reader`.

In equation (3) critic and reference read the same ids, the training-time information c included unless the critic was
trained without it. Recipe `upstream` computes what the published ranking computes: the critic's mean runs over the
header of the turn and leaves out the end-of-turn token, the reference is the sampler's own mean log-probability,
without c; where the sampler told none, the base model's without c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from sweet.errors import UsageError
from sweet.hints import Hint, option, stage
from sweet.learn.logprobs import TOKEN_BUDGET, Scorer, group_logprobs, span_logprobs
from sweet.learn.tokens import ChatEncoder, ReplyText, TokenSequence, TooLong
from sweet.tasks.base import Message, Recipe
from sweet.tasks.trajectory import Trajectory


@dataclass(frozen=True)
class TurnReplies:
    """Replies to one observation.

    Attributes:
        name: for errors.
        turn: index of the turn in its dialogue's history.
        hidden: the training-time information c of the task.
        sampler: mean log-probability of each reply under the model that sampled it, where it told.
        drawn: how many of the replies, from the first on, the agent was asked for here, all where not told; the others
            were given on another occasion.
    """

    name: str
    turn: int
    observation: Sequence[Message]
    hidden: str
    replies: Sequence[ReplyText]
    sampler: Sequence[float | None]
    sampled: int | None = None


@dataclass(frozen=True)
class ScoredReply:
    """What a critic thinks of one reply.

    Attributes:
        advantage: how much better than usual it is, by this critic's own measure; 0 is as good as usual.
        tokens: how many tokens the critic saw as the reply.
        logprob, reference: mean log-probabilities a token, whose difference is the advantage of equation (3).
        score: what a regression head says.
    """

    advantage: float
    tokens: int
    logprob: float | None = None
    reference: float | None = None
    score: float | None = None


class Critic(Protocol):
    """A trained critic: what ranks replies and dialogues."""

    reader: Reader

    def judge(self, turns: Sequence[TurnReplies]) -> list[list[ScoredReply]]:
        """A verdict for each reply of each turn, in order; none for a turn that is too long to be read. Equal replies
        to one observation are computed once."""

    def score_dialogues(self, dialogues: Sequence[Trajectory], system: str | None) -> list[float | None]:
        """How good each dialogue is as a whole; to be compared between dialogues of one task. None for one that is too
        long to be read."""


class Reader:
    """Encodes what a critic is shown.

    Attributes:
        dropped: early turns that were left out so far to make it fit, c told.

    Args:
        informed: c is told (False for the variant `no-info`).
    """

    def __init__(self, encoder: ChatEncoder, *, informed: bool, recipe: Recipe, max_length: int | None) -> None:
        self.encoder = encoder
        self.informed, self.recipe, self.max_length = informed, recipe, max_length
        self.dropped = 0

    def prepare(self, dialogues: Sequence[Trajectory] = (), turns: Sequence[TurnReplies] = ()) -> None:
        """Told beforehand what will be encoded, to prepare together what it needs."""
        texts = [t.dialogue_history[i].said for t in dialogues for i in t.agent_turns]
        texts += [message.content for turn in turns for message in turn.observation if message.role == "assistant"]
        texts += [reply.text for turn in turns for reply in turn.replies]
        self.encoder.prepare(texts, [t.task.hidden for t in dialogues] + [turn.hidden for turn in turns])

    def dialogue(
        self, trajectory: Trajectory, system: str | None, *, without_hidden: bool = False
    ) -> Sequence[TokenSequence]:
        """The sequences of a dialogue, none where its last turn does not fit; `bare` leaves c out."""
        try:
            encoded = self.encoder.dialogue(
                trajectory,
                system,
                hidden=trajectory.task.hidden if self.informed and not without_hidden else None,
                recipe=self.recipe,
                max_length=self.max_length,
            )
        except TooLong:
            return ()
        self.dropped += 0 if without_hidden else encoded.dropped
        return encoded.sequences

    def turn(self, turn: TurnReplies, *, without_hidden: bool = False) -> list[TokenSequence]:
        """One sequence for each reply, none where the turn does not fit; `bare` leaves c out."""
        try:
            rows, dropped = self.encoder.turn(
                turn.observation,
                turn.replies,
                turn=turn.turn,
                name=turn.name,
                hidden=turn.hidden if self.informed and not without_hidden else None,
                recipe=self.recipe,
                max_length=self.max_length,
            )
        except TooLong:
            return []
        self.dropped += 0 if without_hidden else dropped
        return rows


class AdvantageCritic:
    """Implements `Critic` with a trained critic and the frozen model it started from, by equation (3).

    Args:
        model, reference: causal models of the same vocabulary.
        tokenizer: the critic's.
        share: compute once what replies and turns share.
        informed: c is told (False for the variant `no-info`).
        blind_reference: c is kept from the reference, as recipe `upstream` does anyway: with the same model twice the
            advantage is how much likelier c makes a reply.
    """

    def __init__(
        self,
        model: Any,
        reference: Any,
        tokenizer: Any,
        *,
        informed: bool = True,
        reference_without_hidden: bool = False,
        recipe: Recipe = "paper",
        max_length: int | None = None,
        budget: int = TOKEN_BUDGET,
        share: bool = True,
    ) -> None:
        self.reader = Reader(ChatEncoder(tokenizer), informed=informed, recipe=recipe, max_length=max_length)
        self.critic, self.reference = Scorer(model, share=share), Scorer(reference, share=share)
        self.recipe, self.budget = recipe, budget
        self.reference_without_hidden = reference_without_hidden or recipe == "upstream"

    def judge(self, turns: Sequence[TurnReplies]) -> list[list[ScoredReply]]:
        upstream = self.recipe == "upstream"
        informed = [self.reader.turn(turn) for turn in turns]
        reference_rows = informed
        if self.reference_without_hidden:
            reference_rows = [self.reader.turn(turn, without_hidden=True) for turn in turns]
        visible = [self._seen(rows) for rows in informed]
        critic = self._means(self.critic, visible)
        reference = self._means(self.reference, reference_rows)
        scored_replies = []
        for number, turn in enumerate(turns):
            replies: list[ScoredReply] = []
            for index, sampler_logprob in enumerate(turn.sampler if visible[number] and reference_rows[number] else ()):
                base = sampler_logprob if upstream and sampler_logprob is not None else reference[number][index]
                span, mean = visible[number][index].spans[0], critic[number][index]
                replies.append(ScoredReply(mean - base, span.stop - span.start, logprob=mean, reference=base))
            scored_replies.append(replies)
        return scored_replies

    def credit(self, dialogues: Sequence[Trajectory], system: str | None) -> list[dict[int, float]]:
        """The advantage of each turn that the agent took, equation (3), by the turn's index in its dialogue.

        A dialogue is computed once for all its turns. Turns left out for its length have none.
        """
        informed = [self.reader.dialogue(t, system) for t in dialogues]
        reference_rows = informed
        if self.reference_without_hidden:
            reference_rows = [self.reader.dialogue(t, system, without_hidden=True) for t in dialogues]
        visible = [self._seen(rows) for rows in informed]
        critic, reference = self._turn_means(self.critic, visible), self._turn_means(self.reference, reference_rows)
        return [
            {turn: mean - base[turn] for turn, mean in means.items() if turn in base}
            for means, base in zip(critic, reference, strict=True)
        ]

    def score_dialogues(self, dialogues: Sequence[Trajectory], system: str | None) -> list[float | None]:
        """The advantages of a dialogue's turns, added up as in equation (2)."""
        return [sum(credit.values()) if credit else None for credit in self.credit(dialogues, system)]

    def _seen(self, rows: Sequence[TokenSequence]) -> Sequence[TokenSequence]:
        """What the critic's mean runs over."""
        return [row.shifted(-self.reader.encoder.header, -1) for row in rows] if self.recipe == "upstream" else rows

    def _turn_means(self, scorer: Scorer, dialogues: Sequence[Sequence[TokenSequence]]) -> list[dict[int, float]]:
        rows = [row for sequences in dialogues for row in sequences]
        scored = span_logprobs(scorer, rows, self.budget)
        return by_turn(dialogues, [sums / counts for sums, counts in scored])

    def _means(self, scorer: Scorer, groups: Sequence[Sequence[TokenSequence]]) -> list[list[float]]:
        unique = [list(dict.fromkeys(group)) for group in groups]
        means = group_logprobs(scorer, unique, self.budget)
        known = [dict(zip(group, values, strict=True)) for group, values in zip(unique, means, strict=True)]
        return [[by_row[row] for row in group] for group, by_row in zip(groups, known, strict=True)]


def by_turn(dialogues: Sequence[Sequence[TokenSequence]], values: Sequence[Tensor]) -> list[dict[int, float]]:
    """What is known of each span, by dialogue and turn.

    Args:
        dialogues: the sequences of each dialogue.
        values: [spans] for each sequence, dialogue by dialogue.
    """
    remaining = iter(values)
    return [
        {span.turn: value for row in rows for span, value in zip(row.spans, next(remaining).tolist(), strict=True)}
        for rows in dialogues
    ]


def check_same_vocabulary(critic: Any, reference: Any, critic_name: str, reference_name: str) -> None:
    """Raise UsageError where two tokenizers give ids that cannot be compared."""
    if critic.get_vocab() == reference.get_vocab() and critic.chat_template == reference.chat_template:
        return
    what = "vocabularies" if critic.get_vocab() != reference.get_vocab() else "chat templates"
    raise UsageError(
        f"The critic and its reference have different {what}, so their log-probabilities cannot be compared.",
        where=f"critic {critic_name}, reference {reference_name}",
        fix=Hint(
            option("reference"),
            " with the model that the critic was trained from, or ",
            stage("train-critic"),
            " again",
        ),
    )
