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
rendered by the tokenizer of `--tokenizer`, else of the agent if that is a model on this machine, as long as they fit a
row. Prompts that an imported row has are kept. The rewards are those of the newest scores.

Rows have fields besides the published ones (ids, usage, the agent's system prompt, …), by which `sweet data import`
reads an export back unchanged. The agent's thoughts are left out unless they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

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
from sweet.runs.index import ROLLOUTS, Index, RolloutEntry
from sweet.runs.jsonl import parse_row
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system, is_model, recorded_model
from sweet.stages.base import Reporter, StageResult
from sweet.stages.options import SimUrlConfig
from sweet.tasks.trajectory import Trajectory, Turn
from sweet.units import count

Target = Literal["published", "verifiers", "gymnasium", "openenv", "trl"]
"""What an export is for."""

NAMED = 5
"""Tasks that a warning names."""

LONGEST_PROMPTS = 1 << 23
"""Characters of the prompts of a dialogue, each of which repeats the earlier ones, so that a row can be read again."""
_LEAST_OF_A_TURN = 16
"""Characters that a template writes around a turn, about."""

ENVIRONMENTS: tuple[Target, ...] = ("verifiers", "gymnasium", "openenv")
_OPTIONS_OF: dict[str, tuple[Target, ...]] = {
    "tokenizer": ("published",),
    "incomplete": ("published",),
    "include_thoughts": ("published", "trl"),
    **dict.fromkeys(("name", "task", "tasks", "split", "sim", "sim_url"), ENVIRONMENTS),
}
"""The options that only some exports have."""


class DataExportConfig(SimUrlConfig):
    to: Target = "published"
    """published: dialogues in the published format. verifiers, gymnasium, openenv: tasks, human and scorer as an
    environment package for trainers on that library. trl: pairs of replies as data sets for TRL's DPOTrainer and
    KTOTrainer."""
    from_: str | None = None
    """Rollouts to export, or with --to trl pairs; default: the newest."""
    out: Path | None = None
    """File to write; default: stdout. With another --to: the directory to create."""
    name: str | None = None
    """Of an environment: name of the package, sweet-env-NAME; default: the kind of task and the dataset."""
    task: str | None = None
    """With --tasks: kind of task; default: that of the run, else code."""
    tasks: str | None = None
    """Of an environment: a dataset or a JSONL file of tasks, instead of the tasks of the dialogues. No run is needed
    then."""
    split: str | None = None
    """With --tasks: the split of the dataset; default: train."""
    sim: str | None = None
    """Of an environment: the simulated human; default: that of the dialogues, else scripted."""
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


class Export:
    """The rows of an export.

    Raises:
        InputError: a row of the rollouts is damaged.
        UsageError: there are no such rollouts, or no such tokenizer.
    """

    def __init__(self, run: Run, config: DataExportConfig, reporter: Reporter) -> None:
        self._run, self._config, self._reporter = run, config, reporter
        self._rollouts = run.find("rollouts", config.from_, needed_by="data export")
        self._index = Index(run.file(self._rollouts), ROLLOUTS)
        self._template, self._why_none = self._find_template()
        self._system = agent_system(run, self._rollouts)
        self._without_input = 0
        of_task: dict[str, list[RolloutEntry]] = {}
        for row in self._index.entries:
            of_task.setdefault(row.task_id, []).append(row)
        names = list(of_task) if is_imported(self._rollouts) else sorted(of_task, key=task_order)
        ordered = [sorted(of_task[name], key=lambda row: (row.sample, row.offset)) for name in names]
        self._samples = max(map(len, ordered), default=0)
        self._complete = [task_entries for task_entries in ordered if len(task_entries) == self._samples]
        self._incomplete = [task_entries for task_entries in ordered if len(task_entries) < self._samples]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, and report afterwards what they lack."""
        entries = [task_entries[block] for block in range(self._samples) for task_entries in self._complete]
        rest = [row for task_entries in self._incomplete for row in task_entries]
        self._report_blocks(len(rest))
        rewards = newest_rewards(self._run, self._rollouts)
        system = known_system(self._run, self._rollouts)
        unanswered = 0
        for entry in entries if self._config.incomplete == "drop" else entries + rest:
            trajectory = parse_row(self._index.line(entry), Trajectory, self._index.path)
            unanswered += trajectory.dialogue_history[-1].role != "assistant"
            reward = rewards.get(trajectory.id, trajectory.reward)
            trajectory = trajectory if self._config.include_thoughts else without_thoughts(trajectory)
            turns = tuple(self._turns(trajectory))
            yield published_row(trajectory.model_copy(update={"dialogue_history": turns}), reward, system)
        if self._without_input:
            self._reporter.warn(
                f"Turns of the agent without `input`, their prompt: {self._without_input}, as {self._why_none}. The "
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
            tasks=len(self._complete),
            samples=self._samples,
            incomplete=len(self._incomplete),
            without_input=self._without_input,
        )

    def _report_blocks(self, rest: int) -> None:
        """Say what the blocks are, and warn of tasks that are not in them."""
        blocks, tasks = count(self._samples, "block"), count(len(self._complete), "task")
        self._reporter.say(f"{blocks}, each with a dialogue of the same {tasks} in the same order.")
        if self._incomplete:
            first = [task_entries[0].task_id for task_entries in self._incomplete[:NAMED]]
            names = ", ".join(first) + (", …" if len(self._incomplete) > NAMED else "")
            done = f"dropped: {count(rest, 'row')}"
            if self._config.incomplete == "keep":
                refused = "where the published evaluation refuses them (--incomplete drop)"
                done = f"after the blocks: {count(rest, 'row')}, {refused}"
            tasks = count(len(self._incomplete), "task")
            self._reporter.warn(f"With fewer than {count(self._samples, 'dialogue')}: {tasks} ({names}); {done}.")

    def _turns(self, trajectory: Trajectory) -> Iterator[Turn]:
        """Yield the turns of a dialogue, those of the agent with its prompt and its raw reply."""
        prompt = prompts = 0
        for index, turn in enumerate(trajectory.dialogue_history):
            prompts += prompt if turn.role == "assistant" else 0
            yield self._turn(trajectory, index, fits=prompts <= LONGEST_PROMPTS)
            prompt += len(turn.content) + _LEAST_OF_A_TURN

    def _turn(self, trajectory: Trajectory, index: int, *, fits: bool) -> Turn:
        """Return a turn, that of the agent with its prompt, if that fits the row, and its raw reply.

        Raises:
            UsageError: the template refuses the prompt.
        """
        turn = trajectory.dialogue_history[index]
        if turn.role != "assistant":
            return turn
        if self._template is not None and not fits:
            self._why_none = f"those of a dialogue have more than {LONGEST_PROMPTS:,} characters together"
        if self._template is None or not fits:
            self._without_input += turn.input is None
            return turn
        prompt = turn.input
        if not isinstance(prompt, str):
            try:
                observation = trajectory.observation(index, self._system)
                prompt = self._template.text(observation, tools=trajectory.tools or ())
            except ValueError as error:
                what = f"The prompt of turn {index} cannot be rendered: {error}."
                fix = "--tokenizer MODEL"
                raise UsageError(what, where=f"dialogue {trajectory.id}", fix=fix) from error
        return turn.model_copy(update={"input": prompt, "output": turn.said})

    def _find_template(self) -> tuple[ChatTemplate | None, str]:
        """Return the chat template of the prompts, or None and the reason why there is none."""
        if self._config.tokenizer is not None:
            return _template(self._config.tokenizer), ""
        agent = recorded_model(self._run, self._rollouts, "agent")
        if not agent or not is_model(agent):
            return None, f"the agent was {agent}, which is no model" if agent else "the agent is not recorded"
        from sweet.llm.pretrained import is_here

        if not is_here(agent):
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
