"""Learning curves: the success on validation tasks by what a method had cost, in generated tokens and in seconds.

All curves start at the agent that all methods start from, which costs nothing. A method that learns from dialogues of
this agent has a point for each part of the budget (`StudySizes.parts`), each of which is a whole training from its own
dialogues; a method that learns online has one after every few of its steps (`StudySizes.curve_steps`). The validation
itself counts neither as tokens nor as time. At equal wall clock, every method is read at the seconds that `sweet`
needs on the same seed: its last point by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

from sweet.online.metrics import CurvePoint as OnlinePoint
from sweet.pipeline.steps import Step
from sweet.scoring.results.statistics import t_interval
from sweet.study.accounting import TOKENS, generated_tokens, seconds
from sweet.study.plan import SeedJob, divisors_of, read_seeds
from sweet.study.results import AtEqualSeconds, Bounds, CurvePoint
from sweet.study.settings import CURVES, Method
from sweet.study.study_steps import StudySteps

RATE = "success_rate"
SHARE = (0.0, 1.0)
"""The range of a share."""
DIFFERENCE = (-1.0, 1.0)
"""The range of a difference of shares."""


class Reached(NamedTuple):
    """A point of one seed's curve.

    Attributes:
        tokens: that the agent had generated; None where not known.
        seconds: of all steps until then.
        success: on validation tasks, at temperature 1.
    """

    tokens: int | None
    seconds: float
    success: float


BySeed = Mapping[int, Sequence[Reached]]


def curves(jobs: Sequence[SeedJob]) -> dict[str, BySeed]:
    """Return the curves of the methods that have one, by seed, without the seeds that have not finished all points."""
    methods = {method.name: method for method in jobs[0].methods}
    if "zero-shot" not in methods:
        return {}
    starts = read_seeds(jobs, partial(_points, method=methods["zero-shot"]))
    found: dict[str, BySeed] = {}
    for name in CURVES:
        if name in methods:
            read = partial(_points, method=methods[name])
            parts = [read_seeds(jobs, read, divisor) for divisor in divisors_of(methods[name], jobs[0])]
            whole = set(starts).intersection(*parts)
            by_seed = {
                seed: [*starts[seed], *(point for part in parts for point in part[seed])] for seed in sorted(whole)
            }
            if by_seed:
                found[name] = by_seed
    return found


def _points(steps: StudySteps, method: Method) -> list[Reached]:
    making, scores = steps.validated(method)
    end = Reached(generated_tokens(making), seconds(making), float(scores.metrics[RATE]))
    return [*_during(making[-1], end), end] if method.online else [end]


def _during(trained: Step, end: Reached) -> list[Reached]:
    """Return the points of an online training before its end. What the method needed before the training, a critic
    and its dialogues, is in all of them."""
    found = []
    before_tokens = None if end.tokens is None else end.tokens - int(trained.metrics[TOKENS])
    before_seconds = end.seconds - seconds([trained])
    for one in map(OnlinePoint.read, trained.metrics["curve"][:-1]):
        if one.validation is not None:
            tokens = None if before_tokens is None else before_tokens + one.tokens
            took = before_seconds + one.seconds - one.validation_seconds
            found.append(Reached(tokens, took, one.validation))
    return found


def mean_curve(by_seed: BySeed) -> list[CurvePoint]:
    """Return the means over seeds, with intervals of the success: the first points, as many as all seeds have, and the
    end of each curve."""
    shortest = min((len(points) for points in by_seed.values()), default=1) - 1
    return [
        CurvePoint(
            tokens=_mean_tokens(points),
            seconds=round(fmean(point.seconds for point in points), 1),
            success=mean_of([point.success for point in points]),
            success_ci=bounds_of([point.success for point in points], SHARE),
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
        success=mean_of([point.success for point in reached]),
        success_ci=bounds_of([point.success for point in reached], SHARE),
        sweet_minus=mean_of(differences),
        sweet_minus_ci=bounds_of(differences, DIFFERENCE),
    )


def _mean_tokens(points: Sequence[Reached]) -> float | None:
    tokens = [point.tokens for point in points if point.tokens is not None]
    return round(fmean(tokens), 1) if len(tokens) == len(points) else None


def mean_of(values: Sequence[float]) -> float:
    return round(fmean(values), 6)


def bounds_of(values: Sequence[float], within: tuple[float, float] = SHARE) -> Bounds | None:
    """Return the t-interval over seeds."""
    interval = t_interval(values, bounds=within)
    return None if interval is None else (round(interval.low, 6), round(interval.high, 6))
