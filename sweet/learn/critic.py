"""The critic at work: the advantage of replies to an observation, equation (3).

Critic and reference read the same ids, the training-time information c included unless the critic was trained without
it. Recipe `upstream` computes what the published ranking computes: the critic's mean runs over the header of the turn
and leaves out the end-of-turn token, the reference is the sampler's own mean log-probability, without c; where the
sampler told none, the base model's without c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweet.errors import UsageError
from sweet.learn.logprobs import TOKEN_BUDGET, Scorer, group_logprobs
from sweet.learn.tokens import ChatEncoder, ReplyText, TokenSequence
from sweet.tasks.base import Message, Recipe


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
    ) -> None:
        self.encoder = ChatEncoder(tokenizer)
        self.critic, self.reference = Scorer(model), Scorer(reference)
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
