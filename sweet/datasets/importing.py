"""`sweet data import`: read trajectories in the published layout, or of another program, into a run.

An import reads its file twice: once to check every row, so that an invalid row leaves nothing behind, and once to
write. The trajectories become a `rollouts` artifact. If rows have rewards, these become a `scores` artifact too, so
that data which was scored elsewhere can be labelled without scoring it again.

Each has the system prompt that its turns record (`Turn.input`). A recorded prompt is a list of chat messages, or the
string that a chat template rendered, which is split into messages at the special tokens of Llama 3, ChatML and Gemma.
The system prompt is what stands before the dialogue's opening request: the leading system message, without the lines
that the template of Llama 3.1 and later writes before it, as the template writes them again, and what the message with
the request has before that (Gemma has no system role).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

from sweet.datasets.foreign import Format, format_of
from sweet.datasets.metrics import ImportMetrics
from sweet.datasets.published import read_trajectories
from sweet.errors import UsageError
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import IMPORTED, given_prompts
from sweet.stages.base import Reporter, StageResult, digest_of
from sweet.stages.live import LiveReporter
from sweet.stages.meta import RolloutsMeta, ScoresMeta
from sweet.stages.options import TaskConfig
from sweet.stages.resuming import for_run
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import given_score
from sweet.tasks.tools import MOST_NAMES, summed
from sweet.tasks.trajectory import Trajectory, dump
from sweet.units import count

MOST_PROMPTS = 10
"""Different system prompts that the metrics of an import count."""

SYSTEM_ROLES = ("system", "developer")
USER_ROLES = ("user", "human")

TEMPLATE_LINES = re.compile(
    r"\A(?:Environment: ipython\n)?Cutting Knowledge Date: [^\n]*\nToday Date: [^\n]*(?:\n\n|\n?\Z)"
)
"""What the chat template of Llama 3.1, 3.2 and 3.3 writes at the beginning of the system message."""

_HEAD = re.compile(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n\n|<\|im_start\|>(\w+)\n|<start_of_turn>(\w+)\n")
_END = re.compile(r"<\|eot_id\|>|<\|im_end\|>|<end_of_turn>")


class DataImportConfig(TaskConfig):
    format: Format = "auto"
    """Format of the file: published, verifiers (traces.jsonl, or results.jsonl of earlier versions) or inspect (a log
    of inspect_ai); auto looks at the file."""
    score: str | None = None
    """Of a log of inspect_ai: the scorer whose value is the reward; default: the first of each sample."""
    prompts: Path | None = None
    """Folder with agent.txt: the agent's system prompt in rows that record none; default: the packaged one."""


class _ImportRecord(DataImportConfig):
    """The configuration of an import in the manifest."""

    file: str


@dataclass
class _Survey:
    """What a file contains: numbers of rows by what they have, and by the agent's system prompt; names of rewards."""

    rows: Counter[str] = field(default_factory=Counter)
    prompts: Counter[str] = field(default_factory=Counter)
    rewards: set[str] = field(default_factory=set)

    def add(self, trajectory: Trajectory) -> None:
        thoughtful = any(turn.thought for turn in trajectory.dialogue_history)
        self.rewards |= summed(trajectory.turn_rewards.values()).keys()
        if len(self.rewards) > MOST_NAMES:
            raise UsageError(f"The turns have rewards of more than {MOST_NAMES} names.", where=trajectory.id)
        self.rows += Counter(all=1, rewards=trajectory.reward is not None, thoughts=thoughtful)

    def metrics(self) -> ImportMetrics:
        return ImportMetrics(
            trajectories=self.rows["all"],
            scores=self.rows["rewards"],
            system_prompts={digest_of(text): rows for text, rows in self.prompts.most_common(MOST_PROMPTS)},
            without_prompt=self.rows["without prompt"],
        )

    def report(self, folder: Path | None, reporter: Reporter) -> None:
        """Say how many rows have which system prompt.

        Args:
            folder: that of the prompt for rows that record none.
        """
        for text, rows in self.prompts.most_common(3):
            prompt = f"{digest_of(text)} ({shorten(text, 60, placeholder=' …')})" if text else "none"
            reporter.say(f"System prompt of the agent in {rows} of {count(self.rows['all'], 'row')}: {prompt}.")
        if len(self.prompts) > 3:
            reporter.say(f"Different system prompts in all: {len(self.prompts)}.")
        if thoughtful := self.rows["thoughts"]:
            reporter.say(f"Rows with thoughts of the agent, which are kept apart from its replies: {thoughtful}.")
        if without := self.rows["without prompt"]:
            fallback = "the packaged one" if folder is None else f"that of {folder}"
            reporter.say(f"Rows that record no prompt, or none that can be read; {fallback} is taken: {without}.")


