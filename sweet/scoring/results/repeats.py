"""Measure how much an evaluation varies by chance alone.

A repeat is one dialogue on every task: the dialogues with one sample number, and those of other evaluations whose
rollouts differ only in the seed. The binomial deviation is the standard deviation that their rates would have if every
dialogue of every task succeeded with the same probability; with the same tasks each time, less is expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.dialogue import sample_of
from sweet.runs.run import Run
from sweet.scoring.results.evaluation import Evaluation, Values, evaluations
from sweet.scoring.results.metrics import RepeatRate, RepeatsMetrics
from sweet.scoring.results.statistics import binomial_deviation

_COMPLETE = 0.9
"""A repeat with less than this share of the tasks of the most complete one is ignored."""


class Repeat(NamedTuple):
    """One dialogue on each task; `scores` is the reference to its scores, `values` are by task."""

    scores: str
    sample: int
    seed: int | None
    values: dict[str, float]


def measure_repeats(evaluation: Evaluation, values: Values, runs: Iterable[Run]) -> RepeatsMetrics:
    """Return the rates of the repeats, their mean and their deviation.

    Args:
        runs: runs to search for other evaluations, besides the evaluation's own run.
    """
    name = next(iter(evaluation.kind.metrics))
    repeats = _repeats(evaluation, values, name)
    for other in other_seeds(evaluation, evaluation.run, *runs):
        repeats += _repeats(other, other.values(), name)
    fullest = max((len(repeat.values) for repeat in repeats), default=0)
    complete = [repeat for repeat in repeats if len(repeat.values) >= _COMPLETE * fullest]
    tasks = sorted(set.intersection(*(set(repeat.values) for repeat in complete))) if complete else []
    if not tasks:
        return RepeatsMetrics(figure=name, repeats=0, left_out=len(repeats), tasks=0, rates=[])
    rates = [fmean(repeat.values[task] for task in tasks) for repeat in complete]
    binary = all(repeat.values[task] in (0.0, 1.0) for repeat in complete for task in tasks)
    mean = fmean(rates)
    return RepeatsMetrics(
        figure=name,
        repeats=len(complete),
        left_out=len(repeats) - len(complete),
        tasks=len(tasks),
        mean=round(mean, 6),
        deviation=round(stdev(rates), 6) if len(rates) > 1 else None,
        binomial_deviation=round(binomial_deviation(mean, len(tasks)), 6) if binary else None,
        rates=[
            RepeatRate(scores=repeat.scores, sample=repeat.sample, seed=repeat.seed, rate=round(rate, 6))
            for repeat, rate in zip(complete, rates, strict=True)
        ],
    )


def _repeats(evaluation: Evaluation, values: Values, figure: str) -> list[Repeat]:
    """Return an evaluation's dialogues by their sample number."""
    by_sample: dict[int, dict[str, float]] = {}
    for task, row in values.of(figure).items():
        for number, value in zip(_sample_numbers(values.ids[task], task, len(row)), row, strict=True):
            by_sample.setdefault(number, {})[task] = value
    recorded = evaluation.played.get("seed")
    seed = recorded if isinstance(recorded, int) else None
    return [Repeat(evaluation.name, number, seed, by_sample[number]) for number in sorted(by_sample)]


def _sample_numbers(names: Sequence[str], task: str, count: int) -> list[int]:
    """Return the sample numbers in the ids of a task's dialogues; their indices if the ids have another form."""
    numbers = [number for name in names if (number := sample_of(name, task)) is not None]
    return numbers if len(set(numbers)) == len(names) == count else list(range(count))


def other_seeds(evaluation: Evaluation, *runs: Run) -> list[Evaluation]:
    """Return the newest evaluation in these runs of every other seed with the same settings."""
    settings = _settings(evaluation)
    by_seed: dict[Any, Evaluation] = {}
    if settings is None:
        return []
    for run in {run.path.resolve(): run for run in runs}.values():
        for other in evaluations(run):
            if _settings(other) == settings and other.played["seed"] != evaluation.played["seed"]:
                by_seed[other.played["seed"]] = other
    return [by_seed[seed] for seed in sorted(by_seed)]


def _settings(evaluation: Evaluation) -> dict[str, Any] | None:
    """Return all settings, except the seed, that affect a dialogue and its score; None if they are not recorded."""
    if evaluation.played_by is None or "seed" not in evaluation.played:
        return None
    skipped = {"seed", "samples", *RolloutConfig.operational()}
    played = {key: value for key, value in evaluation.played.items() if key not in skipped}
    scored = {key: value for key, value in evaluation.scores.meta.items() if key != "rollouts"}
    return {"kind": evaluation.manifest.task, "played": played, "scored": scored}
