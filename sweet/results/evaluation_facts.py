"""Facts about the evaluations of a run: rates, and the trained actor against the agent it was trained from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from sweet.json_value import JsonValue
from sweet.results.facts import ComparisonFact, Rate, ScoresFact, number, words
from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact, Manifest
from sweet.scoring.results.comparability import unfairness
from sweet.scoring.results.compare import pair_figures, shared_tasks
from sweet.scoring.results.evaluation import Evaluation, Values, distinct
from sweet.stages.artifacts import agent_name

WIN_RATE = "win_rate"
LOW, HIGH = "_ci_low", "_ci_high"


def agent(manifest: Manifest, rollouts: Artifact | None) -> str:
    return "" if rollouts is None else agent_name(manifest, rollouts) or ""


def dataset(rollouts: Artifact | None) -> str:
    parts = [words(rollouts.meta.get(key)) for key in ("tasks", "split")] if rollouts else []
    return " / ".join(filter(None, parts))


def scores_fact(manifest: Manifest, artifact: Artifact, stale: str | None, trained_on_tasks: int | None) -> ScoresFact:
    rollouts = input_of(manifest, artifact, "rollouts")
    attempt = manifest.attempt(artifact.attempt)
    metrics = attempt.metrics if attempt and artifact.status == "done" else {}
    meta = rollouts.meta if rollouts else {}
    intervals = (name for name in metrics if name + LOW in metrics and name != WIN_RATE)  # that compares with a run
    return ScoresFact(
        id=artifact.id,
        sha256=artifact.sha256,
        status=artifact.status,
        stale=stale,
        rollouts=rollouts.id if rollouts else None,
        agent=agent(manifest, rollouts),
        dataset=dataset(rollouts),
        sim=words(meta.get("sim")),
        scorer=words(artifact.meta.get("scorer")),
        sandbox=words(artifact.meta.get("sandbox")),
        max_turns=_count(meta.get("max_turns")),
        trajectories=_count(metrics.get("trajectories")),
        tasks=_count(metrics.get("tasks")),
        trained_on_tasks=trained_on_tasks,
        rates=[rate for name in intervals if (rate := _rate(name, metrics[name], metrics)) is not None],
        faults=_count(metrics.get("faults")),
        invalid_tasks=_count(metrics.get("invalid_tasks")),
        cost_per_solved_task=number(metrics.get("cost_per_solved_task")),
        metrics=metrics,
        against=_against(metrics.get("compare")),
        win_rate=_rate(WIN_RATE, metrics.get(WIN_RATE), metrics),
    )


def rates(values: Values) -> list[Rate]:
    """Return the rates of scores, as `sweet eval` computes them."""
    known = {name: found.flat(name) for name, found in distinct(values.rates()).items()}
    found = (_rate(name, flat[name], flat) for name, flat in known.items())
    return [rate for rate in found if rate is not None]


def _against(compared: JsonValue) -> str:
    baseline = compared.get("a") if isinstance(compared, dict) else None
    if not isinstance(baseline, dict):
        return ""
    return f"{PurePath(words(baseline.get('run'))).name}:{words(baseline.get('scores'))}"


def _rate(name: str, value: object, metrics: Mapping[str, object]) -> Rate | None:
    mean = number(value)
    if mean is None:
        return None
    return Rate(name=name, mean=mean, low=number(metrics.get(name + LOW)), high=number(metrics.get(name + HIGH)))


def _count(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def comparison(before: Evaluation, after: Evaluation, values: tuple[Values, Values]) -> ComparisonFact | None:
    """Compare two evaluations as `sweet compare` does; None if they share no valid task.

    Args:
        values: the values of both.
    """
    shared = shared_tasks(*values)
    if not shared:
        return None
    return ComparisonFact(
        before=before.scores.id,
        after=after.scores.id,
        tasks=len(shared),
        figures=distinct(pair_figures(*values)),
        warnings=[caveat.text for caveat in unfairness(before, after, values, shared)],
    )
