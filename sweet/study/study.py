"""Run a study: from its configuration to `study.json`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sweet.errors import TooManyFailures, UsageError
from sweet.files import write_whole
from sweet.json_value import JsonValue
from sweet.runs.content import measure
from sweet.stages.base import Reporter, StageResult, digest_of
from sweet.study.aggregate import aggregate
from sweet.study.metrics import StudyMetrics
from sweet.study.plan import SeedJob
from sweet.study.seeds import run_seeds
from sweet.study.settings import METHODS, Method, StudyConfig, StudySizes
from sweet.tasks.micro import PACKAGED
from sweet.tasks.registry import task_kind
from sweet.units import count

RESULTS = "study.json"
BASIS = "begun.json"
"""Records the agent's weights and the tasks that the study started with, since settings have only their names."""

_LOCK = ".study.lock"


def run_study(
    folder: Path, config: StudyConfig, reporter: Reporter, *, methods: Mapping[str, Method] = METHODS
) -> StageResult[StudyMetrics]:
    """Do the missing parts of a study, and write and return its results.

    Args:
        methods: by the names in the configuration.

    Raises:
        UsageError: the folder contains something else, or a study of another agent or other tasks.
        TooManyFailures: parts failed; the results are those of the others.
    """
    start = time.monotonic()
    with claimed(folder, config.sizes()):
        jobs = seed_jobs(folder.absolute(), config, methods)
        failed = run_seeds(jobs, config.jobs, reporter)
        results = aggregate(jobs, config.tasks)
        write_whole(folder / RESULTS, (results.model_dump_json(indent=1) + "\n").encode())
    seconds = round(time.monotonic() - start, 1)
    metrics = StudyMetrics(study=results, results=str(folder / RESULTS), failed=failed, seconds=seconds)
    result = StageResult("demo", folder, metrics)
    if failed:
        raise _failure(failed, folder, result)
    return result


def seed_jobs(folder: Path, config: StudyConfig, methods: Mapping[str, Method] = METHODS) -> list[SeedJob]:
    """Return the work of each seed's process."""
    chosen = tuple(methods[name] for name in config.methods)
    return [
        SeedJob(folder=folder, seed=seed, sizes=config.sizes(), methods=chosen, figures=config.figures)
        for seed in config.all_seeds
    ]


def _failure(failed: list[str], folder: Path, result: StageResult) -> TooManyFailures:
    error = TooManyFailures(
        "\n".join([f"Failed, and so missing from the results: {count(len(failed), 'part')} of the study.", *failed]),
        where=folder,
        fix="see the logs in the folder; the same command tries them again",
    )
    error.result = result
    return error


@contextmanager
def claimed(folder: Path, sizes: StudySizes) -> Iterator[None]:
    """Create the folder of a study where it does not exist, and lock it for this process.

    Raises:
        UsageError: it contains something else, or another process uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = not (folder / BASIS).exists() and any(entry.name != _LOCK for entry in folder.iterdir())
    except OSError as error:
        raise UsageError(f"The study's folder cannot be created: {error.strerror}.", where=folder) from error
    if foreign:
        raise UsageError("The directory contains other things and is not a study.", where=folder, fix="name a new one")
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise UsageError(
            "Another process is running this study.", where=folder, fix="wait for it, or stop it"
        ) from error
    try:
        _check_same(folder, sizes)
        yield
    finally:
        lock.release()


def _check_same(folder: Path, sizes: StudySizes) -> None:
    """Raise UsageError where the study was started with another agent or other tasks."""
    current, path = _basis(sizes), folder / BASIS
    if not path.exists():
        write_whole(path, (json.dumps(current, indent=1) + "\n").encode())
        return
    try:
        recorded = json.loads(path.read_bytes())
    except ValueError as error:
        raise UsageError(
            "The record of the agent and the tasks that the study started with cannot be read.",
            where=path,
            fix="name a new folder",
        ) from error
    if recorded != current:
        raise UsageError(
            "The study was started with another agent or other tasks.",
            where=path,
            fix="name a new folder",
        )


def _basis(sizes: StudySizes) -> dict[str, JsonValue]:
    """Return the digests of the agent's weights and of the tasks."""
    agent = PACKAGED.get(sizes.agent, Path(sizes.agent))
    kind = task_kind("code")
    splits = ("train", "validation", sizes.split)
    tasks = {
        split: digest_of([task.model_dump(mode="json") for task in kind.load(sizes.tasks, split)]) for split in splits
    }
    return {"agent": measure(agent).sha256 if agent.is_dir() else sizes.agent, "tasks": dict(tasks)}
