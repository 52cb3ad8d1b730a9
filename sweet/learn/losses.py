"""The loss of each example, by one forward pass over the token sequences that the examples refer to.

Two examples of one micro-batch that share a sequence compute it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from sweet.learn.components import Counts, Example, Objective, TokenTerms
from sweet.learn.logprobs import Scorer, SpanScores
from sweet.learn.objectives import (
    dialogue_scores,
    nll,
    outcome_loss,
    policy_gradient,
    preference_loss,
    sampled_distillation,
    side_scores,
    sum_by,
    top_distillation,
    turn_advantages,
)
from sweet.learn.sequences import WHOLE, TokenSequence


@dataclass(frozen=True)
class TokenStatistics:
    """What the token components did, summed over tokens; scalars on the device, except the number of tokens.

    Attributes:
        tokens: with an advantage or a teacher.
        ratio: sum of the ratios pi/mu.
        difference: sum of |log pi - log mu|.
        surprise: sum of -log mu, an estimate of the entropy of the model that sampled.
        clipped, masked: tokens that the policy gradient clipped and left out.
    """

    tokens: int
    ratio: Tensor
    difference: Tensor
    surprise: Tensor
    clipped: Tensor
    masked: Tensor


@dataclass(frozen=True)
class Losses:
    """The loss and the scores (times beta) of both sides, each of shape [examples].

    `loss` is such that its mean over the examples of a step is the loss of the step, each component divided by its own
    count. `advantages` are those of equation (3), one for each turn, detached: example by example, the chosen side's
    turns before the rejected side's; None if there is no reference. `statistics` are None if no token is weighted.
    """

    loss: Tensor
    chosen: Tensor
    rejected: Tensor
    advantages: Tensor | None = None
    statistics: TokenStatistics | None = None


Reference = Sequence[Tensor]
"""For each sequence of the pool, the sums of the reference log-probabilities of its spans, [spans]."""


def losses(
    scorer: Scorer,
    objective: Objective,
    pool: Sequence[TokenSequence],
    examples: Sequence[Example],
    reference: Reference | None,
    counts: Counts | None = None,
) -> Losses:
    """Run one forward pass over the sides of `examples` and compute the loss of each, with gradients if enabled.

    Args:
        pool: all sequences; `examples` refer to it by index.
        reference: reference log-probabilities of the pool; required by an objective with `needs_reference`.
        counts: those of the step of which `examples` are a part; of `examples` alone if None.

    Raises:
        ValueError: the objective needs a regression head or a reference that is missing, or terms do not fit their
            sequences.
    """
    counts = counts or Counts.of(examples)
    unique_indices = list(dict.fromkeys(index for example in examples for index in example.sides))
    sequences = [pool[index] for index in unique_indices]
    layout = _token_layout(pool, unique_indices, examples) if objective.weights_tokens else None
    if objective.whole_nll:
        sequences = [sequence.with_whole() for sequence in sequences]
    scores = scorer(sequences, None if layout is None else layout.other_ids)
    span_starts = accumulate((len(sequence.spans) for sequence in sequences), initial=0)
    starts = dict(zip(unique_indices, span_starts, strict=False))
    size = len(examples)
    span_indices: list[int] = []
    owners: list[int] = []
    for number, example in enumerate(examples):
        for side, indices in ((number, example.chosen), (number + size, example.rejected)):
            for index in indices:
                span_count = len(pool[index].spans) + objective.whole_nll
                span_indices.extend(range(starts[index], starts[index] + span_count))
                owners.extend([side] * span_count)
    span_turns = [span.turn for sequence in sequences for span in sequence.spans]
    whole_mask = torch.tensor([span_turns[i] == WHOLE for i in span_indices], device=scorer.device)
    owner = torch.tensor(owners, device=scorer.device)
    selected = torch.tensor(span_indices, device=scorer.device)
    sums, span_counts = scores.sums[selected], scores.counts[selected]
    loss = torch.zeros(size, device=scorer.device)
    if objective.nll:
        supervised = whole_mask == objective.whole_nll
        spans = sums[supervised], span_counts[supervised], owner[supervised]
        nll_losses = nll(*spans, 2 * size, summed=objective.sum_nll)[:size]
        likelihood_weights = [counts.share(counts.likelihoods) * example.likelihood for example in examples]
        loss = loss + objective.nll * (nll_losses * torch.tensor(likelihood_weights, device=scorer.device))
    statistics = None
    if layout is not None:
        token_loss, statistics = _token_losses(objective, layout, scores, counts, size)
        loss = loss + token_loss
    if objective.target is not None:
        if scores.values is None:
            raise ValueError("the model has no regression head")
        head_losses = _head_losses(objective, examples, scores.values[selected][~whole_mask], owner[~whole_mask])
        return Losses(head_losses.loss + loss, head_losses.chosen, head_losses.rejected)
    if objective.beta is None:
        zeros = torch.zeros_like(loss)
        return Losses(loss, zeros, zeros, statistics=statistics)
    if reference is None:
        raise ValueError("a preference loss needs reference log-probabilities")
    # In the order of `span_indices`: example by example, chosen before rejected.
    reference_logprobs = torch.cat([reference[i] for example in examples for i in example.sides]).to(scorer.device)
    turn_mask = ~whole_mask
    policy_logprobs, token_counts = sums[turn_mask], span_counts[turn_mask]
    sides = side_scores(
        policy_logprobs, reference_logprobs, token_counts, owner[turn_mask], 2 * size, objective.normalize
    )
    chosen, rejected = sides[:size], sides[size:]
    share = counts.share(counts.preferences)
    preference_weights = [share * example.preference if example.rejected else 0.0 for example in examples]
    preference_losses = preference_loss(chosen, rejected, objective.beta, objective.smoothing)
    loss = preference_losses * torch.tensor(preference_weights, device=scorer.device) + loss
    advantages = turn_advantages(policy_logprobs.detach(), reference_logprobs, token_counts)
    return Losses(loss, objective.beta * chosen, objective.beta * rejected, advantages, statistics)


@dataclass(frozen=True)
class _TokenLayout:
    """Where the weighted tokens of a micro-batch are among those that are scored.

    Attributes:
        places: for each weighted token, its place among the scored ids.
        owners: its example.
        terms: those of all examples, in the same order.
        other_ids: ids that are scored too, [scored ids, k]; None without a teacher's most likely ids.
        turns: for each weighted token, the number of its turn in the micro-batch.
    """

    places: list[int]
    owners: list[int]
    terms: list[TokenTerms]
    other_ids: Tensor | None
    turns: list[int]


def _token_layout(
    pool: Sequence[TokenSequence], unique_indices: Sequence[int], examples: Sequence[Example]
) -> _TokenLayout | None:
    """Return the layout; None if no example has terms."""
    lengths = {index: pool[index].supervised for index in unique_indices}
    starts = dict(zip(lengths, accumulate(lengths.values(), initial=0), strict=False))
    places: list[int] = []
    owners: list[int] = []
    terms: list[TokenTerms] = []
    turns: list[int] = []
    for number, example in enumerate(examples):
        if example.terms and len(example.terms) != len(example.chosen):
            raise ValueError(f"{example.name}: {len(example.terms)} terms for {len(example.chosen)} sequences")
        for index, term in zip(example.chosen, example.terms, strict=False):
            if len(term.sampled) != lengths[index]:
                raise ValueError(f"{example.name}: {len(term.sampled)} terms for {lengths[index]} tokens")
            places.extend(range(starts[index], starts[index] + lengths[index]))
            owners.extend([number] * lengths[index])
            for span in pool[index].spans:
                turns.extend([turns[-1] + 1 if turns else 0] * (span.stop - span.start))
            terms.append(term)
    if not places:
        return None
    k = max((len(ids) for term in terms for ids in term.top_ids[:1]), default=0)
    other_ids = None
    if k:
        other_ids = torch.zeros(sum(lengths.values()), k, dtype=torch.long)
        top_ids = [term.top_ids or ((0,) * k,) * len(term.sampled) for term in terms]
        other_ids[places] = torch.tensor([ids for rows in top_ids for ids in rows])
    return _TokenLayout(places, owners, terms, other_ids, turns)


def _token_losses(
    objective: Objective, layout: _TokenLayout, scores: SpanScores, counts: Counts, size: int
) -> tuple[Tensor, TokenStatistics]:
    """Return the losses of the token components, [examples], and what they did."""
    device = scores.token_logprobs.device
    places, owners = torch.tensor(layout.places, device=device), torch.tensor(layout.owners, device=device)
    terms = layout.terms
    sizes = torch.tensor([len(term.sampled) for term in terms], device=device)

    def mask_of(attribute: Callable[[TokenTerms], object]) -> Tensor:
        return torch.tensor([bool(attribute(term)) for term in terms], device=device).repeat_interleave(sizes)

    def joined(rows: Iterable[Sequence[Any]]) -> Tensor:
        return torch.tensor([value for row in rows for value in row], dtype=torch.float32, device=device)

    policy_logprobs = scores.token_logprobs[places]
    sampler_logprobs = joined(term.sampled for term in terms)
    loss = torch.zeros(size, device=device)
    clipped = masked = torch.zeros((), device=device)
    if objective.policy is not None and (policy_mask := mask_of(lambda term: term.advantages)).any():
        advantages = joined(term.advantages for term in terms)
        turns = torch.tensor(layout.turns, device=device)[policy_mask] if objective.policy.by_turn else None
        policy_loss = policy_gradient(
            policy_logprobs[policy_mask], sampler_logprobs[policy_mask], advantages, objective.policy, turns
        )
        clipped, masked = policy_loss.clipped, policy_loss.masked
        policy_losses = sum_by(owners[policy_mask], policy_loss.losses, size)
        if objective.policy.average == "token":
            loss = loss + counts.share(counts.tokens) * policy_losses
        else:
            lengths = sum_by(owners[policy_mask], torch.ones_like(policy_loss.losses), size).clamp(min=1)
            loss = loss + counts.share(counts.dialogues) * policy_losses / lengths
    if objective.distil is not None:
        scale = objective.distil.weight * counts.share(counts.distilled)
        if (top_mask := mask_of(lambda term: term.top_ids)).any():
            assert scores.other_logprobs is not None
            teacher_logprobs = torch.tensor([row for term in terms for row in term.top_logprobs], device=device)
            divergences = top_distillation(scores.other_logprobs[places][top_mask], teacher_logprobs)
            loss = loss + scale * sum_by(owners[top_mask], divergences, size)
        if (teacher_mask := mask_of(lambda term: term.teacher and not term.top_ids)).any():
            teacher_logprobs = joined(term.teacher for term in terms if not term.top_ids)
            distillation_losses = sampled_distillation(
                policy_logprobs[teacher_mask], sampler_logprobs[teacher_mask], teacher_logprobs, objective.distil
            )
            loss = loss + scale * sum_by(owners[teacher_mask], distillation_losses, size)
    if objective.values and scores.states is not None:
        goals = joined(term.goals for term in terms)
        goal_mask = ~goals.isnan()
        distances = (scores.states[places][goal_mask] - goals[goal_mask]) ** 2 / 2
        loss = loss + counts.share(counts.goals) * sum_by(owners[goal_mask], distances, size)
    log_ratio = (policy_logprobs - sampler_logprobs).detach()
    return loss, TokenStatistics(
        len(layout.places), log_ratio.exp().sum(), log_ratio.abs().sum(), -sampler_logprobs.sum(), clipped, masked
    )


def _head_losses(objective: Objective, examples: Sequence[Example], values: Tensor, owner: Tensor) -> Losses:
    """Losses on a regression head's scores of turns; sides are numbered as in `losses`."""
    target, beta = objective.target, objective.beta
    assert target is not None
    size = len(examples)
    sides = dialogue_scores(values, owner, 2 * size, target)
    chosen, rejected = sides[:size], sides[size:]
    if beta is not None:
        return Losses(preference_loss(chosen, rejected, beta, objective.smoothing), beta * chosen, beta * rejected)
    goals = torch.zeros(2 * size, device=values.device)
    for number, example in enumerate(examples):
        if len(example.goals) != 1 + bool(example.rejected):
            raise ValueError(f"{example.name}: a goal is needed for each side")
        for side, goal in enumerate(example.goals):
            goals[number + side * size] = goal
    distances = outcome_loss(values, goals, owner, 2 * size, target)
    goal_counts = torch.tensor([len(example.goals) for example in examples], device=values.device)
    return Losses((distances[:size] + distances[size:]) / goal_counts, chosen, rejected)
