"""Evaluations of a run as facts: rates, curves, the trained actor against the agent it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from statistics import fmean

from pydantic import JsonValue

from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact, Manifest
from sweet.stages.report.facts import (
    ArtifactFact,
    ComparisonFact,
    CurveFact,
    Measure,
    Point,
    Rate,
    ScoresFact,
    Series,
    number,
    words,
)
from sweet.stages.report.lineage import Names
from sweet.stages.report.rows import Scored
from sweet.stages.statistics import compare
from sweet.tasks.scores import RewardRule

WIN_RATE = "win_rate"
LOW, HIGH = "_ci_low", "_ci_high"
CURVES = ("pass_at_k", "best_of")
"""Metrics of an evaluation that are figures by a number."""
BARE = ("rate", "mean", "value")
"""What the one figure of such a metric may be called: it needs no name beside the metric's."""
SAME = ("sim", "max_turns", "recipe")
"""What the rollouts of a fair comparison share, beside their tasks."""


def scores_fact(manifest: Manifest, artifact: Artifact, fact: ArtifactFact, names: Names) -> ScoresFact:
    rollouts = input_of(manifest, artifact, "rollouts")
    attempt = manifest.attempt(artifact.attempt)
    metrics = attempt.metrics if attempt and artifact.status == "done" else {}
    meta = rollouts.meta if rollouts else {}
    return ScoresFact(
        id=artifact.id,
        sha256=artifact.sha256,
        status=artifact.status,
        stale=fact.stale,
        rollouts=rollouts.id if rollouts else None,
        agent=names.agent(meta.get("agent")),
        dataset=names.dataset(rollouts),
        sim=words(meta.get("sim")),
        scorer=words(artifact.meta.get("scorer")),
        sandbox=words(artifact.meta.get("sandbox")),
        max_turns=_count(meta.get("max_turns")),
        trajectories=_count(metrics.get("trajectories")),
        tasks=_count(metrics.get("tasks")),
        rates=list(_rates(metrics)),
        outcomes=_counts(metrics.get("outcomes")),
        faults=_count(metrics.get("faults")),
        invalid_tasks=_count(metrics.get("invalid_tasks")),
        curves=[curve for name in CURVES if (curve := curve_fact(name, metrics.get(name))) is not None],
        against=_against(metrics.get("compare")),
        win_rate=_rate(WIN_RATE, metrics.get(WIN_RATE), metrics),
    )


def _rates(metrics: Mapping[str, JsonValue]) -> Iterator[Rate]:
    """Every metric with an interval. The win rate is against another run, and no rate of this one."""
    for name, value in metrics.items():
        if name + LOW in metrics and name != WIN_RATE and (rate := _rate(name, value, metrics)) is not None:
            yield rate


def _against(compared: JsonValue) -> str:
    return PurePath(words(compared.get("run"))).name if isinstance(compared, dict) else ""


def _rate(name: str, value: object, beside: Mapping[str, JsonValue]) -> Rate | None:
    mean = number(value)
    if mean is None:
        return None
    return Rate(name=name, mean=mean, low=number(beside.get(name + LOW)), high=number(beside.get(name + HIGH)))


def curve_fact(name: str, value: JsonValue) -> CurveFact | None:
    """`{"1": 0.3, "2": {"rate": 0.4, "ci_low": …}, …}`, in which a figure may have a name of its own, or such a mapping
    under a key of another."""
    if not isinstance(value, dict):
        return None
    by_number = next((inner for inner in value.values() if isinstance(inner, dict) and _is_by_number(inner)), value)
    series: dict[str, list[Point]] = {}
    for key, item in by_number.items():
        if not key.isascii() or not key.isdigit() or len(key) > 6:
            continue
        figures = item if isinstance(item, dict) else {name: item}
        for rate in _figures(name, figures):
            series.setdefault(rate.name, []).append(Point(x=int(key), y=rate.mean, low=rate.low, high=rate.high))
    found = [Series(name=key, points=sorted(points, key=lambda p: p.x)) for key, points in series.items()]
    return CurveFact(name=name, series=found) if found else None


def _is_by_number(value: Mapping[str, JsonValue]) -> bool:
    return bool(value) and all(key.isascii() and key.isdigit() for key in value)


