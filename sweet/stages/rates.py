"""Rates of earlier attempts: what a stage did a dialogue, a turn, a token, as the manifests of runs tell.

Attempts of the run itself come first, the newest first, then those of the runs that were named. How long something
takes is asked only of an attempt that is alike in what decides the pace (the model, whether there is a GPU); how much
comes out of it (turns, tokens, bytes), of the first that differs least there. Seconds are those of the clock
over all attempts that wrote an artifact, loading the models included, so a rate of a small run is a high one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sweet.device import CORES
from sweet.runs.environment import NODES
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.stages.base import option_key

HOUR = 3600.0

GPUS = "gpus"
"""What an attempt's environment has of the GPUs it held; None where nobody could tell."""

GPU = "gpu"
"""The fact whether there were any."""


RESOLVED = ("tasks", "agent")
"""Options that may be left out, and then stand in what the artifact says of itself as they were taken."""


class Past(NamedTuple):
    """A finished attempt.

    Attributes:
        name: RUN:attempt.
        facts: its configuration, what its artifact says of itself, `gpus`, and the `nodes` and `cores` that worked.
        rows, size: of its artifact, the size in bytes.
        seconds: of the clock; None where one of the attempts that wrote the artifact has no end.
    """

    name: str
    facts: Mapping[str, Any]
    metrics: Mapping[str, Any]
    rows: int | None
    size: int | None
    seconds: float | None

    def metric(self, name: str) -> float | None:
        """A figure of the attempt; None where it has none. A manifest may hold anything there."""
        value = self.metrics.get(name)
        known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if known else None  # type: ignore[arg-type]


def finished(manifest: Manifest, run: Path, stage: str) -> list[Past]:
    """The finished attempts of a stage that wrote an artifact, the newest first."""
    done = [(manifest.attempt(one.attempt), one) for one in reversed(manifest.artifacts) if one.status == "done"]
    return [
        _past(manifest, run, attempt, artifact)
        for attempt, artifact in done
        if attempt is not None and (attempt.stage, attempt.status) == (stage, "done")
    ]


def _past(manifest: Manifest, run: Path, attempt: Attempt, artifact: Artifact) -> Past:
    resolved = {name: artifact.meta[name] for name in RESOLVED if name in artifact.meta}
    wrote = [one for one in manifest.attempts if artifact.id in one.outputs]
    spans = [(one.finished - one.started).total_seconds() if one.finished else None for one in wrote]
    return Past(
        f"{run}:{attempt.id}",
        _facts(
            {**artifact.meta, **attempt.config, **resolved, **_hands(attempt.environment)},
            attempt.environment.get(GPUS),
        ),
        attempt.metrics,
        artifact.rows,
        artifact.bytes,
        None if None in spans else sum(span for span in spans if span is not None),
    )


def _hands(environment: Mapping[str, Any]) -> dict[str, Any]:
    """How many machines worked, and how many cores they have together (None where that was not recorded)."""
    nodes = environment.get(NODES)
    if not isinstance(nodes, dict) or not nodes:
        return {NODES: 1, CORES: environment.get(CORES)}
    cores = [node.get(CORES) if isinstance(node, dict) else None for node in nodes.values()]
    return {NODES: len(nodes), CORES: total(*cores)}


def _facts(settings: Mapping[str, Any], gpus: Any) -> dict[str, Any]:
    return {**settings, GPUS: gpus, GPU: gpus > 0 if isinstance(gpus, int) else None}


