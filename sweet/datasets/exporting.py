"""`sweet data export`: write trajectories in the published layout, in the order that the published scripts require.

What `--to` names besides is in `sweet.datasets.trl` and `sweet.environments.exporting`.

The published evaluation reads a file as k blocks, each with one dialogue of every task, the tasks in the same order:
row i and row i + (number of tasks) are dialogues of one task. So the dialogues of each task are numbered (by sample,
then by their position in the rollouts), and block j has the j-th of each; k is the largest number of dialogues of a
task. Tasks with fewer dialogues belong to no block: their rows follow the blocks, or are dropped. Tasks are in the
order of their ids, which does not depend on which dialogue ended first; those of an imported file in the order of
the file.

The published critic data and candidates are made of `input`, the prompt of each turn of the agent as its model's chat
template renders it, and `output`, the raw reply. Dialogues that were played here do not store prompts: they are
rendered by the tokenizer of `--tokenizer`, else of the agent if that is a model on this machine. Prompts that an
imported row has are kept. The rewards are those of the newest scores.

Rows have fields besides the published ones (ids, usage, the agent's system prompt, …), by which `sweet data import`
reads an export back unchanged. The agent's thoughts are left out unless they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from sweet.datasets.layout import (
    is_imported,
    known_system,
    newest_rewards,
    published_line,
    published_row,
    task_order,
    without_thoughts,
)
from sweet.datasets.metrics import ExportMetrics
from sweet.errors import UsageError, first_line
from sweet.files import check_target, replacing
from sweet.hints import option
from sweet.llm.template import ChatTemplate
from sweet.runs.entries import ROLLOUTS, RolloutEntry
from sweet.runs.index import Index
from sweet.runs.jsonl import parse_row
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system, is_model, recorded_model
from sweet.stages.base import Reporter, StageResult
from sweet.stages.options import SimUrlConfig
from sweet.tasks.trajectory import Trajectory, Turn
from sweet.units import count

Target = Literal["published", "verifiers", "gymnasium", "trl"]
"""What an export is for."""

NAMED = 5
"""Tasks that a warning names."""

_ENVIRONMENTS: tuple[Target, ...] = ("verifiers", "gymnasium")
_OPTIONS_OF: dict[str, tuple[Target, ...]] = {
    "tokenizer": ("published",),
    "incomplete": ("published",),
    "include_thoughts": ("published", "trl"),
    **dict.fromkeys(("name", "task", "tasks", "split", "sim", "sim_url"), _ENVIRONMENTS),
}
"""The options that only some exports have."""


class DataExportConfig(SimUrlConfig):
    to: Target = "published"
    """published: dialogues in the published format. verifiers, gymnasium: tasks, human and scorer as an environment
    package for trainers on that library. trl: pairs of replies as data sets for TRL's DPOTrainer and KTOTrainer."""
    from_: str | None = None
    """Rollouts to export, or with --to trl pairs; default: the newest."""
    out: Path | None = None
    """File to write; default: stdout. With another --to: the directory to create."""
    name: str | None = None
    """With --to verifiers or gymnasium: name of the package, sweet-env-NAME; default: the kind of task and the
    dataset."""
    task: str | None = None
    """With --tasks: kind of task; default: that of the run, else code."""
    tasks: str | None = None
    """With --to verifiers or gymnasium: a dataset or a JSONL file of tasks, instead of the tasks of the dialogues. No
    run is needed then."""
    split: str | None = None
    """With --tasks: the split of the dataset; default: train."""
    sim: str | None = None
    """With --to verifiers or gymnasium: the simulated human; default: that of the dialogues, else scripted."""
    tokenizer: str | None = None
    """Model whose chat template renders the prompts of the agent's turns; default: the agent's, if that is a model on
    this machine."""
    incomplete: Literal["keep", "drop"] = "keep"
    """Tasks with fewer dialogues than others: keep their rows after the blocks, or drop them."""
    include_thoughts: bool = False
    """Also write the agent's thoughts, and the token ids that contain them."""


