"""Sampling one token for each row of a batch.

Inverse CDF with one uniform number a row: the number comes from the row's own generator, so a request's seed gives its
reply whatever else is in the batch. Softmax, cumulative sum and search are done once for the whole batch.
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
    """Sample from `logits` [rows, vocabulary].

    Returns:
        The sampled ids, and the natural log-probability of each under the unchanged distribution (temperature 1, no
        nucleus). A row whose logits are not numbers has a log-probability that is NaN.
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
    """For each row of `logits` [rows, vocabulary] its `count` likeliest ids, with their log-probabilities, falling."""
    found = logits.float().log_softmax(-1).topk(min(count, logits.shape[1]))
    return [tuple(zip(*row, strict=True)) for row in zip(found.indices.tolist(), found.values.tolist(), strict=True)]


def _nucleus(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Zero what lies outside the smallest set of tokens whose probabilities sum to `top_p`; the first always stays."""
    ordered, order = probabilities.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    nucleus = ordered.masked_fill((before >= top_p) & (before > 0), 0.0)
    return torch.zeros_like(probabilities).scatter_(1, order, nucleus)
