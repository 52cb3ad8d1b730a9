"""From the runs of a study to its results: the finished steps of each seed, and the statistics over the seeds.

A metric is a mean over seeds with a t-interval. A difference of two methods is also paired by task: for each task the
mean over the seeds that both have, with a bootstrap over tasks and a permutation test. With a single seed the spread is
unknown, and the interval is null.

A learning curve is the success on validation tasks by what a method had cost, in generated tokens and in seconds. All
curves start at the agent that all methods start from, which costs nothing. A method that learns from dialogues of this
agent has a point for each part of the budget (`StudySizes.parts`), each of which is a whole training from its own
dialogues; a method that learns online has one after every few of its steps (`StudySizes.curve_steps`). The validation
itself counts neither as tokens nor as time. At equal wall clock, every method is read at the seconds that `sweet`
needs on the same seed: its last point by then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

from sweet.device import CORES
from sweet.json_value import JsonValue
from sweet.online.metrics import CurvePoint as OnlinePoint
from sweet.pipeline.steps import Step
from sweet.runs.environment import environment
from sweet.scoring.results.evaluation import Evaluation
from sweet.scoring.results.statistics import mean_difference, sign_flip_p_value, t_interval
from sweet.study.results import Against, AtEqualSeconds, BestOf, Bounds, Credit, CurvePoint, MethodResult, StudyResults
from sweet.study.settings import CRITICS, CURVES, TURN_JUDGES, Method
from sweet.study.study_steps import (
    GREEDY,
    SAMPLED,
    TOKENS,
    SeedJob,
    StudySteps,
    generated_tokens,
    read_seeds,
    seconds,
)

RATE, TESTS = "success_rate", "tests_passed"
SHARE = (0.0, 1.0)
"""The range of a share."""
DIFFERENCE = (-1.0, 1.0)
"""The range of a difference of shares."""

ByTask = Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """The evaluation of one seed's actor of one method.

    Attributes:
        success: by task, the mean over its dialogues.
        tests: share of the tests passed by task, the mean over its dialogues.
        greedy: mean success of the greedy actor.
        tokens: that the agent generated for the method (`sweet.study.study_steps`); None where not known.
        seconds: of all steps that the method needs, from its dialogues to the actor.
    """

    success: ByTask
    tests: ByTask
    greedy: float
    tokens: int | None
    seconds: float


def aggregate(jobs: Sequence[SeedJob], family: str) -> StudyResults:
    """Return the results of every method that at least one seed has finished."""
    outcomes = {method.name: read_seeds(jobs, partial(_outcome, method=method)) for method in jobs[0].methods}
    tasks = {task for by_seed in outcomes.values() for outcome in by_seed.values() for task in outcome.success}
    learned = curves(jobs)
    of_sweet = learned.get("sweet", {})
    return StudyResults(
        schema_version=1,
        family=family,
        seeds=[job.seed for job in jobs],
        test_tasks=max(1, len(tasks)),
        methods=[
            _method(method, outcomes, learned.get(method.name, {}), of_sweet)
            for method in jobs[0].methods
            if outcomes[method.name]
        ],
        best_of=_best_of(jobs),
        best_of_turns=_best_of_turns(jobs),
        credit=_credit(jobs),
        settings=jobs[0].sizes.outcome_settings(),
        versions=_versions(),
    )


def against(ours: Mapping[int, ByTask], theirs: Mapping[int, ByTask]) -> Against | None:
    """Compare two methods on the seeds and the tasks that both have.

    Args:
        ours: success by task, by seed.
        theirs: the same of the other method.

    Returns:
        `ours` minus `theirs`; None where they share no task.
    """
    pairs = [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
    shared = sorted(set.intersection(*({*a} & {*b} for a, b in pairs))) if pairs else []
    if not shared:
        return None
    by_task = [fmean(a[task] - b[task] for a, b in pairs) for task in shared]
    by_seed = [fmean(a[task] - b[task] for task in shared) for a, b in pairs]
    over_tasks = mean_difference(by_task)
    return Against(
        difference=mean_of(by_task),
        ci=(round(over_tasks.low, 6), round(over_tasks.high, 6)),
        p_value=float(f"{sign_flip_p_value(by_task):.6g}"),
        seeds_ci=bounds_of(by_seed, (-1.0, 1.0)),
    )


def _outcome(steps: StudySteps, method: Method) -> Outcome:
    sampled, greedy = (steps.evaluate(method, temperature) for temperature in (SAMPLED, GREEDY))
    making, run = steps.making(method), steps.cache.run
    values = Evaluation(run, run.manifest(), sampled.artifact).values()
    return Outcome(
        values.means(RATE),
        values.means(TESTS),
        float(greedy.metrics[RATE]),
        generated_tokens(making),
        seconds(making),
    )


def _method(
    method: Method, all_outcomes: Mapping[str, Mapping[int, Outcome]], curve: BySeed, of_sweet: BySeed
) -> MethodResult:
    """Return a method's results.

    Args:
        all_outcomes: by method and seed.
        curve: the learning curve of the method; of_sweet: that of `sweet`.
    """
    outcomes = all_outcomes[method.name]
    success = [fmean(outcome.success.values()) for outcome in outcomes.values()]
    tests = [fmean(outcome.tests.values()) for outcome in outcomes.values()]
    greedy = [outcome.greedy for outcome in outcomes.values()]
    tokens = [outcome.tokens for outcome in outcomes.values() if outcome.tokens is not None]
    return MethodResult(
        method=method.name,
        success=mean_of(success),
        success_ci=bounds_of(success),
        success_by_seed=[round(value, 6) for value in success],
        tests_passed=mean_of(tests),
        tests_passed_ci=bounds_of(tests),
        greedy_success=mean_of(greedy),
        greedy_success_ci=bounds_of(greedy),
        generated_tokens=round(fmean(tokens), 1) if len(tokens) == len(outcomes) else None,
        generated_tokens_by_seed=[outcome.tokens for outcome in outcomes.values()],
        seconds=round(fmean(outcome.seconds for outcome in outcomes.values()), 1),
        seconds_by_seed=[round(outcome.seconds, 1) for outcome in outcomes.values()],
        settings=method.settings(),
        against_sweet=_minus("sweet", method.name, all_outcomes),
        against_plus=_minus("sweet-plus", method.name, all_outcomes),
        curve=mean_curve(curve),
        at_equal_seconds=at_equal_seconds(curve, of_sweet),
    )


def _minus(ours: str, theirs: str, outcomes: Mapping[str, Mapping[int, Outcome]]) -> Against | None:
    """Return one method minus another; None where it is the same, or was not run."""
    if ours == theirs:
        return None
    of_ours, of_theirs = (
        {seed: outcome.success for seed, outcome in outcomes.get(name, {}).items()} for name in (ours, theirs)
    )
    return against(of_ours, of_theirs)


def _best_of(jobs: Sequence[SeedJob]) -> dict[str, list[BestOf]] | None:
    """Return the success of the best of N dialogues by each critic, and of the same chosen at random and by reward."""
    found: dict[str, list[BestOf]] = {}
    by_seed: list[Any] = []
    for name, method in _measured(jobs, CRITICS):
        steps = read_seeds(jobs, partial(StudySteps.best_of, method=method)).values()
        if steps:
            by_seed = [step.metrics["best_of"]["n"] for step in steps]
            found[name] = _chosen_by("critic", by_seed)
    return found | {name: _chosen_by(name, by_seed) for name in ("random", "oracle") if by_seed} or None


def _chosen_by(name: str, by_seed: Sequence[Any]) -> list[BestOf]:
    """Return the curve of one way to choose, from the metrics by N of each seed's evaluation."""
    counts = sorted(set.intersection(*({*seed} for seed in by_seed)), key=int)
    return [_best(int(n), [seed[n][name] for seed in by_seed]) for n in counts]


