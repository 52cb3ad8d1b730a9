"""Samples one token for each row of a batch.

Uses inverse CDF sampling with one uniform number per row, drawn from the row's own generator, so a request's seed
determines its reply whatever else is in the batch. Softmax, cumulative sum and search are computed once for the whole
batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_MAX_UNIFORM = 1.0 - 2.0**-22
"""Uniform numbers are kept below this, so that their product with a sum near 1 stays below the sum in float32."""


def sample(
    logits: torch.Tensor,
    temperatures: Sequence[float],
    top_ps: Sequence[float],
    uniforms: Sequence[float],
) -> tuple[list[int], list[float]]:
    """Sample one id for each row.

    Args:
        logits: [rows, vocabulary].
        temperatures, top_ps: of each row; temperature 0 is greedy.
        uniforms: one number in [0, 1) for each row.

    Returns:
        The sampled ids, and the natural log-probability of each under the unmodified distribution (temperature 1, no
        nucleus). It is NaN for a row whose logits are not finite.
    """
    logits = logits.float()
    logprobs = logits.log_softmax(-1)
    if not any(temperatures):
        ids = logits.argmax(-1)
    else:
        scale = logits.new_tensor([[t or 1.0] for t in temperatures])
        unscaled = all(t in (0.0, 1.0) for t in temperatures)
        probabilities = logprobs.exp() if unscaled else (logits / scale).softmax(-1)
        if any(p < 1.0 for p in top_ps):
            probabilities = _nucleus(probabilities, logits.new_tensor([[p] for p in top_ps]))
        sums = probabilities.cumsum(-1)
        threshold = logits.new_tensor([[min(u, _MAX_UNIFORM)] for u in uniforms]) * sums[:, -1:]
        ids = torch.searchsorted(sums, threshold, right=True)[:, 0].clamp_(max=logits.shape[1] - 1)
        if not all(temperatures):
            greedy = torch.tensor([not t for t in temperatures], device=logits.device)
            ids = torch.where(greedy, logits.argmax(-1), ids)
    chosen = logprobs.gather(1, ids[:, None])[:, 0]
    return ids.tolist(), chosen.tolist()


def top_logprobs(logits: torch.Tensor, count: int) -> list[tuple[tuple[int, float], ...]]:
    """For each row of `logits` [rows, vocabulary] its `count` most likely ids with log-probabilities, in descending
    order."""
    found = logits.float().log_softmax(-1).topk(min(count, logits.shape[1]))
    return [tuple(zip(*row, strict=True)) for row in zip(found.indices.tolist(), found.values.tolist(), strict=True)]


def _nucleus(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Zero the tokens outside the smallest set whose probabilities sum to `top_p`; the most likely token always
    remains."""
    ordered, order = probabilities.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    nucleus = ordered.masked_fill((before >= top_p) & (before > 0), 0.0)
    return torch.zeros_like(probabilities).scatter_(1, order, nucleus)
