"""Run a study from its configuration to `study.json`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sweet.errors import TooManyFailures, UsageError
from sweet.files import write_whole
from sweet.stages.base import Reporter, StageResult, seed_after
from sweet.study.aggregate import aggregate, digests
from sweet.study.results import StudyMetrics, StudyResults
from sweet.study.seeds import run_seeds
from sweet.study.settings import Method, StudyConfig, StudySizes, methods_of
from sweet.study.study_steps import SeedJob
from sweet.study.tuning import best_of_tries, tuning_job
from sweet.units import count

RESULTS = "study.json"
BASIS = "begun.json"
"""Records the agent's weights and the tasks that the study started with, since settings have only their names."""


def run_study(
    folder: Path, config: StudyConfig, reporter: Reporter, *, methods: Mapping[str, Method] | None = None
) -> StageResult[StudyMetrics]:
    """Do the missing parts of a study, and write and return its results.

    Args:
        methods: to compare, by name; those of the configuration where None.

    Raises:
        UsageError: the folder contains something else, or a study of another agent or other tasks.
        TooManyFailures: parts failed; the results are those of the others.
    """
    start = time.monotonic()
    methods = methods or methods_of(config.methods)
    jobs = seed_jobs(folder.absolute(), config, methods)
    tuning = [tuning_job(folder.absolute(), config, methods.values())] if config.tries > 1 else []
    with claimed(folder, config.sizes(), [*tuning, *jobs]):
        failed, tries = run_seeds(tuning, config.jobs, reporter), None
        for job in tuning:
            methods, tries = best_of_tries(job, methods, config.tries)
            jobs = seed_jobs(job.folder, config, methods)
        failed += run_seeds(jobs, config.jobs, reporter)
        results = aggregate(jobs, config.tasks).model_copy(update={"tries": tries})
        write_whole(folder / RESULTS, (results.model_dump_json(indent=1) + "\n").encode())
    result = result_of(folder, results, start, failed)
    if failed:
        what = f"Failed, and so missing from the results: {count(len(failed), 'part')} of the study."
        fix = "see the logs in the folder; the same command tries them again"
        error = TooManyFailures("\n".join([what, *failed]), where=folder, fix=fix)
        error.result = result
        raise error
    return result


def result_of(
    folder: Path, results: StudyResults, start: float, failed: list[str] | None = None
) -> StageResult[StudyMetrics]:
    """Return what the command prints. `start` is when it began, by the monotonic clock."""
    seconds = round(time.monotonic() - start, 1)
    metrics = StudyMetrics(study=results, results=str(folder / RESULTS), failed=failed or [], seconds=seconds)
    return StageResult("bench", folder, metrics)


def seed_jobs(folder: Path, config: StudyConfig, methods: Mapping[str, Method] | None = None) -> list[SeedJob]:
    """Return the work of each seed's process."""
    chosen = tuple((methods or methods_of(config.methods)).values())
    seeds = [seed_after(config.seed, number) for number in range(config.seeds)]
    return [
        SeedJob(folder=folder, seed=seed, sizes=config.sizes(), methods=chosen, figures=config.figures)
        for seed in seeds
    ]


@contextmanager
def claimed(folder: Path, sizes: StudySizes, jobs: Sequence[SeedJob]) -> Iterator[None]:
    """Create the folder of a study where it does not exist, and lock its runs for this process.

    Raises:
        UsageError: it contains something else, or another process uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = not (folder / BASIS).exists() and any(entry.name != RESULTS for entry in folder.iterdir())
    except OSError as error:
        raise UsageError(f"The study's folder cannot be created: {error.strerror}.", where=folder) from error
    if foreign:
        raise UsageError("The directory contains other things and is not a study.", where=folder, fix="name a new one")
    _check_same(folder, sizes)
    with ExitStack() as locks:
        for job in jobs:
            locks.enter_context(job.open().exclusive("bench"))
        yield


def _check_same(folder: Path, sizes: StudySizes) -> None:
    """Raise UsageError where the study was started with another agent or other tasks."""
    current, path = (json.dumps(digests(sizes), indent=1) + "\n").encode(), folder / BASIS
    if not path.exists():
        write_whole(path, current)
    elif path.read_bytes() != current:
        what = "The study was started with another agent or other tasks."
        raise UsageError(what, where=path, fix="name a new folder")
