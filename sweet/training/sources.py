"""The artifacts that a training learns from: one, or several of a kind, each with its rollouts.

Learning may continue over rounds: the dialogues of each actor are labelled and paired separately, and the next training
learns from all rounds so far. Dialogues of two rounds have the same ids where both were played with the same seed;
with several rollouts, therefore, every id is prefixed with its rollouts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from sweet.credit.base import Batch, Subject
from sweet.errors import UsageError
from sweet.hints import option
from sweet.learn.rows import CandidateRow, Pair, Preference
from sweet.runs.jsonl import read_jsonl
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Reporter
from sweet.stages.unseen_tasks import newest_to_learn
from sweet.tasks.kind import TaskKind
from sweet.tasks.prompts import TURNS
from sweet.tasks.scores import RewardRule, Score, with_turn_rewards
from sweet.tasks.trajectory import Trajectory

Row = TypeVar("Row", bound=BaseModel)


class _Source(NamedTuple):
    """One artifact to learn from, with its rollouts.

    Attributes:
        prefix: of the ids of its dialogues.
    """

    artifact: Artifact
    rollouts: Artifact
    prefix: str


class Sources:
    """The artifacts that are learned from.

    Raises:
        UsageError: one is named twice or is missing.
        InputError: one has not the size and the rows with which it was finished.

    Attributes:
        inputs: the artifacts, the last one first, then their rollouts, those of the last one first.
    """

    def __init__(self, run: Run, artifacts: Sequence[Artifact]) -> None:
        rollouts_of = {artifact.id: run.input_of(artifact, "rollouts") for artifact in artifacts}
        if len(rollouts_of) < len(artifacts):
            repeated = next(artifact.id for i, artifact in enumerate(artifacts) if artifact in artifacts[:i])
            raise UsageError("An artifact is named twice.", where=option("from_", repeated), fix="name it once")
        rollouts = {artifact.id for artifact in rollouts_of.values()}
        self.run = run
        self._sources = [
            _Source(artifact, played, f"{played.id}/" if len(rollouts) > 1 else "")
            for artifact, played in zip(artifacts, rollouts_of.values(), strict=True)
        ]
        last_first = [artifact for source in reversed(self._sources) for artifact in source[:2]]
        unique = {artifact.id: artifact for artifact in last_first}
        self.inputs = sorted(unique.values(), key=lambda artifact: artifact.kind == "rollouts")
        for artifact in self.inputs:
            run.verify(artifact, sums=False)

    @classmethod
    def find(cls, run: Run, kind: Kind, names: Sequence[str], *, allow_test: bool, needed_by: str) -> Sources:
        """Return the named artifacts; where none is named, the newest of the kind.

        Args:
            allow_test: accept what was made from dialogues on test tasks; scores and rollouts of these are only chosen
                where there are no others.
        """
        if names:
            return cls(run, [run.find(kind, name, needed_by=needed_by) for name in names])
        if kind in ("scores", "rollouts"):
            return cls(run, [newest_to_learn(run, kind, None, allow_test=allow_test, needed_by=needed_by)])
        return cls(run, [run.find(kind, needed_by=needed_by)])

    def batch(self, kind: Kind, rule: RewardRule) -> Batch:
        """Return what a credit rule learns from that reads artifacts of this kind."""
        source = self.inputs[0].id
        if kind == "pairs":
            return Batch({}, rule, pairs=self.pairs(), source=source)
        dialogues = self.dialogues()
        if kind == "preferences":
            return Batch(dialogues, rule, preferences=self.preferences(), source=source)
        if kind == "candidates":
            candidates = list(self._learned_from(CandidateRow, "trajectory_id"))
            return Batch(dialogues, rule, candidates=candidates, source=source)
        rewards: dict[str, float] = {}
        for score in self._learned_from(Score, "id") if kind == "scores" else ():
            if score.reward is not None:
                rewards[score.id] = score.reward
                if score.id in dialogues:
                    dialogues[score.id] = with_turn_rewards(dialogues[score.id], score)
        return Batch(dialogues, rule, rewards=rewards, source=source)

    def dialogues(self) -> dict[str, Trajectory]:
        """Return all dialogues, by id, each with its agent's system prompt: those of several rollouts may differ."""
        dialogues: dict[str, Trajectory] = {}
        for source in self._sources:
            shared = agent_system(self.run, source.rollouts)
            for row in self._rows(source, source.rollouts, Trajectory, "id"):
                dialogue = row if row.agent_system is not None else row.model_copy(update={"agent_system": shared})
                dialogues[dialogue.id] = dialogue
        return dialogues

    def preferences(self) -> list[Preference]:
        return list(self._learned_from(Preference, "chosen", "rejected"))

    def pairs(self) -> list[Pair]:
        return list(self._learned_from(Pair, "id", "trajectory_id"))

    def _learned_from(self, row: type[Row], *ids: str) -> Iterator[Row]:
        for source in self._sources:
            yield from self._rows(source, source.artifact, row, *ids)

    def _rows(self, source: _Source, artifact: Artifact, row: type[Row], *ids: str) -> Iterator[Row]:
        """Read the rows of a source's artifact or rollouts, with the prefix added to their ids.

        Args:
            ids: the fields that are ids of dialogues.
        """
        for record in read_jsonl(self.run.file(artifact), row):
            prefixed = {name: source.prefix + getattr(record, name) for name in ids}
            yield record.model_copy(update=prefixed) if source.prefix else record


def prompt_of_actor(
    kind: TaskKind, subjects: Iterable[Subject], dialogues: Mapping[str, Trajectory], reporter: Reporter
) -> str | None:
    """Return the agent's system prompt in most of what an actor learns from; None for the packaged one. Warn where
    there are several, or none.

    The packaged one is the same for dialogues of any number of turns.

    Args:
        dialogues: by id, those of preferences and of single dialogues.
    """
    packaged = kind.agent_system()
    packaged_pattern = re.compile(r"\d+".join(map(re.escape, packaged.split(TURNS))))
    texts: list[str | None] = []
    for subject in subjects:
        if isinstance(subject, Pair):
            texts += [message.content for message in subject.observation[:1] if message.role == "system"]
        else:
            names = [subject] if isinstance(subject, str) else [subject.chosen, subject.rejected]
            texts += [dialogues[name].agent_system for name in names if name in dialogues]
    prompts = Counter(packaged if text is None or packaged_pattern.fullmatch(text) else text for text in texts)
    text, number = prompts.most_common(1)[0] if prompts else (packaged, 0)
    if len(prompts) > 1:
        share = f"{number:,} of {prompts.total():,}"
        reporter.warn(f"What is learned from has {len(prompts)} system prompts; the actor plays under that of {share}.")
    if not text:
        reporter.warn("What is learned from has no system prompt; the actor plays under the packaged one.")
    return None if text in ("", packaged) else text
