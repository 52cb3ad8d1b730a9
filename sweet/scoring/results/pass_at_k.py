"""pass@k, pass^k and best of k over several dialogues of a task, k = 1, 2, 4, …

pass@k is the probability that at least one of k dialogues of a task solves it, pass^k that all k do (arXiv 2406.12045),
best of k the expected reward of the best of k: each over every choice of k of the existing dialogues
(`statistics.expected_last`), over the tasks that have at least k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweet.scoring.results.evaluation import REWARD, Values
from sweet.scoring.results.metrics import ComparedRate, ComparedSamples, SampledRate, SamplesMetrics
from sweet.scoring.results.statistics import differences, expected_last, mean_difference, powers_of_two
from sweet.stages.intervals import clustered_mean
from sweet.tasks.scores import RewardRule

ByTask = Mapping[str, Sequence[float]]


def measure_samples(values: Values, rule: RewardRule) -> SamplesMetrics:
    """Return `pass_at_k`, `pass_hat_k` and `best_of_k`, by k; none if every task has one dialogue."""
    rates = {
        name: {str(k): _rate(_at(name, worth, k), bounds) for k in powers_of_two(_most(worth))}
        for name, (worth, bounds) in _measures(values, rule).items()
        if _most(worth) > 1
    }
    return SamplesMetrics(**rates)


def compare_samples(a: Values, b: Values, rule: RewardRule, shared: Sequence[str]) -> ComparedSamples:
    """Return the same for both sides over the shared tasks that have k dialogues on both, and the difference."""
    compared: dict[str, dict[str, ComparedRate]] = {}
    theirs = _measures(b, rule)
    for name, (worth, bounds) in _measures(a, rule).items():
        sides = [{task: side[task] for task in shared} for side in (worth, theirs[name][0])]
        most = max((min(len(sides[0][task]), len(sides[1][task])) for task in shared), default=0)
        if most > 1:
            at = {k: [_at(name, side, k) for side in sides] for k in powers_of_two(most)}
            compared[name] = {str(k): _compared(ours, theirs_at_k, bounds) for k, (ours, theirs_at_k) in at.items()}
    return ComparedSamples(**compared)


def _measures(values: Values, rule: RewardRule) -> dict[str, tuple[ByTask, tuple[float, float]]]:
    """Return the value of each dialogue of a task, and its bounds, for each measure that the kind of task has."""
    rewards = values.of(REWARD)
    measures: dict[str, tuple[ByTask, tuple[float, float]]] = {}
    if rule.solved is not None:
        solved = {task: [rule.worth(r) for r in row] for task, row in rewards.items()}
        measures |= dict.fromkeys(("pass_at_k", "pass_hat_k"), (solved, (0.0, 1.0)))
    measures["best_of_k"] = rewards, values.bounds(REWARD)
    return measures


def _most(worth: ByTask) -> int:
    return max(map(len, worth.values()), default=0)


def _at(name: str, worth: ByTask, k: int) -> dict[str, float]:
    """Return the measure for each task that has k dialogues: the value of the best of k, or for pass^k of the worst."""
    worst = name == "pass_hat_k"
    return {task: expected_last(k, sorted(row, reverse=worst)) for task, row in worth.items() if len(row) >= k}


def _rate(values: Mapping[str, float], bounds: tuple[float, float]) -> SampledRate:
    return SampledRate(tasks=len(values), rate=clustered_mean([*values.values()], [*values], bounds=bounds).rate())


def _compared(ours: Mapping[str, float], theirs: Mapping[str, float], bounds: tuple[float, float]) -> ComparedRate:
    by_task = differences(theirs, ours)
    difference = mean_difference(list(by_task.values()), span=bounds[1] - bounds[0])
    means = [clustered_mean([best[task] for task in by_task], list(by_task), bounds=bounds) for best in (ours, theirs)]
    return ComparedRate(tasks=len(by_task), a=means[0].rate(), b=means[1].rate(), difference=difference.rate())
