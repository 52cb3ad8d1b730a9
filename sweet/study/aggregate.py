"""From the runs of a study to its results: the finished steps of each seed, and the statistics over the seeds.

A learning curve is the success on validation tasks by what a method had cost, in generated tokens and in seconds. All
curves start at the agent that all methods start from, which costs nothing. A method that learns from dialogues of this
agent has a point for each part of the budget (`StudySizes.parts`), each of which is a whole training from its own
dialogues; a method that learns online has one after every few of its steps (`StudySizes.curve_steps`). The validation
itself counts neither as tokens nor as time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from sweet.device import CORES
from sweet.json_value import JsonValue
from sweet.online.metrics import CurvePoint as OnlinePoint
from sweet.pipeline.steps import Step
from sweet.runs.content import measure
from sweet.runs.environment import environment
from sweet.scoring.results.evaluation import Evaluation
from sweet.stages.base import digest_of
from sweet.study.outcomes import SHARE, BySeed, estimate, method_results
from sweet.study.results import BestOf, Credit, Estimate, Reached, SeedOutcome, StudyResults
from sweet.study.settings import CRITICS, CURVES, TURN_JUDGES, Method, StudySizes
from sweet.study.study_steps import (
    GREEDY,
    RATE,
    SAMPLED,
    TOKENS,
    SeedJob,
    StudySteps,
    generated_tokens,
    read_seeds,
    seconds,
)
from sweet.tasks.packaged import PACKAGED
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TRAIN, VALIDATION

TESTS = "tests_passed"
AGREEMENT = "agreement"
"""The metric of rankings, and of online trainings."""


def aggregate(jobs: Sequence[SeedJob], family: str) -> StudyResults:
    """Return the results of every method that at least one seed has finished."""
    outcomes = {method.name: read_seeds(jobs, partial(outcome, method=method)) for method in jobs[0].methods}
    for name, by_seed in curves(jobs).items():
        for seed in by_seed.keys() & outcomes[name].keys():
            outcomes[name][seed] = outcomes[name][seed].model_copy(update={"curve": by_seed[seed]})
    return StudyResults(
        schema_version=1,
        family=family,
        seeds=[job.seed for job in jobs],
        test_tasks=max((len(result.success) for seeds in outcomes.values() for result in seeds.values()), default=1),
        methods=method_results(outcomes, {method.name: method.settings() for method in jobs[0].methods}),
        best_of=_best_of(jobs),
        best_of_turns=_best_of_turns(jobs),
        credit=_credit(jobs),
        settings=jobs[0].sizes.outcome_settings(),
        digests=digests(jobs[0].sizes),
        versions=_versions(),
    )


def digests(sizes: StudySizes) -> dict[str, JsonValue]:
    """Return the digests of the agent's weights and of the tasks, of which the settings have only the names."""
    agent = PACKAGED.get(sizes.agent, Path(sizes.agent))
    kind = task_kind(sizes.kind)
    splits = (TRAIN, VALIDATION, sizes.split)
    tasks: dict[str, JsonValue] = {
        split: digest_of([task.model_dump(mode="json") for task in kind.load(sizes.tasks, split)]) for split in splits
    }
    return {"agent": measure(agent).sha256 if agent.is_dir() else sizes.agent, "tasks": tasks}


def outcome(steps: StudySteps, method: Method) -> SeedOutcome:
    """Return what a method has reached on a seed."""
    sampled, greedy = (steps.evaluate(method, temperature) for temperature in (SAMPLED, GREEDY))
    making, run = steps.making(method), steps.cache.run
    values = Evaluation(run, run.manifest(), sampled.artifact).values()
    by_task = values.means(RATE)
    return SeedOutcome(
        success="".join(f"{by_task[task]:.0f}" for task in sorted(by_task)),
        tests_passed=round(fmean(values.means(TESTS).values()), 6),
        greedy_success=float(greedy.metrics[RATE]),
        generated_tokens=generated_tokens(making),
        seconds=round(seconds(making), 1),
        agreement=next((step.metrics[AGREEMENT] for step in reversed(making) if AGREEMENT in step.metrics), None),
    )


def _best_of(jobs: Sequence[SeedJob]) -> dict[str, list[BestOf]] | None:
    """Return the success of the best of N dialogues by each critic, and of the same chosen at random and by reward."""
    best_of: dict[str, list[BestOf]] = {}
    by_seed: list[Any] = []
    for name, method in _measured(jobs, CRITICS):
        steps = read_seeds(jobs, partial(StudySteps.best_of, method=method)).values()
        if steps:
            by_seed = [step.metrics["best_of"]["n"] for step in steps]
            best_of[name] = _chosen_by("critic", by_seed)
    return best_of | {name: _chosen_by(name, by_seed) for name in ("random", "oracle") if by_seed} or None


def _chosen_by(name: str, by_seed: Sequence[Any]) -> list[BestOf]:
    """Return the curve of one way to choose, from the metrics by N of each seed's evaluation."""
    counts = sorted(set.intersection(*({*seed} for seed in by_seed)), key=int)
    return [BestOf(n=int(n), success=estimate([seed[n][name] for seed in by_seed])) for n in counts]


