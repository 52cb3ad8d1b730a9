"""What is minimised, as pure functions of tensors. Equation numbers are the paper's (arXiv 2503.15478).

Shapes. Spans (turns) are numbered 0..S-1; `sums` and `counts` are [S]: the sum of natural-log probabilities over a
span's L tokens, and L. `owner` [S] says which side (one trajectory, or one reply) a span belongs to; sides are
numbered 0..n-1. Advantages and log-probabilities are in nats.

Where the published code differs (recipe `upstream`), the difference is an argument here, never a second formula:
`normalize="trajectory"` in `side_scores`, and `nll` over whole-sequence spans instead of the supervised ones.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Normalize = Literal["turn", "trajectory", "none"]
"""How log-ratios of a trajectory are averaged: turn by turn (3), over all its tokens (published code), not at all."""


def turn_advantages(policy: Tensor, reference: Tensor, counts: Tensor) -> Tensor:
    """The advantage of each turn, equation (3).

    A(o_t, a_t, c) = 1/L * sum_l log[ pi_theta(a^l | o_t, c, a^<l) / pi_ref(a^l | o_t, c, a^<l) ]

    Args:
        policy, reference: [S] sums of log-probabilities under pi_theta and pi_ref.
        counts: [S] tokens, L.

    Returns:
        [S], nats a token.
    """
    return (policy - reference) / counts


def side_scores(
    policy: Tensor, reference: Tensor, counts: Tensor, owner: Tensor, sides: int, normalize: Normalize = "turn"
) -> Tensor:
    """What equation (2) sums for each trajectory, before beta.

    `turn`: sum_t A(o_t, a_t, c) with A of equation (3).
    `trajectory`: the log-ratios of all turns over all supervised tokens of the trajectory, so that long turns weigh
    more (the published code).
    `none`: the plain sum of log-ratios, as in DPO: for one turn the implicit reward of step-level DPO, for a whole
    dialogue that of multi-turn DPO.

    Returns:
        [sides].
    """
    ratios = policy - reference

    def total(values: Tensor) -> Tensor:
        return torch.zeros(sides, dtype=ratios.dtype, device=ratios.device).index_add(0, owner, values)

    if normalize == "turn":
        return total(turn_advantages(policy, reference, counts))
    if normalize == "trajectory":
        return total(ratios) / total(counts.to(ratios.dtype))
    return total(ratios)


def preference_loss(chosen: Tensor, rejected: Tensor, beta: float) -> Tensor:
    """-log sigma(beta * chosen - beta * rejected), pair by pair: equation (2) with the scores of `side_scores`.

    With `normalize="none"` on single turns this is the actor's step-level DPO, on dialogues multi-turn DPO.

    Args:
        chosen, rejected: [n] scores.

    Returns:
        [n] losses.
    """
    return -logsigmoid(beta * (chosen - rejected))


def nll(policy: Tensor, counts: Tensor, owner: Tensor, sides: int) -> Tensor:
    """Mean negative log-likelihood a token of each side, [sides]; 0 where a side has no span.

    Rejection fine-tuning minimises it on successful dialogues; the preference losses add a little of it on the chosen
    side. Given spans over whole sequences it averages over system and user tokens too, as the published actor does.
    """
    zeros = torch.zeros(sides, dtype=policy.dtype, device=policy.device)
    tokens = zeros.index_add(0, owner, counts.to(policy.dtype))
    return -zeros.index_add(0, owner, policy) / tokens.clamp(min=1)