class Outlook:
    """The rates that a plan takes from earlier attempts of its stage, and what it makes of them.

    Args:
        run: None where there is none yet.
        others: paths of further runs.
        settings: of the stage that is planned: its configuration, `RESOLVED` as they will be taken, and what else of
            its artifact decides something.
        gpus: how many it will hold; None where that is not known.
        decides: facts that decide the pace. tells: others that are told where they differ.

    Raises:
        UsageError: one of `others` is no run.
    """

    def __init__(
        self,
        stage: str,
        run: Run | None,
        others: Sequence[str],
        *,
        kind: str,
        settings: Mapping[str, Any],
        gpus: int | None,
        decides: Collection[str],
        tells: Collection[str],
    ) -> None:
        runs = [*([run] if run else []), *(Run.open(Path(other)) for other in others)]
        manifests = [(one.path, one.manifest()) for one in runs]
        pasts = [past for path, found in manifests if found.task == kind for past in finished(found, path, stage)]
        facts = _facts(settings, gpus)
        self._facts, self._told, self._gpus = facts, [*decides, *tells], gpus

        def unlike(past: Past) -> int:
            return sum(past.facts.get(name) != facts.get(name) for name in decides)

        self._nearest = min(pasts, key=unlike, default=None)
        self._alike = self._nearest if self._nearest is not None and not unlike(self._nearest) else None
        self.rates: dict[str, dict[str, Any] | None] = {}
        self.assumed: list[str] = []

    def rate(self, name: str, unit: str, of: Callable[[Past], float | None]) -> float | None:
        """How much comes out: of the attempt that is nearest."""
        return self._rate(name, unit, of, self._nearest)

    def pace(
        self,
        unit: str,
        units: Callable[[Past], float | None],
        faster: Callable[[Past], float] | None = None,
    ) -> float | None:
        """Seconds a unit, of an attempt that is alike.

        Args:
            units: how many the attempt did. faster: how many times as much works on it now.
        """
        past = self._alike
        value = self._rate("seconds", f"s a {unit}", lambda past: share(past.seconds, units(past)), past)
        if past is None or value is None or faster is None or (by := faster(past)) == 1:
            return value
        self.assumed.append(f"What works on it is {by:.3g} times as much as then, and as much faster.")
        return value / by

    def of_data(self, name: str, unit: str, value: float | None, source: str) -> float | None:
        """A rate that was counted over data of the run itself."""
        self.rates[name] = None if value is None else _told(value, unit, source, [])
        return value

    def _rate(self, name: str, unit: str, of: Callable[[Past], float | None], past: Past | None) -> float | None:
        value = None if past is None else of(past)
        self.rates[name] = None if past is None or value is None else _told(value, unit, past.name, self._differs(past))
        return value

    def _differs(self, past: Past) -> list[str]:
        return [option_key(name) for name in self._told if past.facts.get(name) != self._facts.get(name)]

    def plan(
        self,
        work: Mapping[str, Any],
        *,
        seconds: float | None,
        flops: float | None = None,
        size: float | None = None,
    ) -> dict[str, Any]:
        """The figures of the work with what follows from the rates (see `sweet.stages.estimate`)."""
        hours = None if seconds is None else seconds / HOUR
        return {
            **work,
            "flops": rounded(flops),
            "bytes": None if size is None else round(size),
            "hours": rounded(hours),
            "gpus": self._gpus,
            "gpu_hours": rounded(times(hours, self._gpus)),
            "rates": self.rates,
            "assumed": self.assumed,
        }


def _told(value: float, unit: str, source: str, differs: list[str]) -> dict[str, Any]:
    return {"value": rounded(value), "unit": unit, "from": source, "differs": differs}


def share(amount: float | None, of: float | None) -> float | None:
    """One over the other; None where either is not known, or there was nothing."""
    return None if amount is None or not of else amount / of


def times(*factors: float | None) -> float | None:
    """Their product; None where one is not known."""
    known = [factor for factor in factors if factor is not None]
    return math.prod(known) if len(known) == len(factors) else None


def total(*parts: float | None) -> float | None:
    """Their sum; None where one is not known."""
    known = [part for part in parts if part is not None]
    return math.fsum(known) if len(known) == len(parts) else None


def rounded(value: float | None) -> float | None:
    """To six digits."""
    return None if value is None else float(f"{value:.6g}")


def plan_rows(
    run: Run, stage: str, rates: Sequence[str], work: Mapping[str, Any], *, of: tuple[str, str], count: int, rows: int
) -> dict[str, Any]:
    """A stage that only sorts: `count` of something, named `of` by its word and by its metric, into so many rows."""
    unit, metric = of
    outlook = Outlook(stage, run, rates, kind=run.manifest().task, settings={}, gpus=0, decides=(), tells=())
    seconds = outlook.pace(unit, lambda past: past.metric(metric))
    size = outlook.rate("bytes", "a row", lambda past: share(past.size, past.rows))
    return outlook.plan(work, seconds=times(count, seconds), flops=0.0, size=times(rows, size))


def whole(value: float | None) -> int | None:
    return None if value is None else round(value)
