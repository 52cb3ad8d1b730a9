"""`sweet data describe`: the specification of each task, in plain words, for a human that shall not see the code.

`sweet.datasets.descriptions` writes and checks them; here are the files. Each specification is written to `OUT.part` as
soon as it is known, and the whole file, with all tasks in their order, in one step at the end; so a call that was
killed goes on, and what is described already costs nothing. The tokens so far are in `OUT.tokens.json` until then. A
task that cannot be described keeps its row, without a specification: `rollout --human spec` refuses it.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sweet.datasets.descriptions import WRITTEN_BY, DescribeConfig, Describer, described_row
from sweet.datasets.metrics import DescribeMetrics
from sweet.errors import InputError, UsageError
from sweet.files import check_target, replacing
from sweet.runs.jsonl import JsonlWriter, encode, read_rows, scan_jsonl
from sweet.runs.tokens import TokenMeter, metering, read_tokens
from sweet.stages.base import Reporter, StageResult, digest_of
from sweet.stages.prices import Budget, given_prices
from sweet.tasks.base import SPECIFICATION, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import Holdout, load_split
from sweet.units import count


def run_data_describe(source: str | None, config: DescribeConfig, reporter: Reporter) -> StageResult[DescribeMetrics]:
    """Describe the tasks of a file or a dataset. The result's `run` is the file that was written.

    A task for which no try passes the checks is listed in the metrics, with the reason.

    Raises:
        UsageError: there is no such kind, dataset or split, the tasks have no code to describe, or the file cannot be
            written.
        InputError: there is no such file, or a row of it is not a task.
        ServerError: a server cannot be reached; what was described is kept.
        SweetError: there is no sandbox.
        Interrupted: the limit of the cost is reached; what was described is kept.
    """
    began, prices = time.monotonic(), given_prices(config)
    kind = task_kind(config.task)
    if kind.visual:
        what = f"The human of {kind.name} tasks sees pages: there is no code that a specification could replace."
        raise UsageError(what, where=f"--task {kind.name}", fix="--task code")
    source = source or kind.default_tasks()
    tasks = _tasks(kind, source, config)
    out = config.out or _default_out(kind, source, config)
    check_target(out)
    journal = out.with_name(f"{out.name}.part")
    own = {task.id: _keys(task.model_dump(mode="json")) for task in tasks if task.specification.strip()}
    same = Path(source).is_file() and out.is_file() and out.samefile(source)
    earlier = _rows_of(tasks, out, read_rows(out)) if out.is_file() and not same else {}
    chosen = tasks[: config.num_tasks]
    again = {task.id for task in chosen} if config.redo else set()
    known = {id: keys for id, keys in (own | earlier).items() if id not in again}
    if journal.exists():
        known |= _rows_of(tasks, journal, enumerate(scan_jsonl(journal), 1))  # its last line may be torn
    missing = [task for task in chosen if task.id not in known]
    kept = len(chosen) - len(missing)
    if kept:
        reporter.say(f"Described already: {count(kept, 'task')}; missing: {len(missing):,}.")
    counted = out.with_name(f"{out.name}.tokens.json")
    meter = TokenMeter(counted, read_tokens(counted))
    budget = None if prices is None else Budget(prices, meter, config.max_cost)
    work = Describer(kind, config, reporter, budget)
    if missing:
        with JsonlWriter(journal) as writer, metering(meter):
            known |= work.describe(missing, writer)
    with replacing(out) as file:
        for task in tasks:
            file.write(encode(described_row(task, known.get(task.id, {}))) + b"\n")
    for file_ in (journal, counted):
        with suppress(FileNotFoundError):
            file_.unlink()
    metrics = DescribeMetrics(
        tasks=len(tasks),
        described=len(missing) - len(work.failed),
        kept=kept,
        failed=len(work.failed),
        tries=work.tries,
        prompt_tokens=work.tokens["prompt"],
        completion_tokens=work.tokens["completion"],
        out=str(out),
        undescribed=sorted(work.failed, key=lambda one: one.task),
        seconds=round(time.monotonic() - began, 3),
        **({} if budget is None else {"cost": budget.spent()}),
    )
    if metrics.failed and metrics.failed < len(chosen):
        reporter.warn(f"{in_words(metrics)}. rollout --human spec refuses them; the same command tries them again.")
    return StageResult("data describe", out, metrics)


def in_words(metrics: DescribeMetrics) -> str:
    """Say how many tasks have no specification, and why the first of them has none."""
    first, tried = metrics.undescribed[0], metrics.described + metrics.kept + metrics.failed
    return f"{metrics.failed:,} of {count(tried, 'task')} have no specification; {first.task}: {first.what}"


def _tasks(kind: TaskKind, source: str, config: DescribeConfig) -> list[Task]:
    own = Path(source).is_file() and not kind.has_dataset(source)
    if own and config.split is None:
        return kind.load(source, "train")
    return load_split(kind, source, config.split or "train", Holdout()).tasks


def _default_out(kind: TaskKind, source: str, config: DescribeConfig) -> Path:
    path = Path(source)
    if kind.has_dataset(source) or not path.is_file():
        return Path(f"{source}-{config.split or 'train'}-described.jsonl")
    return path if path.stem.endswith("-described") else path.with_name(f"{path.stem}-described.jsonl")


def _rows_of(
    tasks: Iterable[Task], file: Path, rows: Iterable[tuple[int, dict[str, Any]]]
) -> dict[str, dict[str, str]]:
    """Return the keys of specifications in a file, by the ids of tasks that are the same as when they were described.

    Args:
        rows: of the file, with their lines.

    Raises:
        InputError: the file has rows of other tasks.
    """
    same = {task.id: task for task in tasks}
    found: dict[str, dict[str, str]] = {}
    for line, row in rows:
        task = same.get(str(row.get("id")))
        if task is None:
            what = f"The file has the task {str(row.get('id'))[:80]!r}, which is none of these: it would be lost."
            raise InputError(what, path=file, line=line, fix="name another --out")
        keys = _keys(row)
        if keys and _reference(row) == _reference(task.model_dump(mode="json")):
            found[task.id] = keys
    return found


def _reference(row: Mapping[str, Any]) -> str:
    return digest_of([row.get("problem_description"), row.get("ground_truth")])


def _keys(row: Mapping[str, Any]) -> dict[str, str]:
    text = row.get(SPECIFICATION)
    if not isinstance(text, str) or not text.strip():
        return {}
    return {key: row[key] for key in (SPECIFICATION, WRITTEN_BY) if isinstance(row.get(key), str)}


def rollout_command(metrics: DescribeMetrics, task: str) -> str:
    """Return the command that plays the described tasks."""
    kind = "" if task == "code" else f" --task {shlex.quote(task)}"
    return f"sweet rollout --tasks {shlex.quote(metrics.out)}{kind} --sim MODEL --sim-url URL --human spec"
