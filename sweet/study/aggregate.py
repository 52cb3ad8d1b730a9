"""From the runs of a study to its results: what the ledgers know as finished, seed by seed, and the statistics over it.

A figure is a mean over seeds with a t-interval. A difference of two methods is also paired by task: of each task the
mean over the seeds that both have, with a bootstrap over tasks and a permutation test. Where there is one seed alone
nothing is known of the spread, and the interval is null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, TypeVar

from pydantic import JsonValue

from sweet.device import CORES
from sweet.runs.environment import environment
from sweet.scoring.results.evaluation import Evaluation
from sweet.scoring.results.statistics import mean_difference, sign_flip_p_value, t_interval
from sweet.stages.base import Silent
from sweet.study.plan import GREEDY, SAMPLED, SeedJob
from sweet.study.results import Against, Bounds, Columns, Credit, MethodResult, StudyResults
from sweet.study.settings import CRITICS, MAIN, Method
from sweet.study.step_cache import NotDone, ReadOnly
from sweet.study.study_steps import Lab

RATE, TESTS = "success_rate", "tests_passed"
_SHARE = (0.0, 1.0)
"""Between which a share lies."""

ByTask = Mapping[str, float]
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """What one seed's actor of one method did.

    Attributes:
        success: of each task, as its mean over dialogues; so is `tests`.
        greedy: mean success of the greedy actor.
        seconds: of everything that made the actor from the offline dialogues.
    """

    success: ByTask
    tests: ByTask
    greedy: float
    seconds: float


def gather(jobs: Sequence[SeedJob], family: str) -> StudyResults:
    """The results of every method that at least one of the seeds has finished."""
    outcomes = {method.name: look(jobs, partial(_outcome, method=method)) for method in jobs[0].methods}
    sweet = outcomes.get("sweet", {})
    tasks = {task for found in outcomes.values() for outcome in found.values() for task in outcome.success}
    return StudyResults(
        schema_version=1,
        family=family,
        seeds=[job.seed for job in jobs],
        test_tasks=max(1, len(tasks)),
        methods=[_method(method, found, sweet) for method in jobs[0].methods if (found := outcomes[method.name])],
        best_of=_best_of(jobs),
        offline=_offline(jobs),
        credit=_credit(jobs),
        settings=jobs[0].sizes.outcome_settings(),
        versions=_versions(),
    )


def look(jobs: Sequence[SeedJob], read: Callable[[Lab], T], divisor: int = 1) -> dict[int, T]:
    """What is read from each seed's run of a part of the training tasks, by seed; seeds that lack a step lack here."""
    found = {}
    for job in jobs:
        run, sizes = job.part_run(divisor)
        if (job.folder / run).is_dir():
            try:
                found[job.seed] = read(job.lab(run, sizes, ReadOnly, Silent()))
            except NotDone:
                continue
    return found


def success_of(lab: Lab, method: Method) -> float:
    """Mean success at temperature 1 of the method's actor."""
    return float(lab.evaluate(method, SAMPLED).metrics[RATE])


