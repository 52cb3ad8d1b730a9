"""Confidence intervals of shares and means, of independent items, and of dialogues in clusters: several of one task.

Dialogues of one task are correlated, and a further evaluation would draw other tasks, so the bootstrap resamples tasks.
Pure functions, deterministic under their seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from sweet.stages.record import Rate

LEVEL = 0.95
"""The confidence level of all intervals."""
_DRAWS = 40_000_000
"""Limit of random draws of one bootstrap: with very many tasks fewer resamples suffice."""
_TOGETHER = 1_000_000
"""Random numbers in memory at once."""


@dataclass(frozen=True)
class Interval:
    """A mean and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float

    def rate(self) -> Rate:
        """The interval as a metric, rounded to six decimals."""
        return Rate(value=round(self.mean, 6), ci_low=round(self.low, 6), ci_high=round(self.high, 6))


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's score interval for a share of n (E. B. Wilson, JASA 22, 1927)."""
    z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    centre = share + z * z / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low, high = (centre - reach) / scale, (centre + reach) / scale
    return min(max(0.0, low), share), max(min(1.0, high), share)


def clustered_mean(
    values: Sequence[float],
    clusters: Sequence[str],
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return the mean of `values` with its interval by bootstrap over clusters.

    If all values are equal, a bootstrap has no spread, and the Wilson interval for the number of clusters is used. The
    result does not depend on the order of the values.

    Args:
        values: [n], one per dialogue.
        clusters: [n], the task of each.
        bounds: the least and the greatest possible value.
    """
    if len(values) != len(clusters):
        raise ValueError("one cluster for each value")
    if not values:
        return Interval(math.nan, math.nan, math.nan)
    sums: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for value, cluster in sorted(zip(values, clusters, strict=True), key=lambda row: row[1]):
        sums[cluster] = sums.get(cluster, 0.0) + value
        sizes[cluster] = sizes.get(cluster, 0) + 1
    mean = fmean(values)
    if len(sums) == 1 or min(values) == max(values):
        least, most = bounds
        share = min(max((mean - least) / (most - least), 0.0), 1.0)
        low, high = (least + (most - least) * bound for bound in wilson(share, len(sums)))
    else:
        low, high = bootstrap(list(sums.values()), list(sizes.values()), resamples, seed)
    return Interval(mean, min(low, mean), max(high, mean))


def bootstrap(sums: Sequence[float], sizes: Sequence[int] | None, resamples: int, seed: int) -> tuple[float, float]:
    """Return percentile bounds of sum / size over resampled clusters; without `sizes` each size is 1."""
    import numpy as np

    n = len(sums)
    resamples = max(200, min(resamples, _DRAWS // n))
    tops, generator = np.asarray(sums, dtype=float), np.random.default_rng(seed)
    below = None if sizes is None or set(sizes) == {1} else np.asarray(sizes, dtype=float)
    parts = []
    for count in portions(resamples, n):
        drawn = generator.integers(0, n, size=(count, n), dtype=np.int32)
        parts.append(tops[drawn].sum(axis=1) / (n if below is None else below[drawn].sum(axis=1)))
    means = np.sort(np.concatenate(parts))
    tail = (1 - LEVEL) / 2
    return float(means[math.floor(tail * (resamples - 1))]), float(means[math.ceil((1 - tail) * (resamples - 1))])


def portions(rows: int, columns: int) -> Iterator[int]:
    """Split `rows` into parts of at most `_TOGETHER` numbers."""
    most = max(1, _TOGETHER // columns)
    for start in range(0, rows, most):
        yield min(most, rows - start)