def _best(n: int, values: Sequence[float]) -> BestOf:
    return BestOf(n=n, success=mean_of(values), success_ci=bounds_of(values))


def _best_of_turns(jobs: Sequence[SeedJob]) -> dict[str, list[BestOf]] | None:
    """Return the success where each judge chooses the best of N replies at each turn.

    A reply that is drawn at random from N is distributed like a single one, so `random` is the success at N = 1.
    """
    found: dict[str, list[BestOf]] = {}
    single: dict[int, float] = {}
    for name, method in _measured(jobs, TURN_JUDGES):
        by_seed = read_seeds(jobs, partial(_success_by_n, method=method))
        if by_seed:
            counts = sorted(next(iter(by_seed.values())))
            found[name] = [_best(n, [seed[n] for seed in by_seed.values()]) for n in counts]
            single |= {seed: one[1] for seed, one in by_seed.items()}
    if found:
        found["random"] = [_best(one.n, list(single.values())) for one in next(iter(found.values()))]
    return found or None


def _success_by_n(steps: StudySteps, method: Method) -> dict[int, float]:
    return {n: float(step.metrics[RATE]) for n, step in steps.best_of_turns(method).items()}


def _credit(jobs: Sequence[SeedJob]) -> Credit | None:
    """Return the mean advantage by kind of turn, and how often a critic orders a turn's replies correctly."""
    found: dict[str, Any] = {"agreement": {}, "agreement_by_kind": {}}
    for name, method in _measured(jobs, CRITICS):
        steps = read_seeds(jobs, partial(StudySteps.credit, method=method)).values()
        by_seed = [step.metrics for step in steps if "agreement" in step.metrics]
        if by_seed:
            shares = [float(metrics["agreement"]) for metrics in by_seed]
            by_kind = [metrics["agreement_by_kind"] for metrics in by_seed]
            found[name] = _by_kind([metrics["credit"] for metrics in by_seed], "mean_advantage", "mean")
            found["agreement"][name] = {"share": mean_of(shares), "ci": bounds_of(shares)}
            found["agreement_by_kind"][name] = _by_kind(by_kind, "share", "share", SHARE)
    return Credit.model_validate(found) if found["agreement"] else None


