"""`sweet data`: download tasks and assets of pages, import and export trajectories, build the packaged agent."""

from __future__ import annotations

import shlex

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.cli.declaration import ArgumentSpec
from sweet.cli.stage_command import newest_run, newest_run_argument
from sweet.datasets.colbench import ColBenchConfig, run_data_colbench
from sweet.datasets.exporting import DataExportConfig, export_lines, run_data_export
from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.datasets.micro_agent import MicroAgentConfig, run_data_micro_agent
from sweet.datasets.new_task import NewTaskConfig, run_new_task
from sweet.datasets.page_assets import AssetsConfig, run_data_assets
from sweet.datasets.websight import WebSightConfig, run_data_websight
from sweet.errors import UsageError


class ColBench(Command[ColBenchConfig]):
    def work(self, call: Call[ColBenchConfig]) -> None:
        console.print_result(run_data_colbench(call.config, call.reporter), as_json=call.common.json)


class WebSight(Command[WebSightConfig]):
    def work(self, call: Call[WebSightConfig]) -> None:
        console.print_result(run_data_websight(call.config, call.reporter), as_json=call.common.json)


class Assets(Command[AssetsConfig]):
    def work(self, call: Call[AssetsConfig]) -> None:
        console.print_result(run_data_assets(call.config, call.reporter), as_json=call.common.json)


class Import(Command[DataImportConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [
            ArgumentSpec("file", "FILE", "JSONL of trajectories in the published format.", required=True),
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
        run = newest_run(call.arguments["run"], call.reporter)
        if call.config.out is not None:
            console.print_result(run_data_export(run, call.config, call.reporter), as_json=call.common.json)
        elif call.common.json:
            raise UsageError("The rows and the result cannot both go to stdout.", where="--json", fix="--out FILE")
        else:
            for line in export_lines(run, call.config, call.reporter):
                console.write_json(line.decode())


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
    Import(
        name="data import",
        config=DataImportConfig,
        summary="Import trajectories from a file into a run.",
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
        summary="Export a run's trajectories in the published format.",
        text="The rows are blocks of the same tasks in the same order, as the published scripts require, and the turns "
        "of the agent have their prompts (input) and raw replies (output). The published evaluation of code takes the "
        "file; that of pages does not, as its answers are screenshots instead of HTML.",
        examples=(
            ("sweet data export RUN --out dialogues.jsonl", "with the rewards of the newest scores"),
            ("sweet data export RUN | head -n 1", "to stdout"),
            ("sweet data export RUN --tokenizer MODEL", "prompts of a scripted agent, or of one on a server"),
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
        "agent.",
        examples=(("sweet data micro-agent agent", "a few minutes on one CPU core"),),
    ),
)
