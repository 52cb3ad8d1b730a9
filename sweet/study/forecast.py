"""What a study has finished, and how long the rest will take.

The seconds of a part that is missing on one seed are those that it took on the seeds that have finished it: its steps
that no earlier part of the same seed had needed, as in the study itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from sweet.pipeline.steps import ReadOnlyStepCache, Step, StepMissing
from sweet.stages.base import Silent, StageConfig
from sweet.stages.record import Record
from sweet.study.plan import SeedJob


class PlannedPart(Record):
    """A part of a study."""

    part: str
    """method, or piece of a figure"""
    finished: int
    """seeds that have finished it"""
    missing: int
    """seeds that have not"""
    seconds: float | None
    """mean duration on a seed; null where none has finished it"""


class Forecast(Record):
    parts: list[PlannedPart]
    """each part, in the order in which they are done"""
    seconds: float
    """duration of the missing parts whose duration is known, with as many seeds at the same time as the study runs"""
    unknown: list[str]
    """missing parts that no seed has finished, whose duration is not known"""


class _RecordingCache(ReadOnlyStepCache):
    """A read-only cache that records the steps that were asked for and found."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.found: dict[str, Step] = {}

    def do(self, config: StageConfig, title: str = "", *, matching: Sequence[str] = ()) -> Step:
        step = super().do(config, title, matching=matching)
        self.found[step.attempt.id] = step
        return step


def forecast(jobs: Sequence[SeedJob], processes: int) -> Forecast:
    """Return what is finished and the time of the rest.

    Args:
        processes: seeds that run at the same time.
    """
    finished = [_finished(job) for job in jobs]
    parts = []
    for name in (part.name for part in jobs[0].parts()):
        took = [by_part[name] for by_part in finished if name in by_part]
        missing = len(jobs) - len(took)
        parts.append(
            PlannedPart(part=name, finished=len(took), missing=missing, seconds=round(fmean(took), 1) if took else None)
        )
    known = {part.part: part.seconds for part in parts if part.seconds is not None}
    remaining = [sum(known.get(name, 0.0) for name in known if name not in by_part) for by_part in finished]
    return Forecast(
        parts=parts,
        seconds=round(_makespan(remaining, processes), 1),
        unknown=[part.part for part in parts if part.seconds is None],
    )


def _finished(job: SeedJob) -> Mapping[str, float]:
    """Return the seconds of each finished part of a seed: of its steps that no earlier part had needed."""
    seconds: dict[str, float] = {}
    seen: set[tuple[str, str]] = set()
    for part in job.parts():
        if not (job.folder / part.run).is_dir():
            continue
        steps = job.steps(part.run, part.sizes, _RecordingCache, Silent())
        assert isinstance(steps.cache, _RecordingCache)
        try:
            part.do(steps)
        except StepMissing:
            continue
        new = {key: step for key, step in steps.cache.found.items() if (part.run, key) not in seen}
        seen |= {(part.run, key) for key in new}
        seconds[part.name] = sum(step.seconds for step in new.values())
    return seconds


def _makespan(durations: Sequence[float], processes: int) -> float:
    """Return when the last of these jobs ends, which start in their order as soon as a process is free."""
    free = [0.0] * max(1, processes)
    for duration in durations:
        free.sort()
        free[0] += duration
    return max(free)
