"""Rates of earlier attempts: what a stage needed for a dialogue, a turn or a token, read from the manifests of runs.

An earlier attempt is known by its facts: its configuration, the meta of its artifact, and the hardware that it held.
Seconds are wall-clock seconds over all attempts that wrote an artifact. What was needed to load models or wait for
servers (`STARTUP`) is counted separately, because it does not grow with the work. `sweet.stages.plans` computes plans
from these rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from sweet.device import CORES
from sweet.runs.environment import NODES
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.stages.live import PAUSED

HOUR = 3600.0

GPUS = "gpus"
"""Key of an attempt's environment: the number of GPUs that it held; None where that is not known."""

GPU = "gpu"
"""Name of the fact whether there were any."""

STARTUP = "startup_seconds"
"""Key of an attempt's environment: the seconds until its models and servers were ready, where it uses any."""

RESOLVED = ("tasks", "agent")
"""Options that may be omitted; the artifact's meta then has the value that was used."""


class EarlierAttempt(NamedTuple):
    """A finished attempt.

    Attributes:
        name: RUN:attempt.
        facts: its configuration, the meta of its artifact, `gpus`, and the `nodes` and `cores` that it used.
        rows, size: of its artifact, the size in bytes.
        seconds: wall-clock time without pauses; None where one of the attempts that wrote the artifact has no end.
        startups: the seconds of `STARTUP` in each of these attempts that recorded them.
    """

    name: str
    facts: Mapping[str, Any]
    metrics: Mapping[str, Any]
    rows: int | None
    size: int | None
    seconds: float | None
    startups: Sequence[float] = ()

    @property
    def startup(self) -> float:
        """Seconds of one start, on average."""
        return fmean(self.startups) if self.startups else 0.0

    @property
    def working_seconds(self) -> float | None:
        """Wall-clock time without the starts."""
        return None if self.seconds is None else max(0.0, self.seconds - sum(self.startups))

    def metric(self, name: str) -> float | None:
        """Return a metric of the attempt; None where it is missing or no finite number."""
        value = self.metrics.get(name)
        known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if known else None  # type: ignore[arg-type]


def finished(manifest: Manifest, run: Path, stage: str) -> list[EarlierAttempt]:
    """Return the finished attempts of a stage that wrote an artifact, the newest first."""
    done = [(manifest.attempt(one.attempt), one) for one in reversed(manifest.artifacts) if one.status == "done"]
    return [
        _earlier(manifest, run, attempt, artifact)
        for attempt, artifact in done
        if attempt is not None and (attempt.stage, attempt.status) == (stage, "done")
    ]


def _earlier(manifest: Manifest, run: Path, attempt: Attempt, artifact: Artifact) -> EarlierAttempt:
    resolved = {name: artifact.meta[name] for name in RESOLVED if name in artifact.meta}
    wrote = [one for one in manifest.attempts if artifact.id in one.outputs]
    spans = [_seconds(one) for one in wrote]
    settings = {**artifact.meta, **attempt.config, **resolved, **_hardware(attempt.environment)}
    return EarlierAttempt(
        f"{run}:{attempt.id}",
        with_gpus(settings, attempt.environment.get(GPUS)),
        attempt.metrics,
        artifact.rows,
        artifact.bytes,
        None if None in spans else sum(span for span in spans if span is not None),
        [float(found) for one in wrote if isinstance(found := one.environment.get(STARTUP), int | float)],
    )


def _seconds(attempt: Attempt) -> float | None:
    if attempt.finished is None:
        return None
    paused = attempt.environment.get(PAUSED)
    wall = (attempt.finished - attempt.started).total_seconds()
    return max(0.0, wall - paused) if isinstance(paused, int | float) else wall


def _hardware(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the number of machines that were used, and of their cores together (None where that is not recorded)."""
    nodes = environment.get(NODES)
    if not isinstance(nodes, dict) or not nodes:
        return {NODES: 1, CORES: environment.get(CORES)}
    cores = [node.get(CORES) if isinstance(node, dict) else None for node in nodes.values()]
    return {NODES: len(nodes), CORES: total(*cores)}


def with_gpus(settings: Mapping[str, Any], gpus: Any) -> Mapping[str, Any]:
    """Return the facts of an attempt: its settings, its GPUs, and whether there are any."""
    return {**settings, GPUS: gpus, GPU: gpus > 0 if isinstance(gpus, int) else None}


def share(amount: float | None, of: float | None) -> float | None:
    """Return one over the other; None where either is unknown, or the second is zero."""
    return None if amount is None or not of else amount / of


def times(*factors: float | None) -> float | None:
    """Return the product; None where a factor is unknown."""
    known = [factor for factor in factors if factor is not None]
    return math.prod(known) if len(known) == len(factors) else None


def total(*parts: float | None) -> float | None:
    """Return the sum; None where a part is unknown."""
    known = [part for part in parts if part is not None]
    return math.fsum(known) if len(known) == len(parts) else None


def rounded(value: float | None) -> float | None:
    """Round to six digits."""
    return None if value is None else float(f"{value:.6g}")


def whole(value: float | None) -> int | None:
    """Round to an integer."""
    return None if value is None else round(value)
