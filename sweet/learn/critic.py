"""The critic at work: the advantage of replies to an observation, equation (3).

Critic and reference read the same ids, the training-time information c included unless the critic was trained without
it. Recipe `upstream` computes what the published ranking computes: the critic's mean runs over the header of the turn
and leaves out the end-of-turn token, the reference is the sampler's own mean log-probability, without c; where the
sampler told none, the base model's without c.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweet.errors import UsageError
from sweet.learn.logprobs import TOKEN_BUDGET, Scorer, group_logprobs, span_logprobs
from sweet.learn.tokens import ChatEncoder, ReplyText, TokenSequence
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
    """

    name: str
    turn: int
    observation: Sequence[Message]
    hidden: str
    replies: Sequence[ReplyText]
    sampler: Sequence[float | None]


@dataclass(frozen=True)
class Verdict:
    """What the critic thinks of one reply: mean log-probabilities a token, and how many tokens it has."""

    logprob: float
    reference: float
    tokens: int

    @property
    def advantage(self) -> float:
        return self.logprob - self.reference


class Critic:
    """A trained critic and the frozen model it started from.

    Args:
        model, reference: causal models of the same vocabulary.
        tokenizer: the critic's.
        share: compute once what replies and turns share.
        informed: c is told (False for the variant `no-info`).
    """

    def __init__(
        self,
        model: Any,
        reference: Any,
        tokenizer: Any,
        *,
        informed: bool = True,
        recipe: Recipe = "paper",
        max_length: int | None = None,
        budget: int = TOKEN_BUDGET,
        share: bool = True,
    ) -> None:
        self.encoder = ChatEncoder(tokenizer)
        self.critic, self.reference = Scorer(model, share=share), Scorer(reference, share=share)
        self.informed, self.recipe, self.max_length, self.budget = informed, recipe, max_length, budget
        self.dropped = 0

    def judge(self, turns: Sequence[TurnReplies]) -> list[list[Verdict]]:
        """A verdict for each reply of each turn, in order. Equal replies to one observation are computed once."""
        upstream = self.recipe == "upstream"
        informed = [self._encode(turn, turn.hidden if self.informed else None) for turn in turns]
        bare = [self._encode(turn, None) for turn in turns] if upstream else informed
        seen = [[row.shifted(-self.encoder.header, -1) for row in rows] if upstream else rows for rows in informed]
        critic = self._means(self.critic, seen)
        reference = self._means(self.reference, bare)
        verdicts = []
        for number, turn in enumerate(turns):
            found = []
            for place, told in enumerate(turn.sampler):
                base = told if upstream and told is not None else reference[number][place]
                span = seen[number][place].spans[0]
                found.append(Verdict(critic[number][place], base, span.stop - span.start))
            verdicts.append(found)
        return verdicts

    def credit(self, dialogues: Sequence[Trajectory], system: str | None) -> list[dict[int, float]]:
        """The advantage of each turn that the agent took, equation (3), by the turn's index in its dialogue.

        A dialogue is computed once for all its turns. Turns left out for its length have none.
        """
        upstream = self.recipe == "upstream"
        informed = [self._dialogue(t, system, t.task.hidden if self.informed else None) for t in dialogues]
        bare = [self._dialogue(t, system, None) for t in dialogues] if upstream else informed
        seen = [[row.shifted(-self.encoder.header, -1) for row in rows] if upstream else rows for rows in informed]
        critic, reference = self._turn_means(self.critic, seen), self._turn_means(self.reference, bare)
        return [
            {turn: mean - base[turn] for turn, mean in means.items() if turn in base}
            for means, base in zip(critic, reference, strict=True)
        ]

    def _dialogue(self, trajectory: Trajectory, system: str | None, hidden: str | None) -> Sequence[TokenSequence]:
        encoded = self.encoder.dialogue(
            trajectory, system, hidden=hidden, recipe=self.recipe, max_length=self.max_length
        )
        self.dropped += encoded.dropped
        return encoded.sequences

    def _turn_means(self, scorer: Scorer, dialogues: Sequence[Sequence[TokenSequence]]) -> list[dict[int, float]]:
        rows = [row for sequences in dialogues for row in sequences]
        found = iter(zip(rows, span_logprobs(scorer, rows, self.budget), strict=True))
        means: list[dict[int, float]] = []
        for sequences in dialogues:
            means.append({})
            for row, (sums, counts) in itertools.islice(found, len(sequences)):
                means[-1] |= zip((span.turn for span in row.spans), (sums / counts).tolist(), strict=True)
        return means

    def _encode(self, turn: TurnReplies, hidden: str | None) -> list[TokenSequence]:
        rows, dropped = self.encoder.turn(
            turn.observation,
            turn.replies,
            turn=turn.turn,
            name=turn.name,
            hidden=hidden,
            recipe=self.recipe,
            max_length=self.max_length,
        )
        self.dropped += dropped
        return rows

    def _means(self, scorer: Scorer, groups: Sequence[Sequence[TokenSequence]]) -> list[list[float]]:
        unique = [list(dict.fromkeys(group)) for group in groups]
        found = group_logprobs(scorer, unique, self.budget)
        known = [dict(zip(group, means, strict=True)) for group, means in zip(unique, found, strict=True)]
        return [[of[row] for row in group] for group, of in zip(groups, known, strict=True)]


def check_same_vocabulary(critic: Any, reference: Any, critic_name: str, reference_name: str) -> None:
    """Raise UsageError where two tokenizers give ids that cannot be compared."""
    if critic.get_vocab() == reference.get_vocab() and critic.chat_template == reference.chat_template:
        return
    what = "vocabularies" if critic.get_vocab() != reference.get_vocab() else "chat templates"
    raise UsageError(
        f"The critic and its reference have different {what}, so their log-probabilities cannot be compared.",
        where=f"critic {critic_name}, reference {reference_name}",
        fix="--reference with the model that the critic was trained from, or sweet train-critic again",
    )
