"""From the runs of a study to its results: the finished steps of each seed, and the statistics over the seeds.

A metric is a mean over seeds with a t-interval. A difference of two methods is also paired by task: for each task the
mean over the seeds that both have, with a bootstrap over tasks and a permutation test. With a single seed the spread is
unknown, and the interval is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from sweet.device import CORES
from sweet.json_value import JsonValue
from sweet.runs.environment import environment
from sweet.scoring.results.evaluation import Evaluation
from sweet.scoring.results.statistics import mean_difference, sign_flip_p_value
from sweet.study.accounting import generated_tokens, seconds
from sweet.study.curves import RATE, SHARE, BySeed, at_equal_seconds, bounds_of, curves, mean_curve, mean_of
from sweet.study.plan import GREEDY, SAMPLED, SeedJob, read_seeds
from sweet.study.results import Against, Columns, Credit, MethodResult, StudyResults
from sweet.study.settings import CRITICS, TURN_JUDGES, Method
from sweet.study.study_steps import StudySteps

TESTS = "tests_passed"
ByTask = Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """The evaluation of one seed's actor of one method.

    Attributes:
        success: by task, the mean over its dialogues.
        tests: share of the tests passed by task, the mean over its dialogues.
        greedy: mean success of the greedy actor.
        tokens: that the agent generated for the method (`sweet.study.accounting`); None where not known.
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


def success_of(steps: StudySteps, method: Method) -> float:
    """Return the mean success of the method's actor at temperature 1."""
    return float(steps.evaluate(method, SAMPLED).metrics[RATE])


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


def _best_of(jobs: Sequence[SeedJob]) -> Columns | None:
    """Return the success of the best of N dialogues by each critic, and of the same chosen at random and by reward."""
    columns: Columns = {}
    by_seed: list[Any] = []
    for name, method in _measured(jobs, CRITICS):
        steps = read_seeds(jobs, partial(StudySteps.best_of, method=method)).values()
        if steps:
            by_seed = [step.metrics["best_of"]["n"] for step in steps]
            _add_best_of(columns, name, by_seed, "critic")
    for name in ("random", "oracle") if by_seed else ():
        _add_best_of(columns, name, by_seed, name)
    return columns or None


def _add_best_of(columns: Columns, name: str, by_seed: Sequence[Any], chosen_by: str) -> None:
    """Add the curve of one way to choose, from the metrics by N of each seed's evaluation."""
    counts = sorted(set.intersection(*({*seed} for seed in by_seed)), key=int)
    columns["n"] = [float(n) for n in counts]
    _add(columns, name, [[seed[n][chosen_by] for seed in by_seed] for n in counts])


def _best_of_turns(jobs: Sequence[SeedJob]) -> Columns | None:
    """Return the success where each judge chooses the best of N replies at each turn.

    A reply that is drawn at random from N is distributed like a single one, so `random` is the success at N = 1.
    """
    columns: Columns = {}
    single: dict[int, float] = {}
    for name, method in _measured(jobs, TURN_JUDGES):
        by_seed = read_seeds(jobs, partial(_success_by_n, method=method))
        if by_seed:
            counts = sorted(next(iter(by_seed.values())))
            columns["n"] = [float(n) for n in counts]
            _add(columns, name, [[seed[n] for seed in by_seed.values()] for n in counts])
            single |= {seed: found[1] for seed, found in by_seed.items()}
    if columns:
        _add(columns, "random", [list(single.values())] * len(columns["n"]))
    return columns or None


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


def _add(columns: Columns, name: str, rows: Sequence[Sequence[float]]) -> None:
    """Add a curve and its intervals; each row has the values of the seeds."""
    columns[name] = [mean_of(row) for row in rows]
    columns[f"{name}_ci"] = [bounds_of(row) for row in rows]


def _versions() -> dict[str, JsonValue]:
    current = environment("code")
    packages = {name: current["versions"].get(name) for name in ("torch", "transformers")}
    return {"python": current["python"], "sweet": current["sweet"], **packages, CORES: current[CORES]}
