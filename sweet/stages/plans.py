"""Plans: what a stage would do, for `--dry-run`.

Each stage counts its work (a record of its own: dialogues, turns, tokens), and `PlanBuilder` adds hours, GPU-hours and
bytes by the rates of earlier attempts of the same stage. Attempts of the run itself come first, the newest first, then
those of the runs named by `--rates`. A duration is taken only from an attempt whose facts agree in what decides the
speed (the model, whether there is a GPU); an amount (turns, tokens, bytes) from the attempt that differs least there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic

from pydantic import Field
from typing_extensions import TypeVar

from sweet.runs.run import Run
from sweet.stages.base import option_key
from sweet.stages.rates import HOUR, EarlierAttempt, finished, rounded, share, times, with_gpus
from sweet.stages.record import Flat, Record

W = TypeVar("W", bound=Record, default=Any)
"""The work of a stage."""


class PlannedRate(Record):
    """A rate that a plan was computed by."""

    value: float | None
    """how much"""
    unit: str
    """of what: s a dialogue, a turn"""
    source: str = Field(alias="from")
    """the attempt that it was measured in, RUN:attempt"""
    differs: list[str]
    """options that differ between that attempt and the plan"""


class Plan(Record, Generic[W]):
    """What a stage would do."""

    work: Annotated[W, Flat()]
    """Counts of the stage's own."""
    flops: float | None
    """floating-point operations of the models; null where not known"""
    bytes: int | None
    """size of the artifact"""
    hours: float | None
    """wall-clock time by the rates of an earlier attempt; null where there is no comparable one"""
    gpus: int | None
    """GPUs that are held; null where that is not known"""
    gpu_hours: float | None
    """hours times GPUs"""
    rates: dict[str, PlannedRate | None]
    """the rates that the plan was computed by; null where no earlier attempt has one"""
    assumed: list[str]
    """assumptions of the plan, in sentences"""


class PlanBuilder:
    """Chooses the rates of a plan among earlier attempts of its stage, and computes the plan.

    Args:
        run: None where there is none yet.
        others: paths of further runs.
        settings: of the stage that is planned: its configuration, with `RESOLVED` as they will be used, and what else
            of its artifact decides something.
        gpus: how many it will hold; None where that is not known.
        decides: facts that decide the speed.
        compared: further facts that are reported where they differ.

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
        compared: Collection[str],
    ) -> None:
        runs = [*([run] if run else []), *(Run.open(Path(other)) for other in others)]
        manifests = [(one.path, one.manifest()) for one in runs]
        attempts = [one for path, found in manifests if found.task == kind for one in finished(found, path, stage)]
        facts = with_gpus(settings, gpus)
        self._facts, self._compared, self._gpus = facts, [*decides, *compared], gpus

        def differences(attempt: EarlierAttempt) -> int:
            return sum(attempt.facts.get(name) != facts.get(name) for name in decides)

        self._nearest = min(attempts, key=differences, default=None)
        same = self._nearest is not None and not differences(self._nearest)
        self._comparable = self._nearest if same else None
        self.rates: dict[str, PlannedRate | None] = {}
        self.assumed: list[str] = []

    def rate(self, name: str, unit: str, of: Callable[[EarlierAttempt], float | None]) -> float | None:
        """Return an amount for each unit, from the attempt that differs least."""
        return self._rate(name, unit, of, self._nearest)

    def seconds_per(
        self,
        unit: str,
        units: Callable[[EarlierAttempt], float | None],
        speedup: Callable[[EarlierAttempt], float] | None = None,
    ) -> float | None:
        """Return the seconds for each unit, from a comparable attempt, once the models are ready.

        Args:
            units: how many the attempt did.
            speedup: how many times as much hardware there is now.
        """
        attempt = self._comparable
        if attempt is not None and attempt.startup:
            self._rate("startup", "s", lambda earlier: earlier.startup, attempt)
        value = self._rate(
            "seconds", f"s a {unit}", lambda earlier: share(earlier.working_seconds, units(earlier)), attempt
        )
        if attempt is None or value is None or speedup is None or (by := speedup(attempt)) == 1:
            return value
        self.assumed.append(f"There is {by:.3g} times as much hardware as then, and it is as much faster.")
        return value / by

    def counted(self, name: str, unit: str, value: float | None, source: str) -> float | None:
        """Record a rate that was counted over data of the run itself, and return it."""
        self.rates[name] = None if value is None else _planned(value, unit, source, [])
        return value

    def _rate(
        self, name: str, unit: str, of: Callable[[EarlierAttempt], float | None], attempt: EarlierAttempt | None
    ) -> float | None:
        value = None if attempt is None else of(attempt)
        if attempt is None or value is None:
            self.rates[name] = None
        else:
            self.rates[name] = _planned(value, unit, attempt.name, self._differences(attempt))
        return value

    def _differences(self, attempt: EarlierAttempt) -> list[str]:
        return [option_key(name) for name in self._compared if attempt.facts.get(name) != self._facts.get(name)]

    def build(
        self, work: W, *, seconds: float | None, flops: float | None = None, size: float | None = None
    ) -> Plan[W]:
        """Return the plan of the work.

        Args:
            seconds: that it takes once its models are ready. size: of its artifact, in bytes.
        """
        startup = self.rates.get("startup")
        if seconds and startup is not None:
            seconds += startup.value or 0.0
        hours = None if seconds is None else seconds / HOUR
        return Plan(
            work=work,
            flops=rounded(flops),
            bytes=None if size is None else round(size),
            hours=rounded(hours),
            gpus=self._gpus,
            gpu_hours=rounded(times(hours, self._gpus)),
            rates=self.rates,
            assumed=self.assumed,
        )


def _planned(value: float, unit: str, source: str, differs: list[str]) -> PlannedRate:
    return PlannedRate(value=rounded(value), unit=unit, source=source, differs=differs)


def plan_rows(
    run: Run, stage: str, rates: Sequence[str], work: W, *, unit: str, metric: str, count: int, rows: int
) -> Plan[W]:
    """Return the plan of a stage that only reads and sorts rows.

    Args:
        unit, metric: what it reads, in words and as the metric that counts it.
        count: how many of these. rows: that it writes.
    """
    builder = PlanBuilder(stage, run, rates, kind=run.manifest().task, settings={}, gpus=0, decides=(), compared=())
    seconds = builder.seconds_per(unit, lambda earlier: earlier.metric(metric))
    size = builder.rate("bytes", "a row", lambda earlier: share(earlier.size, earlier.rows))
    return builder.build(work, seconds=times(count, seconds), flops=0.0, size=times(rows, size))
