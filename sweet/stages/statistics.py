"""Rates with intervals and paired comparisons, for dialogues that come in clusters: several of one task.

Dialogues of one task are alike, so tasks, not dialogues, are what a further evaluation would draw anew: the bootstrap
resamples tasks, and a comparison pairs them. Pure functions, deterministic under their seed, without numpy.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

_EXACT_SIGNS = 14
"""Up to so many differing pairs every assignment of signs is tried."""
_PERMUTATIONS = 10_000
_DRAWS = 4_000_000
"""Bound on random draws of one bootstrap: with very many tasks fewer resamples are needed anyway."""


@dataclass(frozen=True)
class Interval:
    """A mean and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Two evaluations of the same tasks, `ours` minus `theirs`.

    Attributes:
        difference: of the means over tasks, with its interval.
        p_value: two-sided, paired permutation (for one dialogue a task and rewards 0 or 1, McNemar's exact test).
        win_rate: share of the tasks on which ours is higher, one on which both are equal counting half.
        wins, losses, ties: tasks on which ours is higher, lower, equal.
    """

    difference: Interval
    p_value: float
    win_rate: Interval
    wins: int
    losses: int
    ties: int

    @property
    def tasks(self) -> int:
        return self.wins + self.losses + self.ties


def clustered_mean(
    values: Sequence[float],
    clusters: Sequence[str],
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """The mean of `values`, its interval by bootstrap over clusters.

    Where all values are equal a bootstrap knows no spread; the Wilson interval for as many clusters then stands in.

    Args:
        values: [n], one a dialogue.
        clusters: [n], the task of each.
        bounds: between which values lie.
        level: of confidence.
    """
    if len(values) != len(clusters):
        raise ValueError("one cluster for each value")
    if not values:
        return Interval(math.nan, math.nan, math.nan)
    sums: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value
        sizes[cluster] = sizes.get(cluster, 0) + 1
    mean = fmean(values)
    if len(sums) == 1 or min(values) == max(values):
        least, most = bounds
        share = min(max((mean - least) / (most - least), 0.0), 1.0)
        low, high = (least + (most - least) * bound for bound in wilson(share, len(sums), level))
        return Interval(mean, min(low, mean), max(high, mean))
    low, high = _bootstrap(list(sums.values()), list(sizes.values()), level, resamples, seed)
    return Interval(mean, min(low, mean), max(high, mean))


def wilson(share: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a share of n (E. B. Wilson, JASA 22, 1927)."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = share + z * z / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low, high = (centre - reach) / scale, (centre + reach) / scale
    return min(max(0.0, low), share), max(min(1.0, high), share)


def compare(
    ours: Mapping[str, float],
    theirs: Mapping[str, float],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Pair two evaluations by task, over the tasks that both have; each value is a task's mean over its dialogues.

    Raises:
        ValueError: they share no task.
    """
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        raise ValueError("the two evaluations share no task")
    differences = [ours[task] - theirs[task] for task in shared]
    mean = fmean(differences)
    if min(differences) == max(differences):
        low = high = mean
    else:
        low, high = _bootstrap(differences, [1] * len(differences), level, resamples, seed)
    won = [float(d > 0) + 0.5 * (d == 0) for d in differences]
    return Comparison(
        difference=Interval(mean, min(low, mean), max(high, mean)),
        p_value=sign_flip_p_value(differences, seed=seed),
        win_rate=clustered_mean(won, shared, level=level, resamples=resamples, seed=seed),
        wins=sum(d > 0 for d in differences),
        losses=sum(d < 0 for d in differences),
        ties=sum(d == 0 for d in differences),
    )


def sign_flip_p_value(differences: Sequence[float], *, seed: int = 0) -> float:
    """Two-sided p-value of paired differences under the hypothesis that each sign is a fair coin.

    Exact for few differing pairs; otherwise by random signs, with the observed ones counted in, so never 0.
    """
    differing = [d for d in differences if d != 0]
    if not differing:
        return 1.0
    sizes = [abs(d) for d in differing]
    bound = abs(math.fsum(differing)) - 1e-12 * math.fsum(sizes)
    if len(sizes) <= _EXACT_SIGNS:
        sums = (abs(math.fsum(s * d for s, d in zip(signs, sizes, strict=True))) for signs in _signs(len(sizes)))
        return sum(total >= bound for total in sums) / (1 << len(sizes))
    rng = random.Random(seed)
    whole = math.fsum(sizes)
    extreme = 0
    for _ in range(_PERMUTATIONS):
        bits = rng.getrandbits(len(sizes))
        negative = sum(size for index, size in enumerate(sizes) if bits >> index & 1)
        extreme += abs(whole - 2 * negative) >= bound
    return (extreme + 1) / (_PERMUTATIONS + 1)


def _signs(n: int) -> itertools.product[tuple[int, ...]]:
    return itertools.product((1, -1), repeat=n)


def _bootstrap(
    sums: Sequence[float], sizes: Sequence[int], level: float, resamples: int, seed: int
) -> tuple[float, float]:
    """Percentile bounds of sum / size over resampled clusters."""
    rng = random.Random(seed)
    n = len(sums)
    resamples = max(200, min(resamples, _DRAWS // n))
    indices = range(n)
    means = []
    for _ in range(resamples):
        drawn = rng.choices(indices, k=n)
        means.append(sum(map(sums.__getitem__, drawn)) / sum(map(sizes.__getitem__, drawn)))
    means.sort()
    tail = (1 - level) / 2
    return means[math.floor(tail * (resamples - 1))], means[math.ceil((1 - tail) * (resamples - 1))]
