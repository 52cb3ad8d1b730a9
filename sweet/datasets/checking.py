"""`sweet data check`: whether tasks can be scored and are worth playing, before a dialogue is paid for.

The kind of task runs its references (`TaskKind.check`). Here the texts are compared: tasks that are the same twice, and
requests that contain the reference. `refuse_invalid` is the part of it that every rollout does: it runs nothing, and
remembers in the cache which tasks it has found faultless.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import Field

from sweet.datasets.metrics import CheckMetrics, TaskFinding
from sweet.errors import InputError, SweetError, UsageError
from sweet.files import write_whole
from sweet.installation import VERSION
from sweet.paths import cache_folder
from sweet.runs.cache import prune
from sweet.sandbox.program import TierChoice
from sweet.stages.base import Reporter, StageResult
from sweet.stages.options import TaskConfig, WorkersConfig
from sweet.tasks.base import Task
from sweet.tasks.files import read_tasks, task_lines
from sweet.tasks.findings import Finding, Problem
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import ScoringRequest
from sweet.tasks.splits import Holdout, load_split, problem_digest
from sweet.units import count

LEAKED = 0.5
"""Share of the lines of a reference that a request may not contain."""

_TELLING = 8
"""Characters from which a line of a reference says something."""

_SIGNATURE = re.compile(r"(?:async\s+def|def|class|import|from)\b|[@#]|<(?:/|!doctype|html|head|body|link|meta|script)")
"""Lines that every request may contain: the signature, which ColBench's requests state, and what any page has."""

_LINE_END = re.compile(r"\n|(?<=>)(?=<)")
"""Where a line ends; in pages, so does an element."""

_MOST_CACHED = 1 << 16
"""Bytes of the notes about faultless tasks."""


class DataCheckConfig(WorkersConfig, TaskConfig):
    split: str | None = None
    """Split to check: train, validation or test; default: all tasks of a file, and the split train of a dataset."""
    repeats: int = Field(default=2, ge=1)
    """How often each reference runs, in another process each time: one that gives other values is flaky."""


@dataclass(frozen=True)
class CheckReport:
    """The findings on some tasks.

    Attributes:
        tasks: number of tasks.
        findings: in the order of the tasks.
        lines: the lines of tasks in their file, by id; empty for a dataset.
        seconds: duration of the check.
    """

    tasks: int
    findings: list[Finding]
    lines: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def unusable(self) -> list[Finding]:
        """The findings that make a task unusable."""
        return [finding for finding in self.findings if finding.unusable]

    def count(self, problem: Problem) -> int:
        """Return the number of tasks with a problem."""
        return len({finding.task_id for finding in self.findings if finding.problem == problem})

    def metrics(self) -> CheckMetrics:
        return CheckMetrics(
            tasks=self.tasks,
            unusable=len({finding.task_id for finding in self.unusable}),
            invalid=self.count("invalid"),
            flaky=self.count("flaky"),
            slow=self.count("slow"),
            trivial=self.count("trivial"),
            duplicates=self.count("duplicate"),
            leaks=self.count("leak"),
            findings=[
                TaskFinding(
                    line=self.lines.get(finding.task_id),
                    task=finding.task_id,
                    problem=finding.problem,
                    unusable=finding.unusable,
                    what=finding.what,
                    fix=finding.fix,
                )
                for finding in self.findings
            ],
            seconds=round(self.seconds, 3),
        )


def check_tasks(
    kind: TaskKind,
    tasks: Sequence[Task],
    reporter: Reporter,
    *,
    repeats: int = 2,
    sandbox: TierChoice = "auto",
    workers: int | None = None,
    lines: Mapping[str, int] | None = None,
) -> CheckReport:
    """Check tasks, running every reference.

    Args:
        repeats: how often each reference runs.
        lines: the lines of the tasks in their file, by id.

    Raises:
        SweetError: there is no sandbox, or no browser.
    """
    began, lines = time.monotonic(), lines or {}
    found: list[Finding] = []
    texts = [*duplicates(kind, tasks, lines), *leaks(tasks)]
    by_task: dict[str, list[Finding]] = {}
    for finding in texts:
        by_task.setdefault(finding.task_id, []).append(finding)
    with tempfile.TemporaryDirectory(prefix="sweet-check-") as folder, reporter.progress("tasks", len(tasks)) as bar:
        request = ScoringRequest(run=Path(folder), say=reporter.say, sandbox=sandbox, workers=workers)
        for task, findings in kind.check(tasks, request, repeats):
            found += [*findings, *by_task.get(task.id, ())]
            bar.advance()
    return CheckReport(len(tasks), found, lines, time.monotonic() - began)


def duplicates(kind: TaskKind, tasks: Sequence[Task], lines: Mapping[str, int]) -> Iterator[Finding]:
    """Yield a finding for each task that an earlier one is the same as (`TaskKind.problem`)."""
    first: dict[str, Task] = {}
    for task in tasks:
        earlier = first.setdefault(problem_digest(kind, task), task)
        if earlier is not task:
            where = f" (line {lines[earlier.id]})" if earlier.id in lines else ""
            both = "request and " if earlier.problem_description.split() == task.problem_description.split() else ""
            what = f"it has the same {both}reference as {earlier.id}{where}"
            yield Finding(task.id, "duplicate", what, "remove one of the two, and play more samples of the other")


def leaks(tasks: Sequence[Task]) -> Iterator[Finding]:
    """Yield a finding for each task whose request contains the reference, or most of its lines."""
    for task in tasks:
        request = " ".join(task.problem_description.split())
        lines = {" ".join(line.split()) for line in _LINE_END.split(task.ground_truth)}
        telling = [line for line in lines if len(line) >= _TELLING and not _SIGNATURE.match(line.lower())]
        shown = sum(line in request for line in telling)
        if telling and shown > LEAKED * len(telling):
            what = f"the request contains {shown} of the {len(telling)} lines of the reference"
            yield Finding(task.id, "leak", what, "take them out of 'problem_description': the agent reads it")


