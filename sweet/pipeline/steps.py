"""Steps that are done once: a stage call that the run's manifest has as finished is not repeated.

A step is a stage's configuration. It is finished where an attempt of the same stage with the same settings is done, and
its artifact and its inputs are unchanged on the disk. No other state is kept: a step is found in the manifest again by
the same process, after a crash, and when the results are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet import collector
from sweet.errors import Interrupted
from sweet.runs.content import current_sha256
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.runs.stages import STAGES, Stage
from sweet.runs.tokens import TokensByRole, tokens_of_run
from sweet.stages.base import Reporter, StageConfig


class StepMissing(Exception):
    """A step is not finished, and a read-only cache was asked for it."""


@dataclass(frozen=True)
class Step:
    """A finished step, from the manifest. Its seconds are those its stage counts: a resumed training counts on."""

    attempt: Attempt
    artifact: Artifact

    @property
    def id(self) -> str:
        """The id of its artifact."""
        return self.artifact.id

    @property
    def metrics(self) -> dict[str, Any]:
        return self.attempt.metrics

    @property
    def seconds(self) -> float:
        assert self.attempt.finished is not None, "the attempt is done"
        return float(self.metrics.get("seconds") or (self.attempt.finished - self.attempt.started).total_seconds())


class StepCache:
    """The steps of one run.

    Args:
        reporter: receives a line for each step that is done.
        stages: those that steps are calls of.
        around: entered for each stage that is called, with the title of the step; yields its configuration, which may
            differ in options that do not change the result.
    """

    def __init__(
        self,
        run: Run,
        reporter: Reporter,
        stages: Sequence[Stage] = STAGES,
        around: Callable[[StageConfig, str], AbstractContextManager[StageConfig]] = lambda config, _: nullcontext(
            config
        ),
    ) -> None:
        self.run, self.reporter, self.around = run, reporter, around
        self.stages = {stage.config: stage for stage in stages}

    def do(self, config: StageConfig, title: str = "", *, matching: Sequence[str] = ()) -> Step:
        """Return the finished step; do it where it is not finished.

        Args:
            title: the line that is said when it is done; by default run, stage and digest.
            matching: operational fields that change the metrics, so that they must be the same too.

        Raises:
            SweetError: the stage failed.
            Interrupted: the user asked for an end, which the stage came to by itself.
        """
        step = self.find(config, matching)
        if step is None:
            stage = self.stages[type(config)]
            self.reporter.say(title or f"{self.run.name}: {stage.name} {config.digest()}")
            with self.around(config, title) as served:
                result = stage.run(self.run, served, self.reporter)
            collector.give_back()
            if result.stopped:
                raise Interrupted("Stopped. The step that was under way is finished.")
            step = self.find(config, matching)
        assert step is not None, "a finished stage has recorded its attempt"
        return step

    def find(self, config: StageConfig, matching: Sequence[str] = ()) -> Step | None:
        """Return the finished step; None where it is not finished."""
        name = self.stages[type(config)].name
        digest, operational = config.digest(), config.model_dump(mode="json", include=set(matching))
        manifest = self.run.manifest()
        for attempt in reversed(manifest.attempts):
            same = (attempt.stage, attempt.digest, attempt.status) == (name, digest, "done")
            if same and all(attempt.config.get(key) == value for key, value in operational.items()):
                outputs = [manifest.artifact(id) for id in attempt.outputs]
                if outputs and outputs[0] is not None and self._is_unchanged(manifest, attempt, outputs[0]):
                    return Step(attempt, outputs[0])
        return None

    def _is_unchanged(self, manifest: Manifest, attempt: Attempt, output: Artifact) -> bool:
        """Return whether the artifact and its inputs are on the disk as they were recorded."""
        inputs = [(manifest.artifact(ref.id), ref.sha256) for ref in attempt.inputs]
        return self._digest(output) == output.sha256 is not None and all(
            artifact is not None and self._digest(artifact) == sha256 for artifact, sha256 in inputs
        )

    def _digest(self, artifact: Artifact) -> str | None:
        return current_sha256(self.run.file(artifact), artifact)

    def file(self, step: Step) -> Path:
        """Return the absolute path of a step's artifact."""
        return self.run.file(step.artifact)

    def tokens(self, step: Step | None = None) -> TokensByRole:
        """Return what models have read and written for a step's artifact, by role; without a step, in the whole run."""
        return tokens_of_run(self.run.path, self.run.manifest(), artifact=None if step is None else step.id)


class ReadOnlyStepCache(StepCache):
    """Finds finished steps and does none: `do` raises StepMissing where a step is not finished."""

    def do(self, config: StageConfig, title: str = "", *, matching: Sequence[str] = ()) -> Step:
        step = self.find(config, matching)
        if step is None:
            raise StepMissing
        return step