def run_data_import(
    file: Path, folder: Path, config: DataImportConfig, reporter: Reporter
) -> StageResult[ImportMetrics]:
    """Import the trajectories of `file` into the run at `folder`, which is created if it does not exist.

    Raises:
        InputError: a row is invalid; nothing has been written.
        UsageError: the run is for another kind of task.
    """
    config = for_run(config, Run(folder))
    kind = task_kind(config.task)
    meta = RolloutsMeta(tasks=str(file), agent=IMPORTED, sim=IMPORTED)
    if config.prompts is not None:
        prompt_fields = given_prompts(kind.with_prompts(config.prompts), config.prompts, MAX_TURNS)
        meta = meta.model_copy(update=prompt_fields)
    format = format_of(file) if config.format == "auto" else config.format
    if config.score is not None and format != "inspect":
        raise UsageError("Only a log of inspect_ai has scores by name.", where="--score", fix="omit --score")
    if format != "published":
        reporter.say(f"The file has dialogues in the format of {format}.")
    survey = _Survey()
    with reporter.progress("checking", None) as bar:
        for trajectory in read_trajectories(file, format, config.score):
            survey.add(trajectory)
            bar.advance()
    run = Run.open_or_create(folder, config.task)
    record = _ImportRecord(task=config.task, prompts=config.prompts, file=str(file))
    with run.attempt("data-import", record) as attempt:
        draft = attempt.start_artifact("rollouts", meta=meta.as_json())
        importing = LiveReporter(reporter, attempt).progress("importing", survey.rows["all"])
        with JsonlWriter(draft.path) as writer, importing as bar:
            for trajectory in read_trajectories(file, format, config.score):
                if (system := recorded_system(trajectory)) is None:
                    survey.rows["without prompt"] += 1
                else:
                    survey.prompts[system] += 1
                writer.write(dump(trajectory.model_copy(update={"agent_system": system})))
                bar.advance()
        rollouts = attempt.finish_artifact(draft, rows=survey.rows["all"])
        metrics = survey.metrics()
        attempt.metrics.update(metrics.as_json())
    survey.report(config.prompts, reporter)
    artifacts = [rollouts]
    if survey.rows["rewards"]:
        artifacts.append(_import_scores(run, record, rollouts, survey.rows["rewards"]))
    return StageResult("data import", run.path, metrics, artifacts)


def _import_scores(run: Run, record: _ImportRecord, rollouts: Artifact, rows: int) -> Artifact:
    with run.attempt("data-import", record, inputs=[rollouts]) as attempt:
        rule = task_kind(run.manifest().task).rewards
        draft = attempt.start_artifact("scores", meta=ScoresMeta(scoring={"scorer": IMPORTED}).as_json())
        with JsonlWriter(draft.path) as writer:
            for trajectory in read_jsonl(run.file(rollouts), Trajectory):
                if trajectory.reward is not None:
                    writer.write(given_score(trajectory, trajectory.reward, rule))
        attempt.metrics.update({"trajectories": rows, "scorer": IMPORTED})
        return attempt.finish_artifact(draft, rows=rows)


def recorded_system(trajectory: Trajectory) -> str | None:
    """Return the system prompt of a dialogue: its own field, else that of the first prompt that a turn records.

    Returns:
        None where no turn records a prompt, or it cannot be read; empty where the agent had no system prompt.
    """
    if trajectory.agent_system is not None:
        return trajectory.agent_system
    recorded = (turn.input for turn in trajectory.dialogue_history if turn.role == "assistant" and turn.input)
    prompt = next(recorded, None)
    return None if prompt is None else system_of(prompt, trajectory.dialogue_history[0].content)


def system_of(prompt: str | Sequence[Mapping[str, Any]], request: str) -> str | None:
    """Return the system prompt of a recorded prompt; empty where the agent had none, None where the format is not known
    or the dialogue's request does not follow.

    Args:
        request: the dialogue's opening request. Templates may trim it, so spaces around it are not compared.
    """
    before: list[str] = []
    for role, text in _rendered(prompt) if isinstance(prompt, str) else map(_message, prompt[:2]):
        if role in SYSTEM_ROLES:
            text = TEMPLATE_LINES.sub("", text)
        if role in (*SYSTEM_ROLES, *USER_ROLES) and text.rstrip().endswith(request.strip()):
            before.append(text.rstrip().removesuffix(request.strip()).rstrip())
            return "\n\n".join(filter(None, before))
        if role not in SYSTEM_ROLES:
            return None
        before.append(text)
    return None


def _rendered(prompt: str) -> Iterator[tuple[str, str]]:
    """Yield role and text of the first two messages that end."""
    for part in _END.split(prompt, 2)[:-1]:
        if head := _HEAD.search(part):
            yield head[head.lastindex or 0], part[head.end() :]


def _message(entry: Mapping[str, Any]) -> tuple[str, str]:
    role, content = entry.get("role"), entry.get("content")
    if isinstance(content, list):  # parts, as of the messages of a vision model
        parts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    return str(role), content if isinstance(content, str) else ""