def against(ours: Mapping[int, ByTask], theirs: Mapping[int, ByTask]) -> Against | None:
    """`ours` less `theirs` on the seeds and the tasks that both have; None where they share none.

    Args:
        ours, theirs: success of each task, by seed.
    """
    pairs = [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
    shared = sorted(set.intersection(*({*a} & {*b} for a, b in pairs))) if pairs else []
    if not shared:
        return None
    by_task = [fmean(a[task] - b[task] for a, b in pairs) for task in shared]
    by_seed = [fmean(a[task] - b[task] for task in shared) for a, b in pairs]
    over_tasks = mean_difference(by_task)
    return Against(
        difference=_mean(by_task),
        ci=(round(over_tasks.low, 6), round(over_tasks.high, 6)),
        p_value=float(f"{sign_flip_p_value(by_task):.6g}"),
        seeds_ci=_bounds(by_seed, (-1.0, 1.0)),
    )


def _outcome(lab: Lab, method: Method) -> Outcome:
    sampled, greedy = (lab.evaluate(method, temperature) for temperature in (SAMPLED, GREEDY))
    making = {step.attempt.id: step.seconds for step in lab.making(method)}
    run = lab.ledger.run
    values = Evaluation(run, run.manifest(), sampled.artifact).values()
    return Outcome(values.means(RATE), values.means(TESTS), float(greedy.metrics[RATE]), sum(making.values()))


def _method(method: Method, found: Mapping[int, Outcome], sweet: Mapping[int, Outcome]) -> MethodResult:
    success = [fmean(outcome.success.values()) for outcome in found.values()]
    tests = [fmean(outcome.tests.values()) for outcome in found.values()]
    greedy = [outcome.greedy for outcome in found.values()]
    ours, theirs = ({seed: outcome.success for seed, outcome in side.items()} for side in (sweet, found))
    return MethodResult(
        method=method.name,
        success=_mean(success),
        success_ci=_bounds(success),
        success_by_seed=[round(value, 6) for value in success],
        tests_passed=_mean(tests),
        tests_passed_ci=_bounds(tests),
        greedy_success=_mean(greedy),
        greedy_success_ci=_bounds(greedy),
        seconds=round(fmean(outcome.seconds for outcome in found.values()), 1),
        settings=method.settings(),
        against_sweet=None if method.name == "sweet" else against(ours, theirs),
    )


def _best_of(jobs: Sequence[SeedJob]) -> Columns | None:
    """Success of the best of N by each critic; of the same dialogues also by chance, and by one who knows rewards."""
    columns: Columns = {}
    told: list[Any] = []
    for name, method in _critics(jobs):
        steps = look(jobs, partial(Lab.best_of, method=method)).values()
        if steps:
            told = [step.metrics["best_of"]["n"] for step in steps]
            _add_best_of(columns, name, told, "critic")
    for name in ("random", "oracle") if told else ():
        _add_best_of(columns, name, told, name)
    return columns or None


def _add_best_of(columns: Columns, name: str, told: Sequence[Any], chosen_by: str) -> None:
    """The curve of one who chooses, from what each seed's evaluation tells by N."""
    counts = sorted(set.intersection(*({*seed} for seed in told)), key=int)
    columns["n"] = [float(n) for n in counts]
    _add(columns, name, [[seed[n][chosen_by] for seed in told] for n in counts])


def _offline(jobs: Sequence[SeedJob]) -> Columns | None:
    """Success at temperature 1 of actors that learned from parts of the training tasks, and from all of them."""
    divisors, samples = (*jobs[0].sizes.parts, 1), jobs[0].sizes.samples
    columns: Columns = {"trajectories": [float(jobs[0].part_run(d)[1].train_tasks * samples) for d in divisors]}
    for method in jobs[0].methods:
        if method.name in MAIN:
            rows = [look(jobs, partial(success_of, method=method), d) for d in divisors]
            if all(rows):
                _add(columns, method.name, [[*row.values()] for row in rows])
    return columns if len(columns) > 1 else None


def _credit(jobs: Sequence[SeedJob]) -> Credit | None:
    """The mean advantage by kind of turn, and how often the order of a turn's replies is the true one."""
    found: dict[str, Any] = {"agreement": {}, "agreement_by_kind": {}}
    for name, method in _critics(jobs):
        told = [step.metrics for step in look(jobs, partial(Lab.credit, method=method)).values()]
        told = [metrics for metrics in told if "agreement" in metrics]
        if told:
            shares = [float(metrics["agreement"]) for metrics in told]
            by_kind = [metrics["agreement_by_kind"] for metrics in told]
            found[name] = _by_kind([metrics["credit"] for metrics in told], "mean_advantage", "mean")
            found["agreement"][name] = {"share": _mean(shares), "ci": _bounds(shares)}
            found["agreement_by_kind"][name] = _by_kind(by_kind, "share", "share", _SHARE)
    return Credit.model_validate(found) if found["agreement"] else None


def _by_kind(
    told: Sequence[Mapping[str, Mapping[str, float]]],
    figure: str,
    name: str,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> dict[str, Any]:
    """A figure by kind under its name in the results, over the seeds that saw the kind."""
    kinds = sorted({kind for seed in told for kind in seed})
    values = {kind: [float(seed[kind][figure]) for seed in told if kind in seed] for kind in kinds}
    return {kind: {name: _mean(row), "ci": _bounds(row, within)} for kind, row in values.items()}


def _critics(jobs: Sequence[SeedJob]) -> list[tuple[str, Method]]:
    """The critics to look at, by their name in the results."""
    by_name = {method.name: method for method in jobs[0].methods}
    return [(name, by_name[method]) for name, method in CRITICS.items() if method in by_name]


def _add(columns: Columns, name: str, rows: Sequence[Sequence[float]]) -> None:
    """A curve and its intervals; each row holds the values of the seeds."""
    columns[name] = [_mean(row) for row in rows]
    columns[f"{name}_ci"] = [_bounds(row) for row in rows]


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 6)


def _bounds(values: Sequence[float], within: tuple[float, float] = _SHARE) -> Bounds | None:
    """The t-interval over seeds."""
    found = t_interval(values, bounds=within)
    return None if found is None else (round(found.low, 6), round(found.high, 6))


def _versions() -> dict[str, JsonValue]:
    here = environment("code")
    packages = {name: here["versions"].get(name) for name in ("torch", "transformers")}
    return {"python": here["python"], "sweet": here["sweet"], **packages, CORES: here[CORES]}
