"""Manifests as an older version wrote them."""

from __future__ import annotations

import json

from sweet.runs.run import Run
from sweet.runs.stages import stage_named
from sweet.stages.base import former_spellings


def record_former_spellings(run: Run) -> None:
    """Rewrite the recorded configurations of a run with the former names and values of their fields."""
    path = run.path / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for attempt in manifest["attempts"]:
        stage = stage_named(attempt["stage"])
        assert stage is not None
        for field, info in stage.config.model_fields.items():
            name, values = former_spellings(info)
            former = {current: value for value, current in values.items()}
            value = attempt["config"].pop(field)
            attempt["config"][name or field] = former.get(value, value) if isinstance(value, str) else value
    path.write_text(json.dumps(manifest), encoding="utf-8")
