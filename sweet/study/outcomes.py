"""From the outcomes of the seeds to the results of the methods. Studies of other seeds can be added (`combined`).

A metric is a mean over seeds with a t-interval. A difference of two methods is also paired by task: for each task the
mean over the seeds that both have, with a bootstrap over tasks and a permutation test. With a single seed the spread is
unknown, and the interval is null. At equal wall clock, every method is read at the seconds that `sweet` needs on the
same seed: its last point by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from sweet.errors import UsageError
from sweet.json_value import JsonValue
from sweet.scoring.results.statistics import mean_difference, sign_flip_p_value, t_interval
from sweet.stages.intervals import Interval
from sweet.study.results import (
    Against,
    AtEqualSeconds,
    CurvePoint,
    Estimate,
    MethodResult,
    Reached,
    SeedOutcome,
    StudyResults,
)

SHARE = (0.0, 1.0)
"""The range of a share."""
DIFFERENCE = (-1.0, 1.0)
"""The range of a difference of shares."""

Outcomes = Mapping[str, Mapping[int, SeedOutcome]]
"""By method and seed."""
BySeed = Mapping[int, Sequence[Reached]]


def method_results(outcomes: Outcomes, settings: Mapping[str, Mapping[str, JsonValue]]) -> list[MethodResult]:
    """Return the results of every method that a seed has finished.

    Args:
        settings: of the methods, by name.
    """
    return [_method(name, dict(settings[name]), outcomes) for name in outcomes if outcomes[name]]


def _method(name: str, settings: dict[str, JsonValue], all_outcomes: Outcomes) -> MethodResult:
    outcomes = dict(sorted(all_outcomes[name].items()))
    every = list(outcomes.values())
    success = [fmean(outcome.by_task) for outcome in every]
    tokens = [outcome.generated_tokens for outcome in every if outcome.generated_tokens is not None]
    agreements = [outcome.agreement for outcome in every if outcome.agreement is not None]
    curve = _curves(outcomes)
    return MethodResult(
        method=name,
        success=estimate(success),
        success_by_seed=[round(value, 6) for value in success],
        tests_passed=estimate([outcome.tests_passed for outcome in every]),
        greedy_success=estimate([outcome.greedy_success for outcome in every]),
        generated_tokens=round(fmean(tokens), 1) if len(tokens) == len(every) else None,
        generated_tokens_by_seed=[outcome.generated_tokens for outcome in every],
        seconds=round(fmean(outcome.seconds for outcome in every), 1),
        seconds_by_seed=[round(outcome.seconds, 1) for outcome in every],
        agreement=estimate(agreements) if agreements else None,
        settings=settings,
        against_sweet=_minus("sweet", name, all_outcomes),
        against_plus=_minus("sweet-plus", name, all_outcomes),
        curve=mean_curve(curve),
        at_equal_seconds=at_equal_seconds(curve, _curves(all_outcomes.get("sweet", {}))),
        outcomes=outcomes,
    )


def _curves(outcomes: Mapping[int, SeedOutcome]) -> BySeed:
    return {seed: outcome.curve for seed, outcome in sorted(outcomes.items()) if outcome.curve}


def _minus(ours: str, theirs: str, outcomes: Outcomes) -> Against | None:
    """Return one method minus another; None where it is the same, or was not run."""
    return None if ours == theirs else against(outcomes.get(ours, {}), outcomes.get(theirs, {}))


def combined(first: StudyResults, second: StudyResults) -> StudyResults:
    """Return the results of two studies that differ in their seeds, or their methods, as one.

    The figures best of N and of credit are those of the first. Of a seed that both have, a method's outcome is that of
    the second.

    Raises:
        UsageError: they differ in something else, or the first has no outcomes by seed.
    """
    for field in ("family", "model", "test_tasks", "settings"):
        if getattr(first, field) != getattr(second, field):
            raise UsageError(f"The two studies are not of the same {field.replace('_', ' ')}.")
    if not all(result.outcomes for result in first.methods):
        raise UsageError("The first study was recorded without the outcomes of its seeds.")
    results = {result.method: result for result in (*first.methods, *second.methods)}
    first_methods = {result.method: result for result in first.methods}
    for name in first_methods.keys() & results.keys():
        if first_methods[name].settings != results[name].settings:
            raise UsageError(f"The two studies have different settings of the method {name}.")
    outcomes = {result.method: {**result.outcomes} for result in first.methods}
    for result in second.methods:
        outcomes[result.method] = {**outcomes.get(result.method, {}), **result.outcomes}
    return first.model_copy(
        update={
            "seeds": sorted({*first.seeds, *second.seeds}),
            "methods": method_results(outcomes, {name: result.settings for name, result in results.items()}),
        }
    )


def against(ours: Mapping[int, SeedOutcome], theirs: Mapping[int, SeedOutcome]) -> Against | None:
    """Return `ours` minus `theirs`, on the seeds that both have; None where they share none."""
    pairs = [(ours[seed].by_task, theirs[seed].by_task) for seed in sorted(ours.keys() & theirs.keys())]
    if not pairs:
        return None
    differences = [[first - second for first, second in zip(*pair, strict=True)] for pair in pairs]
    by_task = [fmean(row) for row in zip(*differences, strict=True)]
    over_tasks = mean_difference(by_task)
    return Against(
        difference=_rounded(over_tasks),
        p_value=float(f"{sign_flip_p_value(by_task):.6g}"),
        seeds_ci=estimate([fmean(row) for row in differences], DIFFERENCE).ci,
    )


def mean_curve(by_seed: BySeed) -> list[CurvePoint]:
    """Return the means over seeds, with intervals of the success: the first points, as many as all seeds have, and the
    end of each curve."""
    shortest = min((len(points) for points in by_seed.values()), default=1) - 1
    return [
        CurvePoint(
            tokens=_mean_tokens(points),
            seconds=round(fmean(point.seconds for point in points), 1),
            success=estimate([point.success for point in points]),
        )
        for points in zip(*([*points[:shortest], points[-1]] for points in by_seed.values()), strict=True)
    ]


def at_equal_seconds(by_seed: BySeed, sweet: BySeed) -> AtEqualSeconds | None:
    """Read a method's curve at the seconds that `sweet` needs; None where no seed has both."""
    pairs = [(by_seed[seed], sweet[seed][-1]) for seed in sorted(by_seed.keys() & sweet.keys())]
    if not pairs:
        return None
    reached = [[point for point in points if point.seconds <= ends.seconds][-1] for points, ends in pairs]
    differences = [ends.success - point.success for point, (_, ends) in zip(reached, pairs, strict=True)]
    return AtEqualSeconds(
        seconds=round(fmean(ends.seconds for _, ends in pairs), 1),
        tokens=_mean_tokens(reached),
        success=estimate([point.success for point in reached]),
        sweet_minus=estimate(differences, DIFFERENCE),
    )


def _mean_tokens(points: Sequence[Reached]) -> float | None:
    tokens = [point.tokens for point in points if point.tokens is not None]
    return round(fmean(tokens), 1) if len(tokens) == len(points) else None


def estimate(values: Sequence[float], within: tuple[float, float] = SHARE) -> Estimate:
    """Return the mean over seeds with its t-interval."""
    interval = t_interval(values, bounds=within)
    return Estimate(mean=round(fmean(values), 6)) if interval is None else _rounded(interval)


def _rounded(interval: Interval) -> Estimate:
    return Estimate(mean=round(interval.mean, 6), ci=(round(interval.low, 6), round(interval.high, 6)))