def refuse_invalid(kind: TaskKind, tasks: list[Task], source: str, reporter: Reporter, *, skip: bool) -> list[Task]:
    """Return the tasks that can be played, without running any; warn of tasks that are in a file twice.

    Args:
        source: the dataset or the file of the tasks.
        skip: leave out tasks that cannot be scored, with a warning.

    Raises:
        InputError: tasks cannot be scored, and are not to be skipped; names the line of the first.
        UsageError: no task is left.
    """
    faults = {finding.task_id: finding for finding in _cached_faults(kind, tasks)}
    own = Path(source).is_file() and not kind.has_dataset(source)
    if faults:
        tasks = _without(faults, kind, tasks, source, _lines(source) if own else {}, reporter, skip=skip)
    if own and (same := list(duplicates(kind, tasks, {}))):
        lines = _lines(source)
        first = next(duplicates(kind, tasks, lines))
        where = f" (line {lines[first.task_id]})" if first.task_id in lines else ""
        twice = f"{len(same)} of {count(len(tasks), 'task')} have the reference of an earlier one"
        reporter.warn(f"{twice}; {first.task_id}{where}: {first.what}.")
    return tasks


def _lines(source: str) -> dict[str, int]:
    with suppress(SweetError):  # a plug-in may read other files than JSONL
        return task_lines(Path(source))
    return {}


def _without(
    faults: Mapping[str, Finding],
    kind: TaskKind,
    tasks: list[Task],
    source: str,
    lines: Mapping[str, int],
    reporter: Reporter,
    *,
    skip: bool,
) -> list[Task]:
    """Return the tasks without those that have faults; see `refuse_invalid`."""
    first = next(iter(faults.values()))
    line = lines.get(first.task_id)
    what = f"The task {first.task_id} cannot be scored: {first.what}."
    if len(faults) > 1:
        what += f" The same holds for {count(len(faults) - 1, 'other task')} of {len(tasks)}."
    if not skip:
        check = f"sweet data check {shlex.quote(source)} --task {kind.name}"
        fix = f"{first.fix} ({check} finds what else is wrong), or --skip-invalid"
        raise InputError(what, path=source, line=line, fix=fix)
    kept = [task for task in tasks if task.id not in faults]
    if not kept:
        raise UsageError(f"{what} None is left.", where=source, fix=first.fix)
    where = "" if line is None else f" (line {line})"
    skipped = f"Skipped {len(faults):,} of {count(len(tasks), 'task')} that cannot be scored"
    reporter.warn(f"{skipped}; {first.task_id}{where}: {first.what}.")
    return kept


def _cached_faults(kind: TaskKind, tasks: Sequence[Task]) -> list[Finding]:
    """Return `TaskKind.faults`; for the same tasks, version and interpreter it is remembered that there are none."""
    digest = hashlib.sha256(f"{VERSION}\n{sys.version}\n{kind.name}".encode())
    for task in tasks:
        digest.update(json.dumps([task.ground_truth, task.test_cases]).encode())
    note = cache_folder("faultless") / f"{digest.hexdigest()}.txt"
    with suppress(OSError):
        if note.read_text("utf-8") == _FAULTLESS:
            return []
    found = kind.faults(tasks)
    if not found:
        with suppress(OSError):
            write_whole(note, _FAULTLESS.encode())
            prune(note.parent, _MOST_CACHED, lambda file: file.suffix == ".txt")
    return found


_FAULTLESS = "no faults\n"


def run_data_check(source: str | None, config: DataCheckConfig, reporter: Reporter) -> StageResult[CheckMetrics]:
    """Check the tasks of a file or a dataset. The result's `run` is the file, or the name of the dataset.

    Raises:
        UsageError: there is no such kind, dataset or split.
        InputError: there is no such file, or a row of it is not a task.
        SweetError: there is no sandbox, or no browser.
    """
    kind = task_kind(config.task)
    source = source or kind.default_tasks()
    path = Path(source)
    lines: dict[str, int] = {}
    errors: list[Finding] = []
    if config.split is not None or kind.has_dataset(source) or not path.is_file():
        tasks = load_split(kind, source, config.split or "train", Holdout()).tasks
    else:
        tasks, errors = _read_all(kind, path, lines)
    if path.is_file() and not lines:
        lines = _lines(source)
    report = check_tasks(
        kind,
        tasks,
        reporter,
        repeats=config.repeats,
        sandbox=config.sandbox,
        workers=config.workers,
        lines=lines,
    )
    found = sorted([*errors, *report.findings], key=lambda finding: lines.get(finding.task_id, 0))
    whole = replace(report, tasks=report.tasks + len(errors), findings=found)
    return StageResult("data check", path, whole.metrics())


def _read_all(kind: TaskKind, path: Path, lines: dict[str, int]) -> tuple[list[Task], list[Finding]]:
    """Return the tasks of a file, and a finding for each row that is not a task. Their lines are added to `lines`.

    Raises:
        InputError: the file cannot be read, or the kind refuses it for another reason than a row.
    """
    try:
        return kind.load(str(path), "train"), []
    except InputError as error:
        refused = error
    tasks: list[Task] = []
    found: list[Finding] = []
    for line, row in read_tasks(path, kind.fields):
        name = f"line {line}" if isinstance(row, InputError) else row.id
        lines[name] = line
        if isinstance(row, InputError):
            found.append(
                Finding(name, "invalid", row.what.removesuffix("."), row.fix or "correct the row", unusable=True)
            )
        else:
            tasks.append(row)
    if not found:
        raise refused
    return tasks, found