def _best_of_turns(jobs: Sequence[SeedJob]) -> dict[str, list[BestOf]] | None:
    """Return the success where each judge chooses the best of N replies at each turn.

    A reply that is drawn at random from N is distributed like a single one, so `random` is the success at N = 1.
    """
    best_of: dict[str, list[BestOf]] = {}
    single: dict[int, float] = {}
    for name, method in _measured(jobs, TURN_JUDGES):
        steps = read_seeds(jobs, partial(StudySteps.best_of_turns, method=method))
        by_seed = {seed: {n: float(step.metrics[RATE]) for n, step in by_n.items()} for seed, by_n in steps.items()}
        if by_seed:
            counts = sorted(next(iter(by_seed.values())))
            best_of[name] = [BestOf(n=n, success=estimate([seed[n] for seed in by_seed.values()])) for n in counts]
            single |= {seed: by_n[1] for seed, by_n in by_seed.items()}
    if best_of:
        chance = estimate(list(single.values()))
        best_of["random"] = [BestOf(n=point.n, success=chance) for point in next(iter(best_of.values()))]
    return best_of or None


def _credit(jobs: Sequence[SeedJob]) -> Credit | None:
    """Return the mean advantage by kind of turn, and how often a critic orders a turn's replies correctly."""
    figures: dict[str, Any] = {"agreement": {}, "agreement_by_kind": {}}
    for name, method in _measured(jobs, CRITICS):
        steps = read_seeds(jobs, partial(StudySteps.credit, method=method)).values()
        by_seed = [step.metrics for step in steps if "agreement" in step.metrics]
        if by_seed:
            by_kind = [metrics["agreement_by_kind"] for metrics in by_seed]
            figures[name] = _by_kind([metrics["credit"] for metrics in by_seed], "mean_advantage")
            figures["agreement"][name] = estimate([float(metrics["agreement"]) for metrics in by_seed])
            figures["agreement_by_kind"][name] = _by_kind(by_kind, "share", SHARE)
    return Credit.model_validate(figures) if figures["agreement"] else None


def _by_kind(
    by_seed: Sequence[Mapping[str, Mapping[str, float]]],
    metric: str,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> dict[str, Estimate]:
    """Return a metric by kind over the seeds that have replies of the kind."""
    kinds = sorted({kind for seed in by_seed for kind in seed})
    values = {kind: [float(seed[kind][metric]) for seed in by_seed if kind in seed] for kind in kinds}
    return {kind: estimate(row, within) for kind, row in values.items()}


def _measured(jobs: Sequence[SeedJob], judges: Mapping[str, str]) -> list[tuple[str, Method]]:
    """Return the judges that the study has, with their names in the results."""
    by_name = {method.name: method for method in jobs[0].methods}
    return [(name, by_name[method]) for name, method in judges.items() if method in by_name]


def _versions() -> dict[str, JsonValue]:
    current = environment("code")
    packages = {name: current["versions"].get(name) for name in ("torch", "transformers")}
    return {"python": current["python"], "sweet": current["sweet"], **packages, CORES: current[CORES]}


# Learning curves -----------------------------------------------------------------------------------------------------


def curves(jobs: Sequence[SeedJob]) -> dict[str, BySeed]:
    """Return the curves of the methods that have one, by seed, without the seeds that have not finished all points."""
    methods = {method.name: method for method in jobs[0].methods}
    if "zero-shot" not in methods:
        return {}
    starts = read_seeds(jobs, partial(_points, method=methods["zero-shot"], divisor=1))
    by_method: dict[str, BySeed] = {}
    for name in CURVES:
        if name in methods:
            learned = read_seeds(jobs, partial(_curve, method=methods[name]))
            by_seed = {seed: [*starts[seed], *learned[seed]] for seed in sorted(starts.keys() & learned.keys())}
            if by_seed:
                by_method[name] = by_seed
    return by_method


def _curve(steps: StudySteps, method: Method) -> list[Reached]:
    return [point for divisor in steps.sizes.divisors(method) for point in _points(steps, method, divisor)]


def _points(steps: StudySteps, method: Method, divisor: int) -> list[Reached]:
    making, scores = steps.validated(method, divisor)
    end = Reached(generated_tokens(making), seconds(making), float(scores.metrics[RATE]))
    return [*_during(making[-1], end), end] if method.online else [end]


def _during(trained: Step, end: Reached) -> list[Reached]:
    """Return the points of an online training before its end. What the method needed before the training, a critic
    and its dialogues, is in all of them."""
    points = []
    before_tokens = None if end.tokens is None else end.tokens - int(trained.metrics[TOKENS])
    before_seconds = end.seconds - seconds([trained])
    for point in map(OnlinePoint.read, trained.metrics["curve"][:-1]):
        if point.validation is not None:
            tokens = None if before_tokens is None else before_tokens + point.tokens
            took = before_seconds + point.seconds - point.validation_seconds
            points.append(Reached(tokens, took, point.validation))
    return points
