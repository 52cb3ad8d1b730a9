"""Rates with intervals and paired comparisons, for dialogues in clusters: several of one task.

Dialogues of one task are correlated, and a further evaluation would draw other tasks, so the bootstrap resamples tasks,
and a comparison pairs them. The value of the best of k dialogues is an expectation over all choices of k, so nothing is
sampled for it (`expected_last`). Pure functions, deterministic under their seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from sweet.stages.intervals import LEVEL, Interval, bootstrap, clustered_mean, portions, wilson

if TYPE_CHECKING:
    from numpy.typing import NDArray

TESTS = {"mcnemar": "McNemar, exact", "permutation": "paired permutation"}
"""The names of the tests, in words."""
_EXACT_SIGNS = 14
"""Up to this number of differing pairs every assignment of signs is enumerated."""
_PERMUTATIONS = 10_000
_ROUNDING = 1e-11
"""Relative error of a sum of floats: values closer than this count as equal."""


@dataclass(frozen=True)
class Comparison:
    """Two evaluations of the same tasks, `ours` minus `theirs`.

    Attributes:
        difference: difference of the means over tasks, with its interval.
        p_value: two-sided, by `test`.
        win_rate: share of the tasks on which `ours` is higher; a tie counts half.
        wins, losses, ties: tasks on which `ours` is higher, lower, equal.
    """

    difference: Interval
    p_value: float
    test: Literal["mcnemar", "permutation"]
    win_rate: Interval
    wins: int
    losses: int
    ties: int


def t_interval(values: Sequence[float], *, bounds: tuple[float, float] = (-math.inf, math.inf)) -> Interval | None:
    """Return the mean of a few independent values (one per seed) with its 95 % interval by Student's t; None for a
    single value, whose spread is unknown.

    Args:
        bounds: the least and the greatest possible mean.
    """
    if len(values) < 2:
        return None
    mean = fmean(values)
    reach = student_t(LEVEL, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, max(mean - reach, bounds[0]), min(mean + reach, bounds[1]))


def student_t(level: float, freedom: int) -> float:
    """Return t such that a share of `level` of Student's distribution is between -t and t.

    With theta = atan(t / sqrt(freedom)) that share is a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4), which
    increases with theta, so theta is found by bisection.
    """
    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(theta: float, freedom: int) -> float:
    """Return the share of Student's distribution between -t and t, t = sqrt(freedom) tan(theta)."""
    odd = freedom % 2
    cosine, total = math.cos(theta), 0.0
    term = cosine if odd else 1.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    if odd:
        return 2 / math.pi * (theta + math.sin(theta) * total)
    return math.sin(theta) * total


def compare(
    ours: Mapping[str, float], theirs: Mapping[str, float], *, single: bool = False, span: float = 1.0
) -> Comparison:
    """Pair two evaluations by task, over the tasks that both have; each value is a task's mean over its dialogues.

    Args:
        single: both have one dialogue per task: McNemar's test is then used for values of 0 and 1.
        span: difference between the greatest and the least possible value.

    Raises:
        ValueError: they share no task.
    """
    by_task = differences(ours, theirs)
    if not by_task:
        raise ValueError("the two evaluations share no task")
    task_differences = list(by_task.values())
    won = [float(d > 0) + 0.5 * (d == 0) for d in task_differences]
    wins, losses = sum(d > 0 for d in task_differences), sum(d < 0 for d in task_differences)
    binary = single and all(side[task] in (0.0, 1.0) for task in by_task for side in (ours, theirs))
    return Comparison(
        difference=mean_difference(task_differences, span=span),
        p_value=mcnemar_p_value(wins, losses) if binary else sign_flip_p_value(task_differences),
        test="mcnemar" if binary else "permutation",
        win_rate=clustered_mean(won, list(by_task)),
        wins=wins,
        losses=losses,
        ties=len(task_differences) - wins - losses,
    )


