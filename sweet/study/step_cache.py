"""Steps that are done once: a stage call that the run's manifest knows as finished is not made again.

A step is a stage's configuration. It is finished where an attempt of the same stage with the same settings is done,
what it made lies there as it was made, and so do its inputs. Nothing else is kept: whoever asks for a step again, in
this process, after a crash, or to read the results, finds it in the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.runs.content import current_sum
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.runs.stages import STAGES
from sweet.stages.base import Reporter, StageConfig, StageResult

Function = Callable[[Run, Any, Reporter], StageResult]


def stage_functions() -> dict[type[StageConfig], tuple[str, Function]]:
    """The name and the function of each stage, by its configuration."""
    return {stage.config: (stage.name, stage.run) for stage in STAGES}


class NotDone(Exception):
    """A step is not finished, and was only looked for."""


@dataclass(frozen=True)
class Step:
    """A finished step, as the manifest has it."""

    attempt: Attempt
    artifact: Artifact

    @property
    def id(self) -> str:
        """Of what it made."""
        return self.artifact.id

    @property
    def metrics(self) -> dict[str, Any]:
        return self.attempt.metrics

    @property
    def seconds(self) -> float:
        assert self.attempt.finished is not None, "the attempt is done"
        return (self.attempt.finished - self.attempt.started).total_seconds()


class Ledger:
    """The steps of one run.

    Args:
        reporter: told of the steps that are done now.
        stages: in place of the real ones.
    """

    def __init__(
        self, run: Run, reporter: Reporter, stages: dict[type[StageConfig], tuple[str, Function]] | None = None
    ) -> None:
        self.run, self.reporter = run, reporter
        self.stages = stage_functions() if stages is None else stages

    def do(self, config: StageConfig, *, told: Sequence[str] = ()) -> Step:
        """The finished step, done now where it is not yet.

        Args:
            told: operational fields that change what the metrics tell, and so must be the same too.

        Raises:
            SweetError: what the stage raises.
        """
        found = self.find(config, told)
        if found is None:
            name, stage = self.stages[type(config)]
            self.reporter.say(f"{self.run.path.name}: {name} {config.digest()}")
            stage(self.run, config, self.reporter)
            found = self.find(config, told)
        assert found is not None, "a stage records what it has done"
        return found

    def find(self, config: StageConfig, told: Sequence[str] = ()) -> Step | None:
        """The finished step, if there is one."""
        name, _ = self.stages[type(config)]
        digest, wanted = config.digest(), config.model_dump(mode="json", include=set(told))
        manifest = self.run.manifest()
        for attempt in reversed(manifest.attempts):
            same = (attempt.stage, attempt.digest, attempt.status) == (name, digest, "done")
            if same and all(attempt.config.get(key) == value for key, value in wanted.items()):
                made = [manifest.artifact(id) for id in attempt.outputs]
                if made and made[0] is not None and self._stands(manifest, attempt, made[0]):
                    return Step(attempt, made[0])
        return None

    def _stands(self, manifest: Manifest, attempt: Attempt, made: Artifact) -> bool:
        """Whether what was made and what it was made from lie there as they did."""
        inputs = [(manifest.artifact(ref.id), ref.sha256) for ref in attempt.inputs]
        return self._sum(made) == made.sha256 is not None and all(
            artifact is not None and self._sum(artifact) == sha256 for artifact, sha256 in inputs
        )

    def _sum(self, artifact: Artifact) -> str | None:
        return current_sum(self.run.file(artifact), artifact)

    def file(self, step: Step) -> Path:
        """What a step made, absolute."""
        return self.run.file(step.artifact)


class ReadOnly(Ledger):
    """A ledger that does nothing: a step that is not finished raises NotDone."""

    def do(self, config: StageConfig, *, told: Sequence[str] = ()) -> Step:
        found = self.find(config, told)
        if found is None:
            raise NotDone
        return found
