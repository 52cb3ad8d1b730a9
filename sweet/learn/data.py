"""Training data: a pool of token sequences, and examples that refer to it by index.

A trajectory that occurs in many preferences is encoded once, its reference log-probabilities are computed once, and two
examples of one micro-batch that share it compute it once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sweet.learn.logprobs import Scorer, SpanScores
from sweet.learn.objectives import (
    Normalize,
    Target,
    dialogue_scores,
    nll,
    outcome_loss,
    preference_loss,
    side_scores,
    turn_advantages,
)
from sweet.learn.tokens import WHOLE, TokenSequence


@dataclass(frozen=True)
class Example:
    """One item of a batch: a preference, or a chosen side alone. Sides are indices into the pool.

    Attributes:
        name: for error messages.
        group: examples of the same group share prefixes; the loop can keep them together.
        goals: the outcomes that a regression head learns, one for each side, the chosen side first.
    """

    name: str
    chosen: tuple[int, ...]
    rejected: tuple[int, ...] = ()
    group: str = field(default="", kw_only=True)
    goals: tuple[float, ...] = field(default=(), kw_only=True)

    @property
    def sides(self) -> tuple[int, ...]:
        return self.chosen + self.rejected


@dataclass
class Pool:
    """Token sequences by key, each stored once.

    Attributes:
        sequences: the sequences in order of insertion.
        dropped: number of early turns that were dropped to fit the maximum length.
    """

    sequences: list[TokenSequence] = field(default_factory=list)
    dropped: int = 0
    _known: dict[Hashable, tuple[int, ...]] = field(default_factory=dict)

    def find(self, key: Hashable) -> tuple[int, ...] | None:
        """The indices of the sequences stored under `key`; None if there are none."""
        return self._known.get(key)

    def put(self, key: Hashable, sequences: Iterable[TokenSequence], dropped: int = 0) -> tuple[int, ...]:
        """Store sequences under `key` and return their indices."""
        start = len(self.sequences)
        self.sequences.extend(sequences)
        self._known[key] = tuple(range(start, len(self.sequences)))
        self.dropped += dropped
        return self._known[key]


@dataclass(frozen=True)
class Objective:
    """The loss of an example: a preference loss, an NLL on the chosen side, or both.

    Attributes:
        beta: weight of the log-ratios; None for no preference loss (rejection fine-tuning).
        nll: weight of the mean negative log-likelihood per token of the chosen side.
        normalize: how log-ratios are combined into a side's score (`sweet.learn.objectives.side_scores`).
        whole_nll: compute the NLL over every token of the chosen side, including system and user (recipe `upstream`).
        target: what the model's regression head learns instead of log-ratios; None for a model without one.
    """

    beta: float | None
    nll: float
    normalize: Normalize = "turn"
    whole_nll: bool = False
    target: Target | None = None

    @property
    def compares(self) -> bool:
        """Whether the loss compares chosen with rejected."""
        return self.beta is not None

    @property
    def needs_reference(self) -> bool:
        return self.compares and self.target is None

    @property
    def needs_tokens(self) -> bool:
        """Whether the loss needs log-probabilities of tokens."""
        return self.target is None or self.nll > 0


@dataclass(frozen=True)
class Losses:
    """The loss and the scores (times beta) of both sides, each of shape [examples].

    `advantages` are those of equation (3), one for each turn, detached: example by example, the chosen side's turns
    before the rejected side's; None if there is no reference.
    """

    loss: Tensor
    chosen: Tensor
    rejected: Tensor
    advantages: Tensor | None = None


Reference = Sequence[Tensor]
"""For each sequence of the pool, the sums of the reference log-probabilities of its spans, [spans]."""


def losses(
    scorer: Scorer,
    objective: Objective,
    pool: Sequence[TokenSequence],
    examples: Sequence[Example],
    reference: Reference | None,
) -> Losses:
    """Run one forward pass over the sides of `examples` and compute the loss of each, with gradients if enabled.

    Args:
        pool: all sequences; `examples` refer to it by index.
        reference: reference log-probabilities of the pool; required by an objective with `needs_reference`.

    Raises:
        ValueError: the objective needs a regression head or a reference that is missing.
    """
    unique_indices = list(dict.fromkeys(index for example in examples for index in example.sides))
    sequences = [pool[index] for index in unique_indices]
    if objective.whole_nll:
        sequences = [sequence.with_whole() for sequence in sequences]
    scores = scorer(sequences)
    starts, total = {}, 0
    for index, sequence in zip(unique_indices, sequences, strict=True):
        starts[index] = total
        total += len(sequence.spans)
    size = len(examples)
    span_indices: list[int] = []
    owner: list[int] = []
    for number, example in enumerate(examples):
        for side, indices in ((number, example.chosen), (number + size, example.rejected)):
            for index in indices:
                count = len(pool[index].spans) + objective.whole_nll
                span_indices.extend(range(starts[index], starts[index] + count))
                owner.extend([side] * count)
    flat = [span.turn for sequence in sequences for span in sequence.spans]
    whole = torch.tensor([flat[i] == WHOLE for i in span_indices], device=scorer.device)
    chosen_side = torch.tensor(owner, device=scorer.device)
    selected = torch.tensor(span_indices, device=scorer.device)
    selected_scores = SpanScores(scores.sums[selected], scores.counts[selected])
    nll_ = torch.zeros(size, device=scorer.device)
    if objective.needs_tokens:
        nll_ = nll(
            selected_scores.sums[whole == objective.whole_nll],
            selected_scores.counts[whole == objective.whole_nll],
            chosen_side[whole == objective.whole_nll],
            2 * size,
        )[:size]
    if objective.target is not None:
        if scores.values is None:
            raise ValueError("the model has no regression head")
        head_losses = _head_losses(
            objective.target, objective.beta, examples, scores.values[selected][~whole], chosen_side[~whole]
        )
        return Losses(head_losses.loss + objective.nll * nll_, head_losses.chosen, head_losses.rejected)
    if objective.beta is None:
        zeros = torch.zeros_like(nll_)
        return Losses(objective.nll * nll_, zeros, zeros)
    if reference is None:
        raise ValueError("a preference loss needs reference log-probabilities")
    # In the order of `span_indices`: example by example, chosen before rejected.
    base = torch.cat([reference[index] for example in examples for index in example.sides]).to(scorer.device)
    turns = ~whole
    policy, counts = selected_scores.sums[turns], selected_scores.counts[turns]
    sides = side_scores(policy, base, counts, chosen_side[turns], 2 * size, objective.normalize)
    chosen, rejected = sides[:size], sides[size:]
    loss = preference_loss(chosen, rejected, objective.beta) + objective.nll * nll_
    advantages = turn_advantages(policy.detach(), base, counts)
    return Losses(loss, objective.beta * chosen, objective.beta * rejected, advantages)


def _head_losses(
    target: Target, beta: float | None, examples: Sequence[Example], values: Tensor, owner: Tensor
) -> Losses:
    """Losses on a regression head's scores of turns; sides are numbered as in `losses`."""
    size = len(examples)
    sides = dialogue_scores(values, owner, 2 * size, target)
    chosen, rejected = sides[:size], sides[size:]
    if beta is not None:
        return Losses(preference_loss(chosen, rejected, beta), beta * chosen, beta * rejected)
    goals = torch.zeros(2 * size, device=values.device)
    for number, example in enumerate(examples):
        if len(example.goals) != 1 + bool(example.rejected):
            raise ValueError(f"{example.name}: a goal is needed for each side")
        for side, goal in enumerate(example.goals):
            goals[number + side * size] = goal
    distances = outcome_loss(values, goals, owner, 2 * size, target)
    goal_counts = torch.tensor([len(example.goals) for example in examples], device=values.device)
    return Losses((distances[:size] + distances[size:]) / goal_counts, chosen, rejected)
