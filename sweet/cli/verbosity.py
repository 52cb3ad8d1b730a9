"""`--verbose` and `--quiet`.

`--verbose` reports the source of each setting, the artifacts read and the reason, the files written and the time. The
artifacts are those that the manifest recorded for this call. `--quiet` also silences libraries, which warn in three
ways: by `logging`, by `warnings`, and by the C++ code of torch, which reads a variable when it is imported. Errors of
this program do not go through any of these.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sweet.cli.options import Setting
from sweet.cli.spec import Call
from sweet.errors import SweetError
from sweet.runs.lineage import ancestors
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.stages.base import option_key
from sweet.units import count, format_bytes, format_duration, format_value


class Verbose:
    """Reports the details of one call."""

    def __init__(self, call: Call[Any]) -> None:
        self._call = call
        self._began = time.monotonic()

    def settings(self, given: Mapping[str, Setting]) -> None:
        """Report each setting with its value and its source."""
        values: dict[str, Any] = self._call.config.model_dump(mode="json")
        for option in self._call.spec.options:
            source = given[option.field].where if option.field in given else "default"
            self._call.reporter.say(f"setting {option.key} = {format_value(values[option.field])}  ({source})")

    def finish(self) -> None:
        """Report each artifact that was read or written, and the total time."""
        if self._call.run is not None:
            for line in _of_run(Run(self._call.run), self._call):
                self._call.reporter.say(line)
        self._call.reporter.say(f"{format_duration(time.monotonic() - self._began)} in total")


def _of_run(run: Run, call: Call[Any]) -> Iterator[str]:
    try:
        manifest = run.manifest()
    except SweetError:  # it is missing or damaged, which the call has reported
        return
    own = [attempt for attempt in manifest.attempts if attempt.pid == os.getpid() and attempt.status != "interrupted"]
    for attempt in own:
        for ref in attempt.inputs:
            if artifact := manifest.artifact(ref.id):
                yield f"read {artifact.id}, {_size(artifact)}: {_reason(manifest, artifact, attempt, call)}"
        for id in attempt.outputs:
            if artifact := manifest.artifact(id):
                yield f"wrote {call.run}/{artifact.path}, {_size(artifact)}"
        yield f"wrote {call.run}/{attempt.log}"
        if attempt.finished is not None:
            took = format_duration((attempt.finished - attempt.started).total_seconds())
            yield f"{attempt.id}: {attempt.status}, {took}"


def _size(artifact: Artifact) -> str:
    rows = "" if artifact.rows is None else f"{count(artifact.rows, 'row')}, "
    return f"{rows}{format_bytes(artifact.bytes)}"


def _reason(manifest: Manifest, artifact: Artifact, attempt: Attempt, call: Call[Any]) -> str:
    for field, value in call.config.model_dump(mode="json").items():
        if value == artifact.id:
            return f"named by --{option_key(field)}"
    for ref in attempt.inputs:
        other = manifest.artifact(ref.id)
        if other and other.id != artifact.id and artifact in ancestors(manifest, other):
            return f"{other.id} was made from it"
    done = manifest.of_kind(artifact.kind, "done")
    before = [one for one in done if one.finished and one.finished <= attempt.started]
    newest = bool(before) and before[-1].id == artifact.id
    return f"the newest finished {artifact.kind}" + ("" if newest else " suitable for this stage")


_VARIABLES = {
    "PYTHONWARNINGS": "ignore",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",
}
"""What started processes, and libraries that are not imported yet, read. Variables that are set keep their values."""


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress the warnings of libraries in this context."""
    added = {name: value for name, value in _VARIABLES.items() if name not in os.environ}
    disabled = logging.root.manager.disable
    os.environ.update(added)
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        for name in added:
            os.environ.pop(name, None)
