"""`sweet data describe`: the specification of each task, in plain words, for a human that shall not see the code.

A model reads request and reference and writes the specification. It is kept if it says enough and gives nothing away:
the search for leaks (sweet.humans.leaks) finds no source in it, and what a model writes that sees request and
specification alone passes the hidden tests, in the sandbox. The first try is greedy, later ones are sampled
(`sweet.datasets.writing`). A task that cannot be described keeps its row, without a specification: `rollout --human
spec` refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field

from sweet.datasets.metrics import WriterMetrics
from sweet.datasets.writing import LONGEST, LONGEST_REASON, Fault, Row, Writer, WriterConfig
from sweet.errors import InputError, UsageError
from sweet.gathering import run_main
from sweet.humans.faults import fault_of
from sweet.llm.base import ChatClient
from sweet.llm.connect import client_of
from sweet.runs.jsonl import read_rows
from sweet.stages.base import OPERATIONAL, Reporter, StageResult, about
from sweet.stages.options import TaskConfig
from sweet.tasks.base import SPECIFICATION, Message, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.prompts import fill, indented
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import AsyncScorer
from sweet.tasks.splits import load_split
from sweet.tasks.trajectory import Trajectory, Turn
from sweet.units import count

WRITTEN_BY = "specification_by"
"""The key of a row with the model that wrote the specification."""

LACK = "have no specification"
"""What tasks lack that could not be described."""

TEMPERATURE = 0.7
"""Sampling temperature of all tries but the first."""

DESCRIBE, IMPLEMENT = (
    (resources.files("sweet.datasets") / "texts" / f"{name}.txt").read_text("utf-8").strip()
    for name in ("describe", "implement")
)
"""The prompts of the model that writes a specification, and of the one that solves the task by it."""

_LEAKED = (
    "That specification gives away source of the solution, or says it so closely that it can be put together again. "
    "Say the same facts as a person would who has never seen the solution, in sentences about the matter. Reply with "
    "the whole specification alone."
)
_UNUSABLE = "That is no specification. Reply with the whole specification alone, in at most {limit:,} characters."
_FAILED = (
    "Somebody who read only the request and this specification wrote a solution that fails the hidden tests: {why}. So "
    "something is missing, ambiguous or wrong. Write the whole specification again, complete, still without code. "
    "Reply with the specification alone."
)


class DescribeConfig(WriterConfig, TaskConfig):
    main_options = ("model", "url", "out", "task", "split", "num_tasks", "check_model", "check_url", "tries")

    split: str | None = Field(default=None, json_schema_extra=about("Data"))
    """Split to describe: train, validation or test; default: all tasks of a file, and the split train of a dataset."""
    check_model: str | None = Field(default=None, json_schema_extra=about("Judge"))
    """The model that checks a specification by solving the task from it; default: the model that writes them."""
    check_url: list[str] = Field(default_factory=list, json_schema_extra=about("Servers", OPERATIONAL))
    """OpenAI-compatible server of that model; may be given several times; default: that of the model."""
    redo: bool = Field(default=False, json_schema_extra=about("Data"))
    """Describe the tasks again that have a specification already."""


Keys = dict[str, str]
"""The keys of a row with its specification and the model that wrote it; empty without one."""


async def _describe(tasks: Mapping[str, Task], kind: TaskKind, config: DescribeConfig, writer: Writer) -> None:
    async with AsyncExitStack() as stack:
        client, scoring, _ = await stack.enter_async_context(writer.opened(kind))
        checker = client
        if config.check_model is not None or config.check_url:
            model, urls = config.check_model or config.model, config.check_url or config.url
            checker = await stack.enter_async_context(client_of(config, "checker", model, urls))

        async def describe(name: str) -> Row | Fault:
            task = tasks[name]
            texts = {"request": [indented(task.problem_description)], "reference": [indented(task.ground_truth)]}

            async def check(text: str) -> Fault | None:
                return await _fault_of(task, text, kind, writer, checker, scoring)

            reply = await writer.ask(client, fill(DESCRIBE, texts), check)
            return reply if isinstance(reply, Fault) else _row(task, {SPECIFICATION: reply, WRITTEN_BY: client.model})

        await writer.write(tasks, describe)


async def _fault_of(
    task: Task, text: str, kind: TaskKind, writer: Writer, checker: ChatClient, scoring: AsyncScorer
) -> Fault | None:
    """Return what is wrong with a specification; None if it is good."""
    dialogue = [
        Message(role="user", content=task.problem_description),
        Message(role="assistant", content="How must it behave?"),
    ]
    fault = await fault_of(text, task, dialogue)
    if fault == "leaked":
        return Fault("leaked", "the specification gives away source of the reference", _LEAKED)
    if fault is not None or len(text) > LONGEST:
        problem = f"has more than {LONGEST:,} characters" if fault is None else f"is unusable ({fault})"
        return Fault("unusable", f"the specification {problem}", _UNUSABLE.format(limit=LONGEST))
    texts = {"request": [indented(task.problem_description)], SPECIFICATION: [indented(text)]}
    reply = await writer.chat(checker, [Message(role="user", content=fill(IMPLEMENT, texts))])
    answer = kind.move(reply, last=True).answer or ""
    request = Turn(role="user", content=task.problem_description)
    score = await scoring.submit(Trajectory(id=task.id, task=task, dialogue_history=(request,), answer=answer))
    reason = str(score.detail.get("why") or score.outcome)[:LONGEST_REASON]
    if score.outcome == "invalid":
        return Fault("invalid", f"the task cannot be scored: {reason}")
    if score.outcome != "passed":
        what = f"a solution from request and specification fails the hidden tests: {reason}"
        return Fault("failed", what, _FAILED.format(why=reason))
    return None


def run_data_describe(source: str | None, config: DescribeConfig, reporter: Reporter) -> StageResult[WriterMetrics]:
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
    kind = task_kind(config.task)
    if kind.visual:
        what = f"The human of {kind.name} tasks sees pages: there is no code that a specification could replace."
        raise UsageError(what, where=f"--task {kind.name}", fix="--task code")
    source = source or kind.tasks_for()
    tasks = load_split(kind, source, config.split).tasks
    out = config.out or _default_out(kind, source, config)
    writer = Writer(config, reporter, out, (0.0, TEMPERATURE))
    chosen = tasks[: config.num_tasks]
    again = {task.id for task in chosen} if config.redo else set()
    described = {task.id: keys for task in tasks if (keys := _keys(task.model_dump(mode="json")))}
    if out.is_file() and not (Path(source).is_file() and out.samefile(source)):
        described |= _rows_of(tasks, out, read_rows(out))
    described = {name: keys for name, keys in described.items() if name not in again}
    described |= _rows_of(tasks, writer.journal, enumerate(writer.unfinished(), 1))
    done = described.keys() | {failure.task for failure in writer.failed}
    missing = {task.id: task for task in chosen if task.id not in done}
    unchanged = sum(task.id in described for task in chosen)
    if unchanged:
        reporter.say(f"Described already: {count(unchanged, 'task')}; missing: {len(missing):,}.")
    if missing:
        run_main(_describe(missing, kind, config, writer))
    described |= {row["id"]: _keys(row) for row in writer.written}
    rows = [_row(task, described.get(task.id, {})) for task in tasks]
    return StageResult("data describe", out, WriterMetrics(**writer.finish(rows, unchanged, LACK)))


def _default_out(kind: TaskKind, source: str, config: DescribeConfig) -> Path:
    path = Path(source)
    if kind.has_dataset(source) or not path.is_file():
        return Path(f"{source}-{config.split or 'train'}-described.jsonl")
    return path if path.stem.endswith("-described") else path.with_name(f"{path.stem}-described.jsonl")


def _rows_of(tasks: Iterable[Task], file: Path, rows: Iterable[tuple[int, dict[str, Any]]]) -> dict[str, Keys]:
    """Return the keys of specifications in a file, by the ids of tasks that are the same as when they were described.

    Args:
        rows: of the file, with their lines.

    Raises:
        InputError: the file has rows of other tasks.
    """
    same = {task.id: task for task in tasks}
    by_task: dict[str, Keys] = {}
    for line, row in rows:
        task = same.get(str(row.get("id")))
        if task is None:
            what = f"The file has the task {str(row.get('id'))[:80]!r}, which is none of these: it would be lost."
            raise InputError(what, path=file, line=line, fix="name another --out")
        keys = _keys(row)
        same_task = (row.get("problem_description"), row.get("ground_truth")) == (
            task.problem_description,
            task.ground_truth,
        )
        if keys and same_task:
            by_task[task.id] = keys
    return by_task


def _row(task: Task, keys: Keys) -> Row:
    """Return the row of a task with these keys, and without those of an earlier specification."""
    row = task.model_dump(mode="json", exclude_defaults=True)
    return {key: value for key, value in row.items() if key not in (SPECIFICATION, WRITTEN_BY)} | keys


def _keys(row: Mapping[str, Any]) -> Keys:
    text = row.get(SPECIFICATION)
    if not isinstance(text, str) or not text.strip():
        return {}
    return {key: row[key] for key in (SPECIFICATION, WRITTEN_BY) if isinstance(row.get(key), str)}