def _by_kind(
    by_seed: Sequence[Mapping[str, Mapping[str, float]]],
    metric: str,
    name: str,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> dict[str, Any]:
    """Return a metric by kind, under its name in the results, over the seeds that have replies of the kind."""
    kinds = sorted({kind for seed in by_seed for kind in seed})
    values = {kind: [float(seed[kind][metric]) for seed in by_seed if kind in seed] for kind in kinds}
    return {kind: {name: mean_of(row), "ci": bounds_of(row, within)} for kind, row in values.items()}


def _measured(jobs: Sequence[SeedJob], judges: Mapping[str, str]) -> list[tuple[str, Method]]:
    """Return the judges that the study has, with their names in the results."""
    by_name = {method.name: method for method in jobs[0].methods}
    return [(name, by_name[method]) for name, method in judges.items() if method in by_name]


def _versions() -> dict[str, JsonValue]:
    current = environment("code")
    packages = {name: current["versions"].get(name) for name in ("torch", "transformers")}
    return {"python": current["python"], "sweet": current["sweet"], **packages, CORES: current[CORES]}


# Learning curves -----------------------------------------------------------------------------------------------------


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
    starts = read_seeds(jobs, partial(_points, method=methods["zero-shot"], divisor=1))
    found: dict[str, BySeed] = {}
    for name in CURVES:
        if name in methods:
            learned = read_seeds(jobs, partial(_curve, method=methods[name]))
            by_seed = {seed: [*starts[seed], *learned[seed]] for seed in sorted(starts.keys() & learned.keys())}
            if by_seed:
                found[name] = by_seed
    return found


def _curve(steps: StudySteps, method: Method) -> list[Reached]:
    return [point for divisor in steps.sizes.divisors(method) for point in _points(steps, method, divisor)]


def _points(steps: StudySteps, method: Method, divisor: int) -> list[Reached]:
    making, scores = steps.validated(method, divisor)
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