def _figures(name: str, figures: Mapping[str, JsonValue]) -> Iterator[Rate]:
    for key, value in figures.items():
        if key == "tasks" or key.endswith(("ci_low", "ci_high")):
            continue
        rate = _rate(key, value, figures)
        if rate is None:
            continue
        if key in BARE:
            bounds = {"low": figures.get("ci_low", rate.low), "high": figures.get("ci_high", rate.high)}
            rate = Rate(name=name, mean=rate.mean, **{key: number(bound) for key, bound in bounds.items()})
        yield rate


def _count(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def _counts(value: object) -> dict[str, int]:
    pairs = value.items() if isinstance(value, dict) else ()
    return {words(name): found for name, item in pairs if (found := _count(item)) is not None}


def before_and_after(manifest: Manifest, names: Names) -> Iterator[tuple[Artifact, Artifact]]:
    """Scores of the agent that a trained actor came from, and of the actor, by the same scorer on the same tasks; the
    newest of each."""
    scored: dict[str, tuple[Artifact, Artifact]] = {}
    for scores in manifest.of_kind("scores", "done"):
        rollouts = input_of(manifest, scores, "rollouts")
        if rollouts is not None:
            scored[rollouts.id] = (scores, rollouts)
    for scores, rollouts in scored.values():
        actor = names.actor(rollouts.meta.get("agent"))
        if actor is None:
            continue
        others = [
            (other, root)
            for other, root in scored.values()
            if names.actor(root.meta.get("agent")) is None
            and _played(root) == _played(rollouts)
            and other.meta.get("scorer") == scores.meta.get("scorer")
        ]
        came_from = [pair for pair in others if pair[1].meta.get("agent") == actor.meta.get("base")]
        if found := (came_from or others):
            yield found[-1][0], scores


def _played(rollouts: Artifact) -> list[JsonValue]:
    return [rollouts.meta.get(key) for key in ("task", "tasks", "split", "tasks_digest")]


def comparison(
    manifest: Manifest,
    before: Artifact,
    after: Artifact,
    rows: Mapping[str, Mapping[str, Scored]],
    rule: RewardRule | None,
) -> ComparisonFact | None:
    """None where they share no valid task.

    Args:
        rows: the scores' rows, by artifact and trajectory.
        rule: how rewards are read; None where the kind of task is not known here.
    """
    theirs, ours = rows[before.id], rows[after.id]
    measures = []
    if rule is not None and rule.solved is not None:
        measures.append(_measure("success", theirs, ours, rule))
    measures.append(_measure("reward", theirs, ours, None))
    told = [measure for measure in measures if measure is not None]
    if not told:
        return None
    roots = [input_of(manifest, scores, "rollouts") for scores in (before, after)]
    differs = [key for key in SAME if len({words(root.meta.get(key)) for root in roots if root}) > 1]
    differs += ["sandbox"] if before.meta.get("sandbox") != after.meta.get("sandbox") else []
    tasks = told[0].wins + told[0].losses + told[0].ties
    return ComparisonFact(before=before.id, after=after.id, tasks=tasks, measures=told, differs=differs)


def _measure(
    name: str, theirs: Mapping[str, Scored], ours: Mapping[str, Scored], rule: RewardRule | None
) -> Measure | None:
    before, after = (_by_task(side, rule) for side in (theirs, ours))
    shared = before.keys() & after.keys()
    if not shared:
        return None
    result = compare(after, before)
    return Measure(
        name=name,
        before=fmean(before[task] for task in shared),
        after=fmean(after[task] for task in shared),
        difference=result.difference.mean,
        low=result.difference.low,
        high=result.difference.high,
        p_value=result.p_value,
        test=result.test,
        wins=result.wins,
        losses=result.losses,
        ties=result.ties,
    )


def _by_task(rows: Mapping[str, Scored], rule: RewardRule | None) -> dict[str, float]:
    """Each valid task's mean over its dialogues."""
    values: dict[str, list[float]] = {}
    for row in rows.values():
        if row.reward is not None and row.outcome != "invalid":
            values.setdefault(row.task, []).append(row.reward if rule is None else rule.worth(row.reward))
    return {task: fmean(found) for task, found in values.items()}