def differences(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    """Return `ours` minus `theirs` of each task that both have, by its name.

    Values that only the rounding of a mean sets apart are equal: the mean of three times 0.1 is not the float 0.1.
    """
    pairs = {task: (ours[task], theirs[task]) for task in sorted(ours.keys() & theirs.keys())}
    near = {"rel_tol": _ROUNDING, "abs_tol": _ROUNDING}
    return {task: 0.0 if math.isclose(a, b, **near) else a - b for task, (a, b) in pairs.items()}


def mean_difference(
    differences: Sequence[float], *, span: float = 1.0, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Return the mean of paired differences, one per task, with its interval by bootstrap over tasks.

    If all are equal, a bootstrap has no spread, and the Wilson interval of their share of `span` is used, on both sides
    of zero if no task differs.
    """
    mean = fmean(differences)
    if max(differences) - min(differences) > _ROUNDING * span:
        low, high = bootstrap(differences, None, resamples, seed)
    else:
        low, high = (span * bound for bound in wilson(min(abs(mean) / span, 1.0), len(differences)))
        if mean == 0:
            low = -high
        elif mean < 0:
            low, high = -high, -low
    return Interval(mean, min(low, mean), max(high, mean))


def mcnemar_p_value(wins: int, losses: int) -> float:
    """Return the p-value of McNemar's exact test, two-sided.

    Under the null hypothesis each task on which the sides differ is a fair coin flip.
    """
    differing = wins + losses
    tail = sum(math.comb(differing, k) for k in range(min(wins, losses) + 1))
    return min(1.0, float(2 * tail / 2**differing))


def p_in_words(p_value: float) -> str:
    """Return a p-value in the form for quotation: `0.15`, `0.068`, `< 0.001`."""
    if p_value < 0.001:
        return "< 0.001"
    return f"{p_value:.2g}" if p_value < 0.1 else f"{p_value:.2f}"


def p_equals(p_value: float) -> str:
    """Return `p = 0.15` or `p < 0.001`."""
    words = p_in_words(p_value)
    return f"p {words}" if words.startswith("<") else f"p = {words}"


def sign_flip_p_value(differences: Sequence[float], *, seed: int = 0) -> float:
    """Return the p-value of the paired permutation test, two-sided.

    Under the null hypothesis the sign of each difference is a fair coin flip. Exact for few differing pairs; otherwise
    by random signs, with the observed ones included, so never 0.
    """
    import numpy as np

    sizes = np.abs([d for d in differences if d != 0])
    if not len(sizes):
        return 1.0
    whole = float(sizes.sum())
    bound = abs(math.fsum(differences)) - _ROUNDING * whole
    extreme = tried = 0
    for negative in _negated(len(sizes), seed):
        extreme += int((np.abs(whole - 2 * (negative @ sizes)) >= bound).sum())
        tried += len(negative)
    return extreme / tried if len(sizes) <= _EXACT_SIGNS else (extreme + 1) / (tried + 1)


def _negated(n: int, seed: int) -> Iterator[NDArray[Any]]:
    """Yield which of n differences change their sign, one row per assignment: all assignments, or random ones."""
    import numpy as np

    if n <= _EXACT_SIGNS:
        yield np.arange(2**n)[:, None] >> np.arange(n) & 1
        return
    generator = np.random.default_rng(seed)
    for count in portions(_PERMUTATIONS, n):
        yield generator.integers(0, 2, size=(count, n), dtype=np.int8)


def expected_last(k: int, ordered: Sequence[float]) -> float:
    """Return the expected value of the last of k items drawn without replacement from `ordered`, in its order.

    The item at index i is the last of C(i, k - 1) of the C(n, k) choices. With values in increasing order this is best
    of k; for values 0 and 1 it is pass@k, 1 - C(n - c, k) / C(n, k) with c ones (M. Chen et al., 2021, equation 1). In
    decreasing order it is worst of k, and for 0 and 1 pass^k, C(c, k) / C(n, k) (arXiv 2406.12045).
    """
    return math.fsum(weight * value for weight, value in zip(_last_of(k, len(ordered)), ordered, strict=True))


@lru_cache(maxsize=256)
def _last_of(k: int, n: int) -> tuple[float, ...]:
    choices = math.comb(n, k)
    return tuple(math.comb(index, k - 1) / choices for index in range(n))


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, … up to `most`."""
    return [2**power for power in range(most.bit_length())]


def binomial_deviation(rate: float, n: int) -> float:
    """Return the standard deviation of a share of n draws that succeed with this probability."""
    return math.sqrt(rate * (1 - rate) / n)
