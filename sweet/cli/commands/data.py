"""`sweet data`: check and download tasks, download assets of pages, import and export trajectories."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweet.cli import console
from sweet.cli.command import OptionalRun, command
from sweet.cli.completion import complete_run
from sweet.cli.spec import Call
from sweet.errors import SweetError, UsageError
from sweet.units import count

if TYPE_CHECKING:
    from sweet.datasets.checking import DataCheckConfig
    from sweet.datasets.describing import DescribeConfig
    from sweet.datasets.exporting import DataExportConfig
    from sweet.datasets.importing import DataImportConfig
    from sweet.datasets.metrics import CheckMetrics, WriterMetrics
    from sweet.datasets.skeletons import NewTaskConfig
    from sweet.datasets.synthesising import SynthesiseConfig
    from sweet.stages.base import StageResult

Tasks = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE", help="JSONL file of tasks, or the name of a dataset; default: that of the kind of task."
    ),
]

_SHOWN = 20
"""Rows that a table has at most."""


@command(
    "data colbench",
    "sweet.datasets.colbench:ColBenchConfig",
    examples=(("sweet data colbench", "the tasks, training and test"),),
    text="They are stored in the user's data folder; sweet rollout --tasks colbench plays them.",
)
@command(
    "data websight",
    "sweet.datasets.websight:WebSightConfig",
    examples=(
        ("sweet data websight", "10,000 training tasks, 10,000 test tasks"),
        ("sweet data websight --split test --limit 500", "only the paper's test tasks"),
        ("sweet data websight --source WebSight/v0.2", "from Parquet files on this machine"),
    ),
    text="Streams descriptions and pages, not the screenshots, into the user's data folder; sweet rollout --task "
    "html plays them. A split that is there is kept. Requires the extra data, except for JSONL files.",
)
@command(
    "data assets",
    "sweet.datasets.page_assets:AssetsConfig",
    examples=(
        ("sweet data assets", "once, before playing frontend tasks"),
        ("sweet data assets --photo", "for screenshots as in the published code"),
    ),
    text="Tailwind's stylesheet and its script, from a CDN, each verified by its sha256. Pages are "
    "rendered without network access: these files are served from the user's data folder.",
)
def download(call: Call[Any]) -> None:
    run = resolve_name(_DOWNLOADS[call.spec.name])
    console.print_result(run(call.config, call.reporter), as_json=call.common.json)


_DOWNLOADS = {
    "data colbench": "sweet.datasets.colbench:run_data_colbench",
    "data websight": "sweet.datasets.websight:run_data_websight",
    "data assets": "sweet.datasets.page_assets:run_data_assets",
}


@command(
    "data check",
    "sweet.datasets.checking:DataCheckConfig",
    examples=(
        ("sweet data check tasks.jsonl", "before anything is paid for"),
        ("sweet data check micro --split test", "a dataset by its name"),
        ("sweet data check tasks.jsonl --repeats 5", "a longer look for references that change their values"),
    ),
    text="Runs every reference against its own tests in the sandbox, or renders every page. Lists the tasks that "
    "cannot be scored, with which it exits with 1, and those that are slow, trivial or duplicates, or whose "
    "request contains the reference. sweet rollout itself refuses only references and tests that do not compile.",
)
def check(call: Call[DataCheckConfig], tasks: Tasks = None) -> None:
    from sweet.datasets.checking import run_data_check

    result = run_data_check(tasks, call.config, call.reporter)
    unusable = [finding for finding in result.metrics.findings if finding.unusable]
    error = None
    if unusable:
        first = unusable[0]
        where = str(result.run) if first.line is None else f"{result.run}, line {first.line}"
        counted = f"{result.metrics.unusable:,} of {count(result.metrics.tasks, 'task')} cannot be scored"
        error = SweetError(f"{counted}; {first.task}: {first.what}.", where=where, fix=first.fix)
    _print(call, result, _show_check, error)


def _print(
    call: Call[Any], result: StageResult[Any], draw: Callable[[StageResult[Any]], None], error: SweetError | None
) -> None:
    """Print a result, and raise the error that it amounts to, if it does."""
    if error is None or not call.common.json:
        console.print_result(result, as_json=call.common.json, draw=draw)
    if error is not None:
        error.found = result.as_json()
        raise error


def _show_check(result: StageResult[CheckMetrics]) -> None:
    console.show_result(result, hidden={"findings"})
    findings = sorted(result.metrics.findings, key=lambda finding: not finding.unusable)
    rows = [(finding.line or "", finding.task, finding.problem, finding.what, finding.fix) for finding in findings]
    _show_first(["line", "task", "problem", "what", "fix"], rows, "findings")


def _show_first(header: list[str], rows: Sequence[tuple[object, ...]], what: str) -> None:
    console.show_rows(header, rows[:_SHOWN], right=["line"])
    if len(rows) > _SHOWN:
        console.show(f"{len(rows) - _SHOWN} more {what}: --json lists all.")


@command(
    "data describe",
    "sweet.datasets.describing:DescribeConfig",
    examples=(
        ("sweet data describe tasks.jsonl --model MODEL --url http://localhost:8001/v1", "tasks-described.jsonl"),
        ("sweet data describe colbench --model MODEL --url URL --out described.jsonl", "a dataset by its name"),
        ("sweet data describe tasks.jsonl --model BIG --url URL --check-model M --check-url URL2", "two models"),
    ),
    text="A model writes it from the request and the reference. It is kept if no source of the reference is found "
    "in it, and what a model writes from request and specification passes the hidden tests in the sandbox; "
    "otherwise it is written again, and tasks for which no try succeeds are listed with the reason. Called again, "
    "it describes only the tasks that have none.",
)
def describe(call: Call[DescribeConfig], tasks: Tasks = None) -> None:
    from sweet.datasets.describing import LACK, run_data_describe

    result = run_data_describe(tasks, call.config, call.reporter)
    again = "a stronger --model or --check-model, or more --tries"
    _print_written(call, result, LACK, again)
    if not result.metrics.failed:
        kind = "" if call.config.task == "code" else f" --task {shlex.quote(call.config.task)}"
        played = f"--tasks {shlex.quote(result.metrics.out)}{kind} --sim MODEL --sim-url URL --human spec"
        call.reporter.say(f"next: sweet rollout {played}")


@command(
    "data synthesise",
    "sweet.datasets.synthesising:SynthesiseConfig",
    examples=(
        ("sweet data synthesise --model MODEL --url http://localhost:8001/v1", "a task on each packaged topic"),
        ("sweet data synthesise topics.txt --num-tasks 1000 --model MODEL --url URL", "topics-tasks.jsonl"),
    ),
    text="A model invents each task on a topic: request, details that only the human knows, reference and test "
    "calls. It is kept if sweet data check finds nothing in it, it is unlike the others, and its tests kill most "
    "mutants of the reference in the sandbox; otherwise the model is asked again, with the reason. Called again, it "
    "adds to the file what is missing.",
)
def synthesise(
    call: Call[SynthesiseConfig],
    topics: Annotated[
        str | None, typer.Argument(metavar="FILE", help="File of topics, one on each line; default: packaged ones.")
    ] = None,
) -> None:
    from sweet.datasets.synthesising import LACK, run_data_synthesise

    result = run_data_synthesise(topics, call.config, call.reporter)
    _print_written(call, result, LACK, "a stronger --model, or more --tries")
    call.reporter.say(f"next: sweet rollout --tasks {shlex.quote(result.metrics.out)} --holdout 0.2")


def _print_written(call: Call[Any], result: StageResult[WriterMetrics], lack: str, fix: str) -> None:
    """Print what a model wrote.

    Raises:
        SweetError: every task failed.
    """
    from sweet.datasets.writing import in_words

    failures = result.metrics.failures
    reason = in_words(failures, 0, lack) if result.metrics.are_useless else ""
    _print(call, result, _show_written, SweetError(f"{reason}.", where=result.metrics.out, fix=fix) if reason else None)


def _show_written(result: StageResult[WriterMetrics]) -> None:
    console.show_result(result, hidden={"failures"})
    rows = [(failure.task, failure.problem, failure.what) for failure in result.metrics.failures]
    _show_first(["task", "problem", "what"], rows, "tasks that failed")


@command(
    "data import",
    "sweet.datasets.importing:DataImportConfig",
    examples=(
        ("sweet data import offline.jsonl runs/offline", "dialogues in the published format"),
        ("sweet data import offline.jsonl runs/offline --prompts prompts", "rows that record no prompt"),
    ),
    text="Rows with a reward count as scored, so that sweet label can follow directly. A dialogue keeps the system "
    "prompt of its agent, which the input of the agent's turns contains: as text in the format of Llama 3, ChatML "
    "or Gemma, or as messages.",
)
def import_(
    call: Call[DataImportConfig],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL of dialogues in the published format.")],
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="The run directory, created if it does not exist.", autocompletion=complete_run
        ),
    ],
) -> None:
    from sweet.datasets.importing import run_data_import

    result = run_data_import(file, run, call.config, call.reporter)
    console.print_result(result, as_json=call.common.json)
    scored = bool(result.as_json()["metrics"]["scores"])
    call.reporter.say(f"next: sweet {'label' if scored else 'eval'} {shlex.quote(str(run))}")


@command(
    "data export",
    "sweet.datasets.exporting:DataExportConfig",
    examples=(
        ("sweet data export RUN --out dialogues.jsonl", "with the rewards of the newest scores"),
        ("sweet data export RUN | head -n 1", "to stdout"),
        ("sweet data export RUN --tokenizer MODEL", "prompts of a scripted agent, or of one on a server"),
        (
            "sweet data export RUN --to verifiers --out env",
            "its tasks as an environment for verifiers and prime-rl",
        ),
        ("sweet data export --tasks micro --to gymnasium --out env", "a dataset, without a run"),
        ("sweet data export RUN --to trl --out trl", "its pairs for TRL's DPOTrainer and KTOTrainer"),
    ),
    text="By default in the published format: the rows are blocks of the same tasks in the same order, as the "
    "published scripts require, and the turns of the agent have their prompts (input) and raw replies (output). "
    "The published evaluation of code takes the file; that of pages does not, as its answers are screenshots "
    "instead of HTML. --to writes environment packages and data sets for other programs instead (docs/export.md).",
)
def export(call: Call[DataExportConfig], run: OptionalRun = None) -> None:
    from sweet.cli.stage import newest_run
    from sweet.datasets.exporting import ENVIRONMENTS, check_options, export_lines, run_data_export
    from sweet.datasets.trl import run_trl_export

    check_options(call.config)
    if call.config.to in ENVIRONMENTS:
        _export_environment(call, run)
        return
    opened = newest_run(run, call.reporter)
    if call.config.to == "trl":
        console.print_result(run_trl_export(opened, call.config, call.reporter), as_json=call.common.json)
    elif call.config.out is not None:
        console.print_result(run_data_export(opened, call.config, call.reporter), as_json=call.common.json)
    elif call.common.json:
        raise UsageError("The rows and the result cannot both go to stdout.", where="--json", fix="--out FILE")
    else:
        for line in export_lines(opened, call.config, call.reporter):
            console.write_json(line.decode())


def _export_environment(call: Call[DataExportConfig], run: Path | None) -> None:
    from sweet.cli.stage import newest_run
    from sweet.environments.exporting import run_environment_export

    opened = None if run is None and call.config.tasks else newest_run(run, call.reporter)
    result = run_environment_export(opened, call.config, call.reporter)
    console.print_result(result, as_json=call.common.json)
    call.reporter.say(f"next: pip install -e {shlex.quote(result.metrics.out)}")
    if call.config.to == "verifiers":
        call.reporter.say(f"next: vf-eval {result.metrics.distribution} -n 5 --model MODEL --client.base-url URL")


@command(
    "data new-task",
    "sweet.datasets.skeletons:NewTaskConfig",
    examples=(("sweet data new-task haiku-task --name haiku", "then pip install -e haiku-task"),),
    text="The skeleton works unchanged: a task, a scripted human, a rule-based agent, a scorer and a test. "
    "Nothing is overwritten.",
)
def new_task(
    call: Call[NewTaskConfig],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The directory to create; it must be new or empty.")],
) -> None:
    from sweet.datasets.skeletons import run_new_task

    name = call.config.name
    console.print_result(run_new_task(folder, call.config), as_json=call.common.json)
    call.reporter.say(f"next: pip install -e {shlex.quote(str(folder))}")
    call.reporter.say(f"next: sweet rollout runs/{name} --task {name} --agent scripted --samples 8")
