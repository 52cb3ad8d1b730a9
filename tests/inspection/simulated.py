"""A run whose stages are simulated: they parse a command and choose inputs as the real ones do, and write a manifest.

A `World` is a manifest in memory with the files that have been deleted. `World.call` takes a command line through the
real parser and the real selection of inputs, and returns the world after it. The content of an artifact is a file of
one line that its id and version name, so worlds share their files.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from sweet.cli.fields import resolve, settings_of
from sweet.cli.group import load
from sweet.credit.registry import rule_class
from sweet.errors import UsageError
from sweet.inspection import next_commands
from sweet.inspection.next_commands import suggest_next
from sweet.ranking.inputs import find_inputs
from sweet.runs.content import current_content
from sweet.runs.lineage import Staleness, ancestors
from sweet.runs.manifest import Artifact, ArtifactRef, Attempt, Kind, Manifest, next_id, now
from sweet.runs.run import Run
from sweet.runs.stages import KINDS, stage_named
from sweet.stages.artifacts import agent_of
from sweet.stages.base import PlannedConfig, Silent
from sweet.stages.meta import RolloutsMeta
from sweet.stages.resuming import with_settings_of_unfinished
from sweet.stages.unseen_tasks import check_not_test, newest_to_learn
from sweet.training.sources import Sources

START = now()
OWN_FILE = "own.jsonl"
GIVEN = {"MODEL": "org/model", "FILE": OWN_FILE}
"""What the user puts in the place of placeholders."""

How = Literal["done", "interrupted", "failed"]


@dataclass(frozen=True)
class World:
    """Attributes:
    folder: has the files of all worlds.
    gone: ids of the artifacts whose file has been deleted.
    made: number of times that an artifact was made, by id; a new time has another content.
    splits: whether tasks have a split for training and one for testing.
    """

    folder: Path
    manifest: Manifest
    gone: frozenset[str] = frozenset()
    made: dict[str, int] = field(default_factory=dict)
    splits: bool = True

    @cached_property
    def stale(self) -> set[str]:
        staleness = Staleness(self.manifest, lambda one: None if one.id in self.gone else one.sha256)
        return {one.id for one in self.manifest.artifacts if staleness(one) is not None}

    @cached_property
    def next(self) -> list[str]:
        with patch.object(next_commands, "has_splits", lambda *_: self.splits):
            return suggest_next(self.manifest, "RUN", self.stale)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What distinguishes worlds for the next command."""
        artifacts = tuple(
            (one.id, one.status, one.sha256, one.attempt, repr(one.meta), repr(one.inputs))
            for one in self.manifest.artifacts
        )
        stopped = tuple((one.id, one.status) for one in self.manifest.attempts if one.status != "done")
        order = tuple(one.id for kind in KINDS for one in self.manifest.of_kind(kind, "done"))
        return artifacts, stopped, order, self.gone, self.splits

    def without(self, artifact: Artifact) -> World:
        return replace(self, gone=self.gone | {artifact.id})

    def call(self, line: str, how: How = "done") -> World:
        """Return the world after a command.

        Raises:
            SweetError: the command is refused.
        """
        words = [GIVEN.get(word, word) for word in shlex.split(line)]
        if words[:3] == ["sweet", "data", "import"]:
            return self.imported()
        name, given = parsed(tuple(words))
        run = _Simulated(self)
        stage = stage_named(name)
        assert stage is not None, line
        config: Any = given
        read: Run = run
        if config.resume:
            read, config = with_settings_of_unfinished(run, name, config, Silent())
        return self._after(name, config, self._inputs(read, name, config), how)

    def imported(self) -> World:
        """Return the world with imported dialogues, or with those that were lost."""
        lost = next((one for one in self.manifest.of_kind("rollouts") if one.id in self.gone), None)
        meta = RolloutsMeta(tasks="dialogues.jsonl", agent="imported", sim="imported").as_json()
        return self._write("data-import", {}, "imported", [], "rollouts", meta, "done", lost)

    def _inputs(self, run: Run, name: str, config: Any) -> list[Artifact]:
        """Return the inputs as the stage chooses them."""
        if name == "rollout":
            self._check_agent(config.agent)
            return []
        if name == "eval":
            return [run.find("rollouts", config.from_, needed_by=name)]
        if name == "label":
            scores = newest_to_learn(run, "scores", config.from_, allow_test=False, needed_by=name)
            return [scores, run.input_of(scores, "rollouts")]
        if name == "rank":
            read = find_inputs(run, config)
            self._check_agent(config.agent or agent_of(run, read[2], "agent"))
            return [artifact for artifact in read if artifact is not None]
        if name == "pair":
            candidates = run.find("candidates", config.from_, needed_by=name)
            check_not_test(run, [candidates], allow=False, needed_by=name)
            return [candidates]
        kind: Kind = rule_class(config.algorithm).reads if name == "train-actor" else "preferences"
        sources = Sources.find(run, kind, config.from_, allow_test=False, needed_by=name)
        check_not_test(run, sources.inputs, allow=False, needed_by=name)
        base = config.model or agent_of(run, sources.inputs[-1], "model")
        assert "/actor/" not in base, f"{name} starts from an actor, not from the model of the first round"
        return sources.inputs

    def _check_agent(self, agent: str) -> None:
        if agent.startswith("RUN/"):
            found = next((one for one in self.manifest.of_kind("actor", "done") if f"RUN/{one.path}" == agent), None)
            if found is None or found.id in self.gone:
                raise UsageError(f"There is no {agent}.")

    def _after(self, name: str, config: PlannedConfig, inputs: list[Artifact], how: How) -> World:
        """Return the world in which the stage has run."""
        stage = stage_named(name)
        assert stage is not None
        if how == "done" and self._finds_nothing(name, inputs):
            how = "failed"
        meta: dict[str, Any] = {}
        if name == "rollout":
            played = config.model_dump(mode="json", include={"task", "tasks", "split", "agent", "sim", "samples"})
            meta = RolloutsMeta.model_validate({**played, "tasks_digest": str(played["split"])}).as_json()
        elif name == "eval":
            meta = {"scorer": "strict", "rollouts": inputs[0].id}
        elif name == "train-critic":
            meta = {"variant": "advantage", "base": "org/model"}
        elif name == "train-actor":
            meta = {"algorithm": config.algorithm, "base": "org/model"}  # type: ignore[attr-defined]
        refs = [self._ref(one) for one in inputs]
        again = self._continued(stage.resumes, config, refs, stage.makes)
        return self._write(name, config.model_dump(mode="json"), config.digest(), refs, stage.makes, meta, how, again)

    def _finds_nothing(self, name: str, inputs: list[Artifact]) -> bool:
        return name == "label" and RolloutsMeta.of(inputs[1]).samples == 1

    def _continued(self, resumes: str, config: PlannedConfig, refs: list[ArtifactRef], kind: Kind) -> Artifact | None:
        """Return the artifact that the attempt goes on with, as `ActiveAttempt.start_artifact` finds it."""
        for one in reversed(self.manifest.artifacts):
            maker = self.manifest.attempt(one.attempt)
            same = maker is not None and maker.digest == config.digest() and one.inputs == refs
            if one.kind == kind and same:
                never_done = one.status == "partial" and one.sha256 is None
                wanted = {"always": True, "if asked": config.resume, "never": never_done}[resumes]
                return one if wanted else None
        return None

    def _write(
        self,
        name: str,
        config: dict[str, Any],
        digest: str,
        refs: list[ArtifactRef],
        kind: Kind,
        meta: dict[str, Any],
        how: How,
        again: Artifact | None,
    ) -> World:
        made, attempts, artifacts = dict(self.made), list(self.manifest.attempts), list(self.manifest.artifacts)
        at = START + timedelta(minutes=len(attempts) + 1)
        attempt = Attempt(
            id=next_id(name, [one.id for one in attempts]),
            stage=name,
            status=how,
            started=at,
            finished=at + timedelta(seconds=50),
            pid=1,
            host="simulated",
            config=config,
            digest=digest,
            inputs=refs,
            log=f"logs/{name}.log",
        )
        attempts.append(attempt)
        if how == "failed":
            return self._having(attempts, artifacts, made, self.gone)
        if again is None:
            id = next_id(kind, [one.id for one in artifacts])
            suffix = "" if kind in ("critic", "actor") else ".jsonl"
            path = f"{kind}/{id}{suffix}"
            artifact = Artifact(id=id, kind=kind, path=path, attempt=attempt.id, inputs=refs, created=at, meta=meta)
            artifacts.append(artifact)
        else:
            artifact = again.model_copy(update={"attempt": attempt.id, "status": "partial"})
            artifacts[[one.id for one in artifacts].index(again.id)] = artifact
        attempt.outputs.append(artifact.id)
        gone = self.gone
        if how == "done":
            made[artifact.id] = made.get(artifact.id, 0) + 1
            text = content(artifact.id, made[artifact.id])
            artifact.status, artifact.finished = "done", at + timedelta(seconds=50)
            artifact.rows = None if kind in ("critic", "actor") else 1
            artifact.sha256, artifact.bytes = hashlib.sha256(text.encode()).hexdigest(), len(text)
            gone = gone - {artifact.id}
        return self._having(attempts, artifacts, made, gone)

    def _having(
        self, attempts: list[Attempt], artifacts: list[Artifact], made: dict[str, int], gone: frozenset[str]
    ) -> World:
        manifest = self.manifest.model_copy(update={"attempts": attempts, "artifacts": artifacts})
        return replace(self, manifest=manifest, made=made, gone=gone)

    def _ref(self, artifact: Artifact) -> ArtifactRef:
        return ArtifactRef(id=artifact.id, sha256=artifact.sha256)

    def learned_from_evaluation(self, artifact: Artifact) -> bool:
        """Return whether an artifact that learns was made from dialogues on tasks held out."""
        if artifact.kind in ("rollouts", "scores"):
            return False
        found: Iterable[Artifact] = ancestors(self.manifest, artifact)
        return any(RolloutsMeta.of(one).split in ("test", "validation") for one in found if one.kind == "rollouts")