def check_options(config: DataExportConfig) -> None:
    """Raise UsageError if an option has no effect with this `--to`, or the directory to create is missing."""
    defaults = type(config).default_settings()
    for name, targets in _OPTIONS_OF.items():
        if config.to not in targets and getattr(config, name) != defaults[name]:
            raise UsageError(
                f"{option(name)} has no effect with {option('to', config.to)}.",
                where=option(name),
                fix=f"omit it, or {option('to', targets)}",
            )
    if config.tasks is None and (config.task or config.split):
        raise UsageError(
            "A kind or a split of tasks is given, and no tasks.",
            where=option("task" if config.task else "split"),
            fix="--tasks DATASET",
        )
    if config.to != "published" and config.out is None:
        raise UsageError("The export requires a directory to create.", fix="--out DIR")


@dataclass(frozen=True)
class Blocks:
    """The order of the rows of an export.

    Attributes:
        complete: the rows of the tasks with the most dialogues: block by block, in each the tasks in the same order.
        rest: the rows of the other tasks.
        samples: number of blocks.
        tasks: number of tasks of a block.
        incomplete: ids of the other tasks.
    """

    complete: list[RolloutEntry]
    rest: list[RolloutEntry]
    samples: int
    tasks: int
    incomplete: list[str]

    @classmethod
    def of(cls, rows: Iterable[RolloutEntry], *, by_id: bool) -> Self:
        """Order rows.

        Args:
            by_id: order the tasks by their ids; otherwise as they first appear.
        """
        of_task: dict[str, list[RolloutEntry]] = {}
        for row in rows:
            of_task.setdefault(row.task_id, []).append(row)
        names = sorted(of_task, key=task_order) if by_id else list(of_task)
        ordered = {name: sorted(of_task[name], key=lambda row: (row.sample, row.offset)) for name in names}
        samples = max(map(len, ordered.values()), default=0)
        complete = [found for found in ordered.values() if len(found) == samples]
        incomplete = [name for name, found in ordered.items() if len(found) < samples]
        return cls(
            complete=[found[block] for block in range(samples) for found in complete],
            rest=[row for name in incomplete for row in ordered[name]],
            samples=samples,
            tasks=len(complete),
            incomplete=incomplete,
        )

    def rows(self, incomplete: Literal["keep", "drop"]) -> list[RolloutEntry]:
        return self.complete if incomplete == "drop" else self.complete + self.rest

    def report(self, incomplete: Literal["keep", "drop"], reporter: Reporter) -> None:
        """Say what the blocks are, and warn of tasks that are not in them."""
        blocks, tasks = count(self.samples, "block"), count(self.tasks, "task")
        reporter.say(f"{blocks}, each with a dialogue of the same {tasks} in the same order.")
        if self.incomplete:
            names = ", ".join(self.incomplete[:NAMED]) + (", …" if len(self.incomplete) > NAMED else "")
            rows = count(len(self.rest), "row")
            done = f"dropped: {rows}" if incomplete == "drop" else f"after the blocks: {rows}"
            more = "" if incomplete == "drop" else ", where the published evaluation refuses them (--incomplete drop)"
            reporter.warn(
                f"With fewer than {count(self.samples, 'dialogue')}: {count(len(self.incomplete), 'task')} ({names}); "
                f"{done}{more}."
            )


class PromptWriter:
    """Adds `input` and `output` to the agent's turns.

    Args:
        template: renders the prompts; None where there is no tokenizer, and nothing is added.
        system: the agent's system prompt in dialogues that have none of their own.

    Attributes:
        missing: number of turns so far that lack `input`.
    """

    def __init__(self, template: ChatTemplate | None, system: str) -> None:
        self._template, self._system = template, system
        self.missing = 0

    def written(self, trajectory: Trajectory) -> Trajectory:
        """Return the dialogue with the prompts of its turns.

        Raises:
            UsageError: the template refuses one.
        """
        turns = [self._turn(trajectory, index) for index in range(len(trajectory.dialogue_history))]
        return trajectory.model_copy(update={"dialogue_history": tuple(turns)})

    def _turn(self, trajectory: Trajectory, index: int) -> Turn:
        turn = trajectory.dialogue_history[index]
        if turn.role != "assistant":
            return turn
        if self._template is None:
            self.missing += turn.input is None
            return turn
        given = turn.input
        if not isinstance(given, str):
            try:
                given = self._template.text(trajectory.observation(index, self._system))
            except ValueError as error:
                what = f"The prompt of turn {index} cannot be rendered: {error}."
                fix = "--tokenizer MODEL"
                raise UsageError(what, where=f"dialogue {trajectory.id}", fix=fix) from error
        return turn.model_copy(update={"input": given, "output": turn.said})


