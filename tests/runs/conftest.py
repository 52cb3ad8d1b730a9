"""A run, and a configuration small enough to be read at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ConfigDict, Field

from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.base import OPERATIONAL, StageConfig


class Settings(StageConfig):
    model_config = ConfigDict(extra="allow")

    seed: int = 0
    """Decides the outcome."""
    workers: int = Field(default=1, json_schema_extra=OPERATIONAL)
    """Does not."""
    urls: list[str] = Field(default_factory=list, json_schema_extra=OPERATIONAL)
    """Does not either."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def make(
    run: Run,
    stage: str,
    kind: Kind,
    *inputs: Artifact,
    text: str = "{}\n",
    meta: Mapping[str, object] | None = None,
    **settings: object,
) -> Artifact:
    """An attempt that writes one file."""
    with run.attempt(stage, Settings.model_validate(settings), inputs=inputs) as attempt:
        draft = attempt.start_artifact(kind, meta=dict(meta or {}))
        draft.path.write_text(text)
        return attempt.finish_artifact(draft, rows=text.count("\n"))