def content(id: str, version: int) -> str:
    return f'{{"id": "{id}", "version": {version}}}\n'


class _Simulated(Run):
    """The run of a world, for the functions that choose inputs."""

    def __init__(self, world: World) -> None:
        super().__init__("RUN")
        self.world = world

    def manifest(self) -> Manifest:
        return self.world.manifest

    def file(self, artifact: Artifact) -> Path:
        if artifact.id in self.world.gone or artifact.status != "done":
            return self.world.folder / "gone"
        version = self.world.made[artifact.id]
        path = self.world.folder / f"{artifact.id}.{version}"
        if not path.exists():
            path.write_text(content(artifact.id, version))
        return path

    def verify(self, artifact: Artifact, *, sums: bool = True) -> None:
        assert current_content(self.file(artifact), artifact) == artifact.sha256


def fresh(folder: Path, task: str = "code", *, splits: bool = True) -> World:
    """Return the world of a new run."""
    return World(folder, Manifest(sweet_version="0", task=task, created=START), splits=splits)


@cache
def parsed(words: tuple[str, ...]) -> tuple[str, Any]:
    """Return the stage and the configuration of a command line, by the program's parser; refuses what is not one."""
    assert words[0] == "sweet", words
    name = words[1]
    command = load(name)
    with command.make_context(name, list(words[2:])) as context:
        stage = stage_named(name)
        if stage is None:
            return name, None
        assert context.params["run"] == Path("RUN"), words
        return name, resolve(stage.config, command.spec.options, settings_of(context, command.spec.options), name)
