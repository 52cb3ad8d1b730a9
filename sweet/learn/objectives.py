"""Loss functions, as pure functions of tensors. Equation numbers are those of arXiv 2503.15478.

Shapes: spans (turns) are numbered 0..S-1; `sums` and `counts` are [S]: the sum of natural-log probabilities over a
span's L tokens, and L. `owner` [S] is the side (one trajectory, or one reply) that a span belongs to; sides are
numbered 0..n-1. Advantages and log-probabilities are in nats.

If the published code differs (protocol `upstream`), the difference is an argument here, not a second formula:
`normalize="trajectory"` in `side_scores`, `nll` over whole-sequence spans instead of the supervised ones, and
`target="dialogue"` in `dialogue_scores`, with beta = 1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid, mse_loss

from sweet.learn.components import Distillation, Normalize, PolicyGradient, Target


def sum_by(owner: Tensor, values: Tensor, size: int) -> Tensor:
    """The sum of the values of each owner, [size]; 0 for one without a value."""
    return torch.zeros(size, dtype=values.dtype, device=values.device).index_add(0, owner, values)


def turn_advantages(policy_logprobs: Tensor, reference_logprobs: Tensor, counts: Tensor) -> Tensor:
    """The advantage of each turn, equation (3).

    A(o_t, a_t, c) = 1/L * sum_l log[ pi_theta(a^l | o_t, c, a^<l) / pi_ref(a^l | o_t, c, a^<l) ]

    Args:
        policy_logprobs, reference_logprobs: [S] sums of log-probabilities under pi_theta and pi_ref.
        counts: [S] tokens, L.

    Returns:
        [S], nats per token.
    """
    return (policy_logprobs - reference_logprobs) / counts


def side_scores(
    policy_logprobs: Tensor,
    reference_logprobs: Tensor,
    counts: Tensor,
    owner: Tensor,
    sides: int,
    normalize: Normalize = "turn",
) -> Tensor:
    """The sum over turns in equation (2) for each trajectory, before beta.

    `turn`: sum_t A(o_t, a_t, c) with A of equation (3).
    `trajectory`: the log-ratios of all turns divided by all supervised tokens of the trajectory, so that long turns
    have a larger weight (the published code).
    `none`: the plain sum of log-ratios, as in DPO: for one turn the implicit reward of step-level DPO, for a whole
    dialogue that of multi-turn DPO.

    Args:
        policy_logprobs, reference_logprobs: [S] sums of log-probabilities.
        counts: [S] tokens.
        owner: [S] the side of each span.
        sides: the number of sides.

    Returns:
        [sides].
    """
    log_ratios = policy_logprobs - reference_logprobs
    if normalize == "turn":
        return sum_by(owner, turn_advantages(policy_logprobs, reference_logprobs, counts), sides)
    if normalize == "trajectory":
        return sum_by(owner, log_ratios, sides) / sum_by(owner, counts.to(log_ratios.dtype), sides)
    return sum_by(owner, log_ratios, sides)


def preference_loss(chosen: Tensor, rejected: Tensor, beta: float, smoothing: float = 0.0) -> Tensor:
    """-log sigma(beta * chosen - beta * rejected) for each pair: equation (2) with the scores of `side_scores`.

    With `normalize="none"` this is the actor's step-level DPO on single turns, and multi-turn DPO on dialogues.

    Args:
        chosen, rejected: [n] scores.
        smoothing: the probability e that a pair is the wrong way round: -(1 - e) log sigma(d) - e log sigma(-d), as in
            conservative DPO (E. Mitchell, A note on DPO with noisy preferences, 2023).

    Returns:
        [n] losses.
    """
    margin = beta * (chosen - rejected)
    return -(1 - smoothing) * logsigmoid(margin) - smoothing * logsigmoid(-margin)


def nll(policy_logprobs: Tensor, counts: Tensor, owner: Tensor, sides: int, *, summed: bool = False) -> Tensor:
    """The mean negative log-likelihood per token of each side, in nats; `summed`, that of all its tokens together.

    Rejection fine-tuning minimises it on successful dialogues; the preference losses add a small multiple of it on the
    chosen side. With spans over whole sequences it also averages over system and user tokens, as the published actor
    does.

    Args:
        policy_logprobs: [S] sums of log-probabilities.
        counts: [S] tokens.
        owner: [S] the side of each span.
        sides: the number of sides.

    Returns:
        [sides]; 0 if a side has no span.
    """
    total = -sum_by(owner, policy_logprobs, sides)
    return total if summed else total / sum_by(owner, counts.to(policy_logprobs.dtype), sides).clamp(min=1)


# Tokens --------------------------------------------------------------------------------------------------------------


class PolicyLoss(NamedTuple):
    """Losses of tokens, [n], and the numbers of tokens that were clipped and masked."""

    losses: Tensor
    clipped: Tensor
    masked: Tensor


def policy_gradient(
    policy_logprobs: Tensor,
    sampler_logprobs: Tensor,
    advantages: Tensor,
    settings: PolicyGradient,
    turns: Tensor | None = None,
) -> PolicyLoss:
    """The clipped policy-gradient loss of each token (`sweet.learn.components.PolicyGradient`).

    Args:
        policy_logprobs: [n] log pi(a), with gradients.
        sampler_logprobs: [n] log mu(a), of the model that sampled.
        advantages: [n].
        turns: [n] the number of the token's turn, in order; with them a turn has one ratio, and its loss is counted
            once, at its first token: at a ratio of 1 the gradient is that of the single tokens.
    """
    log_ratio = policy_logprobs - sampler_logprobs
    if turns is not None:
        turns = torch.unique_consecutive(turns, return_inverse=True)[1]
        log_ratio = torch.zeros_like(log_ratio).index_add(0, turns, log_ratio)[turns]
    ratio = log_ratio.detach().exp()
    ratio_mask = (ratio <= settings.bound) & (ratio >= 1 / settings.bound)
    # Not a product with the mask: an infinite ratio has no finite gradient, and 0 times infinity is not 0.
    ratio = torch.where(ratio_mask, log_ratio, torch.zeros_like(log_ratio)).exp()
    clipped_ratio = ratio.clamp(1 - settings.low, 1 + settings.high)
    surrogate = torch.minimum(ratio * advantages, clipped_ratio * advantages)
    losses = torch.where(ratio_mask, -surrogate, torch.zeros_like(ratio))
    if turns is not None:
        losses = losses * torch.diff(turns, prepend=-torch.ones_like(turns[:1]))
    clip_mask = ratio_mask & (clipped_ratio * advantages < ratio * advantages)
    return PolicyLoss(losses, clip_mask.sum(), (~ratio_mask).sum())


def sampled_distillation(
    policy_logprobs: Tensor, sampler_logprobs: Tensor, teacher_logprobs: Tensor, settings: Distillation
) -> Tensor:
    """A loss for each token whose gradient estimates that of KL(pi || teacher) from the sampled token.

    grad KL = E_pi[(log pi(a) - log teacher(a)) grad log pi(a)]; a was sampled by mu, which the ratio corrects.

    Args:
        policy_logprobs: [n] log pi(a), with gradients.
        sampler_logprobs, teacher_logprobs: [n] log mu(a), log teacher(a).

    Returns:
        [n]; the value is not the divergence, only the gradient is.
    """
    ratio = (policy_logprobs - sampler_logprobs).detach().exp().clamp(max=settings.bound)
    return -ratio * (teacher_logprobs - policy_logprobs).detach() * policy_logprobs


def top_distillation(policy_logprobs: Tensor, teacher_logprobs: Tensor) -> Tensor:
    """KL(pi || teacher) at each token over the teacher's most likely k ids and one outcome for all others.

    Args:
        policy_logprobs: [n, k] log pi of these ids, with gradients.
        teacher_logprobs: [n, k] log-probabilities of the teacher.

    Returns:
        [n], nats.
    """
    # What rounding leaves of a mass of 1 has no logarithm.
    policy_rest = (1 - policy_logprobs.exp().sum(1)).clamp(min=1e-6)
    teacher_rest = (1 - teacher_logprobs.exp().sum(1)).clamp(min=1e-6)
    divergence = (policy_logprobs.exp() * (policy_logprobs - teacher_logprobs)).sum(1)
    return divergence + policy_rest * (policy_rest.log() - teacher_rest.log())


# Regression head -----------------------------------------------------------------------------------------------------


def dialogue_scores(values: Tensor, owner: Tensor, sides: int, target: Target) -> Tensor:
    """The score of each dialogue, from a regression head's scores of its turns.

    `preference`: their sum, as in equation (2) with the score instead of A(o_t, a_t, c).
    `dialogue`, `binary`, `real`: the score of the last turn, which has read the whole dialogue.

    Args:
        values: [S] scores of turns; those of a side are adjacent, in the order of the turns.
        owner: [S] the side of each turn.

    Returns:
        [sides]; 0 if a side has no turn.
    """
    if target == "preference":
        return sum_by(owner, values, sides)
    # Comparing neighbours is enough: the turns of a side are adjacent.
    last = torch.ones_like(owner, dtype=torch.bool)
    last[:-1] = owner[1:] != owner[:-1]
    return sum_by(owner[last], values[last], sides)


def outcome_loss(values: Tensor, goals: Tensor, owner: Tensor, sides: int, target: Target) -> Tensor:
    """The distance of the scores of a dialogue's turns from its outcome, averaged over its turns so that long dialogues
    do not have a larger weight: binary cross-entropy with log-odds (`binary`), or the squared error (`real`).

    Args:
        values: [S] scores of turns.
        goals: [sides] 0 or 1 (`binary`), rewards (`real`).
        owner: [S] the side of each turn.

    Returns:
        [sides]; 0 if a side has no turn.
    """
    outcomes = goals[owner].to(values.dtype)
    distance = binary_cross_entropy_with_logits if target == "binary" else mse_loss
    distances = distance(values, outcomes, reduction="none")
    return sum_by(owner, distances, sides) / sum_by(owner, torch.ones_like(values), sides).clamp(min=1)
