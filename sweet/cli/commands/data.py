"""`sweet data`: check and download tasks, download assets of pages, import and export trajectories, build the packaged
agent."""

from __future__ import annotations

import shlex

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.cli.declaration import ArgumentSpec
from sweet.cli.stage_command import newest_run, newest_run_argument
from sweet.datasets.checking import DataCheckConfig, run_data_check
from sweet.datasets.colbench import ColBenchConfig, run_data_colbench
from sweet.datasets.describing import in_words, rollout_command, run_data_describe
from sweet.datasets.descriptions import DescribeConfig
from sweet.datasets.exporting import DataExportConfig, check_options, export_lines, run_data_export
from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.datasets.metrics import CheckMetrics, DescribeMetrics
from sweet.datasets.micro_agent import MicroAgentConfig, run_data_micro_agent
from sweet.datasets.page_assets import AssetsConfig, run_data_assets
from sweet.datasets.skeletons import NewTaskConfig, run_new_task
from sweet.datasets.trl import run_trl_export
from sweet.datasets.websight import WebSightConfig, run_data_websight
from sweet.errors import SweetError, UsageError
from sweet.publishing.config import PushConfig
from sweet.runs.run import Run
from sweet.stages.base import StageResult
from sweet.units import count


class ColBench(Command[ColBenchConfig]):
    def work(self, call: Call[ColBenchConfig]) -> None:
        console.print_result(run_data_colbench(call.config, call.reporter), as_json=call.common.json)


class WebSight(Command[WebSightConfig]):
    def work(self, call: Call[WebSightConfig]) -> None:
        console.print_result(run_data_websight(call.config, call.reporter), as_json=call.common.json)


class Assets(Command[AssetsConfig]):
    def work(self, call: Call[AssetsConfig]) -> None:
        console.print_result(run_data_assets(call.config, call.reporter), as_json=call.common.json)


