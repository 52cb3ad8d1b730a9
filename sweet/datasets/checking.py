"""`sweet data check`: whether tasks can be scored and are worth playing, before a dialogue is paid for.

The kind of task runs its references (`TaskKind.check`). Here the texts are compared: tasks that are the same twice, and
requests that contain the reference. `refuse_invalid` is the part of it that every rollout does: it runs nothing.
"""

from __future__ import annotations

import re
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from sweet.datasets.metrics import CheckMetrics, TaskFinding
from sweet.errors import InputError, UsageError
from sweet.stages.base import Reporter, StageResult
from sweet.stages.options import TaskConfig, WorkersConfig
from sweet.tasks.base import Task
from sweet.tasks.files import read_tasks, task_lines
from sweet.tasks.findings import Finding
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import ScoringRequest
from sweet.tasks.splits import load_split, problem_digest, split_faults
from sweet.units import count

LEAKED = 0.5
"""Share of the lines of a reference that a request may not contain."""

_TELLING = 8
"""Characters from which a line of a reference says something."""

_SIGNATURE = re.compile(r"(?:async\s+def|def|class|import|from)\b|[@#]|<(?:/|!doctype|html|head|body|link|meta|script)")
"""Lines that every request may contain: the signature, which ColBench's requests state, and what any page has."""

_LINE_END = re.compile(r"\n|(?<=>)(?=<)")
"""Where a line ends; in pages, so does an element."""


class DataCheckConfig(WorkersConfig, TaskConfig):
    split: str | None = None
    """Split to check: train, validation or test; default: all tasks of a file, and the split train of a dataset."""
    repeats: int = Field(default=2, ge=1)
    """How often each reference runs, in another process each time: one that gives other values is flaky."""


def check_tasks(
    kind: TaskKind, tasks: Sequence[Task], reporter: Reporter, config: DataCheckConfig, lines: Mapping[str, int]
) -> list[Finding]:
    """Return the findings on tasks, in their order, running every reference.

    Args:
        lines: the lines of the tasks in their file, by id.

    Raises:
        SweetError: there is no sandbox, or no browser.
    """
    texts: dict[str, list[Finding]] = {}
    for finding in [*duplicates(kind, tasks, lines), *leaks(tasks)]:
        texts.setdefault(finding.task_id, []).append(finding)
    all_findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="sweet-check-") as folder, reporter.progress("tasks", len(tasks)) as bar:
        request = ScoringRequest(run=Path(folder), say=reporter.say, sandbox=config.sandbox, workers=config.workers)
        for task, findings in kind.check(tasks, request, config.repeats):
            all_findings += [*findings, *texts.get(task.id, ())]
            bar.advance()
    return all_findings


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
        contained = sum(line in request for line in telling)
        if telling and contained > LEAKED * len(telling):
            what = f"the request contains {contained} of the {len(telling)} lines of the reference"
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
    is_generated = kind.has_dataset(source) and source not in kind.datasets
    faults = {} if is_generated else {finding.task_id: finding for finding in kind.faults(tasks)}
    is_file = Path(source).is_file() and not kind.has_dataset(source)
    twice = list(duplicates(kind, tasks, {})) if is_file else []
    lines = task_lines(Path(source)) if is_file and (faults or twice) else {}

    def place(name: str) -> str:
        return f"{name} (line {lines[name]})" if name in lines else name

    first = next(iter(faults.values()), None)
    if first is not None:
        what = f"The task {first.task_id} cannot be scored: {first.what}."
        if len(faults) > 1:
            what += f" The same holds for {count(len(faults) - 1, 'other task')} of {len(tasks)}."
        if not skip:
            check = f"sweet data check {shlex.quote(source)} --task {kind.name}"
            fix = f"{first.fix} ({check} finds what else is wrong), or --skip-invalid"
            raise InputError(what, path=source, line=lines.get(first.task_id), fix=fix)
        skipped = f"Skipped {len(faults):,} of {count(len(tasks), 'task')} that cannot be scored"
        tasks = [task for task in tasks if task.id not in faults]
        if not tasks:
            raise UsageError(f"{what} None is left.", where=source, fix=first.fix)
        reporter.warn(f"{skipped}; {place(first.task_id)}: {first.what}.")
    if twice and (same := list(duplicates(kind, tasks, lines))):
        counted = f"{len(same)} of {count(len(tasks), 'task')} have the reference of an earlier one"
        reporter.warn(f"{counted}; {place(same[0].task_id)}: {same[0].what}.")
    return tasks


def run_data_check(source: str | None, config: DataCheckConfig, reporter: Reporter) -> StageResult[CheckMetrics]:
    """Check the tasks of a file or a dataset. The result's `run` is the file, or the name of the dataset.

    Raises:
        UsageError: there is no such kind, dataset or split.
        InputError: there is no such file, or a row of it is not a task.
        SweetError: there is no sandbox, or no browser.
    """
    began, kind = time.monotonic(), task_kind(config.task)
    source = source or kind.tasks_for()
    path = Path(source)
    lines: dict[str, int] = {}
    errors: list[Finding] = []
    if config.split is not None or kind.has_dataset(source) or not path.is_file():
        tasks = load_split(kind, source, config.split).tasks
    else:
        tasks, errors = _read_all(kind, path, lines)
        errors += split_faults(tasks)
    if path.is_file() and not lines:
        lines = task_lines(path)
    findings = [*errors, *check_tasks(kind, tasks, reporter, config, lines)]
    of_problem = Counter(problem for _, problem in {(finding.task_id, finding.problem) for finding in findings})
    metrics = CheckMetrics(
        tasks=len({*(task.id for task in tasks), *(error.task_id for error in errors)}),
        unusable=len({finding.task_id for finding in findings if finding.unusable}),
        invalid=of_problem["invalid"],
        flaky=of_problem["flaky"],
        slow=of_problem["slow"],
        trivial=of_problem["trivial"],
        unnamed=of_problem["unnamed"],
        duplicates=of_problem["duplicate"],
        leaks=of_problem["leak"],
        findings=[
            TaskFinding(
                line=lines.get(finding.task_id),
                task=finding.task_id,
                problem=finding.problem,
                unusable=finding.unusable,
                what=finding.what,
                fix=finding.fix,
            )
            for finding in sorted(findings, key=lambda finding: lines.get(finding.task_id, 0))
        ],
        seconds=round(time.monotonic() - began, 3),
    )
    return StageResult("data check", path, metrics)


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
    findings: list[Finding] = []
    for line, row in read_tasks(path, kind.fields):
        name = f"line {line}" if isinstance(row, InputError) else row.id
        lines[name] = line
        if isinstance(row, InputError):
            what = row.what.removesuffix(".")
            findings.append(Finding(name, "invalid", what, row.fix or "correct the row", unusable=True))
        else:
            tasks.append(row)
    if not findings:
        raise refused
    return tasks, findings