class Export:
    """The rows of an export.

    Raises:
        InputError: a row of the rollouts is damaged.
        UsageError: there are no such rollouts, or no such tokenizer.

    Attributes:
        blocks: their order.
    """

    def __init__(self, run: Run, config: DataExportConfig, reporter: Reporter) -> None:
        self._run, self._config, self._reporter = run, config, reporter
        self._rollouts = run.find("rollouts", config.from_, needed_by="data export")
        self._index = Index(run.file(self._rollouts), ROLLOUTS)
        self.blocks = Blocks.of(self._index.entries, by_id=not is_imported(self._rollouts))
        self._template, self._why_none = self._find_template()
        self.prompts = PromptWriter(self._template, agent_system(run, self._rollouts))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, and report afterwards what they lack."""
        self.blocks.report(self._config.incomplete, self._reporter)
        rewards = newest_rewards(self._run, self._rollouts)
        system = known_system(self._run, self._rollouts)
        unanswered = 0
        for entry in self.blocks.rows(self._config.incomplete):
            trajectory = parse_row(self._index.line(entry), Trajectory, self._index.path)
            unanswered += trajectory.dialogue_history[-1].role != "assistant"
            reward = rewards.get(trajectory.id, trajectory.reward)
            trajectory = trajectory if self._config.include_thoughts else without_thoughts(trajectory)
            yield published_row(self.prompts.written(trajectory), reward, system)
        if self.prompts.missing:
            self._reporter.warn(
                f"Turns of the agent without `input`, their prompt: {self.prompts.missing}, as {self._why_none}. The "
                "published critic data and candidates need it (--tokenizer MODEL)."
            )
        if unanswered:
            self._reporter.warn(
                f"Dialogues that end with a message of the human, as a fault ended them: {unanswered}. The published "
                "critic data need dialogues that end with the agent's reply."
            )

    def metrics(self, rows: int, out: Path) -> ExportMetrics:
        return ExportMetrics(
            trajectories=rows,
            out=str(out),
            tasks=self.blocks.tasks,
            samples=self.blocks.samples,
            incomplete=len(self.blocks.incomplete),
            without_input=self.prompts.missing,
        )

    def _find_template(self) -> tuple[ChatTemplate | None, str]:
        """Return the chat template of the prompts, or None and the reason why there is none."""
        if self._config.tokenizer is not None:
            return _template(self._config.tokenizer), ""
        agent = recorded_model(self._run, self._rollouts, "agent")
        if not agent or not is_model(agent):
            return None, f"the agent was {agent}, which is no model" if agent else "the agent is not recorded"
        from sweet.llm.weights import parameter_count

        if parameter_count(agent) is None:
            return None, f"the agent {agent} is not a model on this machine"
        try:
            return _template(agent), ""
        except UsageError as error:
            return None, f"the agent's tokenizer cannot be used ({first_line(error)})"


def _template(model: str) -> ChatTemplate:
    from sweet.llm.pretrained import load_tokenizer

    return ChatTemplate(load_tokenizer(model))


def export_lines(run: Run, config: DataExportConfig, reporter: Reporter) -> Iterator[bytes]:
    """Yield the rows as lines of JSON, each with its newline."""
    return map(published_line, Export(run, config, reporter).rows())


def run_data_export(run: Run, config: DataExportConfig, reporter: Reporter) -> StageResult[ExportMetrics]:
    """Write the rows to `config.out`, which is replaced only after all rows are written."""
    if config.out is None:
        raise UsageError("An export requires a file to write.", fix="--out FILE")
    out = config.out
    check_target(out)
    export = Export(run, config, reporter)
    rows = 0
    with replacing(out) as file, reporter.progress("exporting", None) as bar:
        for row in export.rows():
            file.write(published_line(row))
            rows += 1
            bar.advance()
    return StageResult("data export", run.path, export.metrics(rows, out))