class Check(Command[DataCheckConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        help = "JSONL file of tasks, or the name of a dataset; default: that of the kind of task."
        return [ArgumentSpec("tasks", "FILE", help, required=False, is_path=False)]

    def work(self, call: Call[DataCheckConfig]) -> None:
        result = run_data_check(call.arguments["tasks"], call.config, call.reporter)
        unusable = [finding for finding in result.metrics.findings if finding.unusable]
        if not (unusable and call.common.json):
            console.print_result(result, as_json=call.common.json, draw=_show_check)
        if unusable:
            first = unusable[0]
            where = str(result.run) if first.line is None else f"{result.run}, line {first.line}"
            counted = f"{result.metrics.unusable:,} of {count(result.metrics.tasks, 'task')} cannot be scored"
            error = SweetError(f"{counted}; {first.task}: {first.what}.", where=where, fix=first.fix)
            error.found = result.as_json()
            raise error


class Describe(Command[DescribeConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        help = "JSONL file of tasks, or the name of a dataset; default: that of the kind of task."
        return [ArgumentSpec("tasks", "FILE", help, required=False, is_path=False)]

    def work(self, call: Call[DescribeConfig]) -> None:
        result = run_data_describe(call.arguments["tasks"], call.config, call.reporter)
        metrics = result.metrics
        useless = metrics.failed > 0 and metrics.described + metrics.kept == 0
        if not (useless and call.common.json):
            console.print_result(result, as_json=call.common.json, draw=_show_described)
        if useless:
            again = "a stronger --model or --check-model, or more --tries"
            error = SweetError(f"{in_words(metrics)}.", where=metrics.out, fix=again)
            error.found = result.as_json()
            raise error
        if not metrics.failed:
            call.reporter.say(f"next: {rollout_command(result.metrics, call.config.task)}")


def _show_described(result: StageResult[DescribeMetrics]) -> None:
    console.show_result(result, hidden={"undescribed"})
    found = result.metrics.undescribed
    if found:
        rows = [(one.task, one.problem, one.what) for one in found[:_SHOWN]]
        console.show_rows(["task", "problem", "what"], rows)
    if len(found) > _SHOWN:
        console.show(console.safe_text(f"{len(found) - _SHOWN} more tasks without one: --json lists all."))


_SHOWN = 20
"""Rows that a table has at most."""


def _show_check(result: StageResult[CheckMetrics]) -> None:
    console.show_result(result, hidden={"findings"})
    found = sorted(result.metrics.findings, key=lambda finding: not finding.unusable)
    if found:
        rows = [(one.line or "", one.task, one.problem, one.what, one.fix) for one in found[:_SHOWN]]
        console.show_rows(["line", "task", "problem", "what", "fix"], rows, right=["line"])
    if len(found) > _SHOWN:
        console.show(console.safe_text(f"{len(found) - _SHOWN} more findings: --json lists all."))


class Import(Command[DataImportConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [
            ArgumentSpec("file", "FILE", "JSONL of dialogues in the published format.", required=True),
            ArgumentSpec("run", "RUN", "The run directory, created if it does not exist.", required=True),
        ]

    def work(self, call: Call[DataImportConfig]) -> None:
        file, run = call.arguments["file"], call.arguments["run"]
        result = run_data_import(file, run, call.config, call.reporter)
        console.print_result(result, as_json=call.common.json)
        scored = bool(result.as_json()["metrics"]["scores"])
        call.reporter.say(f"next: sweet {'label' if scored else 'eval'} {shlex.quote(str(run))}")


class Export(Command[DataExportConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [newest_run_argument()]

    def work(self, call: Call[DataExportConfig]) -> None:
        check_options(call.config)
        if call.config.to in ("verifiers", "gymnasium"):
            self._environment(call)
            return
        run = newest_run(call.arguments["run"], call.reporter)
        if call.config.to == "trl":
            console.print_result(run_trl_export(run, call.config, call.reporter), as_json=call.common.json)
        elif call.config.out is not None:
            console.print_result(run_data_export(run, call.config, call.reporter), as_json=call.common.json)
        elif call.common.json:
            raise UsageError("The rows and the result cannot both go to stdout.", where="--json", fix="--out FILE")
        else:
            for line in export_lines(run, call.config, call.reporter):
                console.write_json(line.decode())

    def _environment(self, call: Call[DataExportConfig]) -> None:
        from sweet.environments.exporting import run_environment_export

        given = call.arguments["run"]
        run = None if given is None and call.config.tasks else newest_run(given, call.reporter)
        result = run_environment_export(run, call.config, call.reporter)
        console.print_result(result, as_json=call.common.json)
        call.reporter.say(f"next: pip install -e {shlex.quote(result.metrics.out)}")
        if call.config.to == "verifiers":
            call.reporter.say(f"next: vf-eval {result.metrics.distribution} -n 5 --model MODEL --client.base-url URL")


class Push(Command[PushConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [
            ArgumentSpec("run", "RUN", "The run directory.", required=True),
            ArgumentSpec("name", "ORG/NAME", "The repository on the model hub.", required=True, is_path=False),
        ]

    def work(self, call: Call[PushConfig]) -> None:
        from sweet.publishing.stage import run_push

        run, name = Run.open(call.arguments["run"]), call.arguments["name"]
        result = run_push(run, name, call.config, call.reporter)
        console.print_result(result, as_json=call.common.json)
        if call.config.out is not None:
            call.reporter.say(f"Written to {call.config.out}; nothing was pushed.")


class MicroAgent(Command[MicroAgentConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [ArgumentSpec("folder", "DIR", "The directory to create; it must be new or empty.", required=True)]

    def work(self, call: Call[MicroAgentConfig]) -> None:
        folder = call.arguments["folder"]
        console.print_result(run_data_micro_agent(folder, call.config, call.reporter), as_json=call.common.json)
        call.reporter.say(f"next: sweet rollout --agent {shlex.quote(str(folder))}")


class NewTask(Command[NewTaskConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [ArgumentSpec("folder", "DIR", "The directory to create; it must be new or empty.", required=True)]

    def work(self, call: Call[NewTaskConfig]) -> None:
        folder, name = call.arguments["folder"], call.config.name
        console.print_result(run_new_task(folder, call.config), as_json=call.common.json)
        call.reporter.say(f"next: pip install -e {shlex.quote(str(folder))}")
        call.reporter.say(f"next: sweet rollout runs/{name} --task {name} --agent scripted --samples 8")


COMMANDS = (
    ColBench(
        name="data colbench",
        config=ColBenchConfig,
        summary="Download ColBench's backend tasks from the model hub.",
        text="They are stored in the user's data folder; sweet rollout --tasks colbench plays them.",
        examples=(("sweet data colbench", "the tasks, training and test"),),
    ),
    WebSight(
        name="data websight",
        config=WebSightConfig,
        summary="Build ColBench's frontend tasks from WebSight on the model hub.",
        text="Streams descriptions and pages, not the screenshots, into the user's data folder; sweet rollout --task "
        "html plays them. It can be interrupted at any time: the same command resumes. Requires the extra data, "
        "except for JSONL files.",
        examples=(
            ("sweet data websight", "10,000 training tasks, 10,000 test tasks"),
            ("sweet data websight --split test --limit 500", "only the paper's test tasks"),
            ("sweet data websight --source WebSight/v0.2", "from Parquet files on this machine"),
        ),
    ),
    Assets(
        name="data assets",
        config=AssetsConfig,
        summary="Download the assets that the pages of frontend tasks load.",
        text="Tailwind's stylesheet and its script, from a CDN or through npm, each verified by its sha256. Pages are "
        "rendered without network access: these files are served from the user's data folder.",
        examples=(
            ("sweet data assets", "once, before playing frontend tasks"),
            ("sweet data assets --photo", "for screenshots as in the published code"),
        ),
    ),
    Check(
        name="data check",
        config=DataCheckConfig,
        summary="Check the tasks of a file: references, tests, duplicates, leaks.",
        text="Runs every reference against its own tests in the sandbox, or renders every page. Lists the tasks that "
        "cannot be scored, with which it exits with 1, and those that are slow, trivial or duplicates, or whose "
        "request contains the reference. sweet rollout itself refuses only references and tests that do not compile.",
        examples=(
            ("sweet data check tasks.jsonl", "before anything is paid for"),
            ("sweet data check micro --split test", "a dataset by its name"),
            ("sweet data check tasks.jsonl --repeats 5", "a longer look for references that change their values"),
        ),
    ),
    Describe(
        name="data describe",
        config=DescribeConfig,
        summary="Write a specification in plain words of each task, for a human that shall not see the code.",
        text="A model writes it from the request and the reference. It is kept if no source of the reference is found "
        "in it, and what a model writes from request and specification passes the hidden tests in the sandbox; "
        "otherwise it is written again, and tasks for which no try succeeds are listed with the reason. Called again, "
        "it describes only the tasks that have none.",
        examples=(
            ("sweet data describe tasks.jsonl --model MODEL --url http://localhost:8001/v1", "tasks-described.jsonl"),
            ("sweet data describe colbench --model MODEL --url URL --out described.jsonl", "a dataset by its name"),
            ("sweet data describe tasks.jsonl --model BIG --url URL --check-model M --check-url URL2", "two models"),
        ),
    ),
    Import(
        name="data import",
        config=DataImportConfig,
        summary="Import dialogues from a file into a run.",
        text="Rows with a reward count as scored, so that sweet label can follow directly. A dialogue keeps the system "
        "prompt of its agent, which the input of the agent's turns contains: as text in the format of Llama 3, ChatML "
        "or Gemma, or as messages.",
        examples=(
            ("sweet data import offline.jsonl runs/offline", "dialogues in the published format"),
            ("sweet data import offline.jsonl runs/offline --prompts prompts", "rows that record no prompt"),
        ),
    ),
    Export(
        name="data export",
        config=DataExportConfig,
        summary="Export a run's dialogues, or its tasks and pairs for other trainers.",
        text="By default in the published format: the rows are blocks of the same tasks in the same order, as the "
        "published scripts require, and the turns of the agent have their prompts (input) and raw replies (output). "
        "The published evaluation of code takes the file; that of pages does not, as its answers are screenshots "
        "instead of HTML. --to writes environment packages and data sets for other programs instead (docs/export.md).",
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
    ),
    Push(
        name="data push",
        config=PushConfig,
        summary="Push a run's data, or a trained model, to the model hub with a card.",
        text="Without --actor and --critic a dataset of the run's dialogues, candidates, preferences and pairs, each a "
        "subset with the splits of its tasks. With one of them the model, and a card of its data, method, results with "
        "their intervals, "
        "lineage, and what was not shown. New repositories are private. --out writes the card (and the data) to a "
        "directory instead.",
        examples=(
            ("sweet data push RUN me/dialogues", "the data, as a private dataset"),
            ("sweet data push RUN me/agent --actor last --public", "the newest trained model"),
            ("sweet data push RUN me/critic --critic last", "the newest critic, with a card that says what it is"),
            ("sweet data push RUN me/agent --actor actor-1 --out card", "only the card, on disk"),
        ),
    ),
    NewTask(
        name="data new-task",
        config=NewTaskConfig,
        summary="Create the skeleton of a package with a new kind of task.",
        text="The skeleton works unchanged: a task, a scripted human, a rule-based agent, a scorer and a test. "
        "Nothing is overwritten.",
        examples=(("sweet data new-task haiku-task --name haiku", "then pip install -e haiku-task"),),
    ),
    MicroAgent(
        name="data micro-agent",
        config=MicroAgentConfig,
        summary="Build the packaged agent from scratch.",
        text="Trains a tokenizer and a small Llama on generated dialogues. The defaults are the recipe of the packaged "
        "agent micro; micro-parts has half of its dialogues from each of the two other datasets.",
        examples=(
            ("sweet data micro-agent agent", "a few minutes on one CPU core"),
            ("sweet data micro-agent agent --tasks micro-long,micro-parts --dialogues 80000", "the agent micro-parts"),
        ),
    ),
)
