"""A training job as one file, which the command writes for the ranks (`sweet.learn.distributed`, `sweet.learn.worker`).

The ranks do not know about runs. They get token sequences, settings and folders; rank 0 writes progress lines and the
model there, and each rank its error. Images are passed as the paths of their files, which every rank reads itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter

from sweet.errors import Interrupted
from sweet.files import write_whole
from sweet.learn.components import Example, Objective
from sweet.learn.distributed import POLL_INTERVAL, Launchers, Layout
from sweet.learn.estimate import ZeroSettings
from sweet.learn.interrupts import Interrupts
from sweet.learn.launcher import error_of
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.metrics import Record
from sweet.learn.sequences import TokenSequence, VisionModel
from sweet.learn.trainee import Start
from sweet.learn.zero import CHECKPOINT_FILE

FILE = "job.json"


class StoredJob:
    """A dataclass of what the ranks need, in a file of their folder."""

    def write(self, folder: Path) -> None:
        content = TypeAdapter(type(self)).dump_python(self, mode="json")
        write_whole(folder / FILE, json.dumps(content).encode())  # `dump_json` writes null for what is infinite

    @classmethod
    def read(cls, folder: Path) -> Self:
        return TypeAdapter(cls).validate_json((folder / FILE).read_bytes())


@dataclass(frozen=True)
class Job(StoredJob):
    """One training on several ranks.

    Attributes:
        start: the model to start from.
        output: the folder of the trained model.
        digest: identifies the training, as for `Loop`.
        vision: prepares the images of a critic that sees pages, and is saved with the model; None for other models.
    """

    start: Start
    output: Path
    device: Literal["cpu", "cuda"]
    zero: ZeroSettings
    settings: LoopSettings
    objective: Objective
    digest: str
    resume: bool
    pool: list[TokenSequence]
    examples: list[Example]
    heldout: list[Example]
    vision: VisionModel | None = None

    def loop(self, model: Any, checkpoint: Path, **options: Any) -> Loop:
        """Return the training of `model`; the arguments are those of `Loop`."""
        settings: dict[str, Any] = {"digest": self.digest, "heldout": self.heldout, "checkpoint": checkpoint}
        return Loop(model, self.pool, self.examples, self.objective, self.settings, **settings, **options)


def stop_path(folder: Path) -> Path:
    """The file by which the command asks ranks that work in `folder` to stop after a step."""
    return folder / "stop"


def checkpoint_path(folder: Path) -> Path:
    """The checkpoint file of ranks that work in `folder`."""
    return folder / "checkpoint" / CHECKPOINT_FILE


def train_in_ranks(
    job: Job,
    layout: Layout,
    folder: Path,
    log: Path,
    on_record: Callable[[Record], None],
    interrupts: Interrupts | None = None,
) -> Record:
    """Run the job on its ranks. Afterwards the model is in `job.output`.

    Args:
        folder: where the job, progress and checkpoints are stored; created if missing.
        log: a file for the output of launchers and ranks.
        on_record: called with the metrics of each step, as `Loop` reports them.
        interrupts: hold signals back from the first step on.

    Returns:
        The result of `Loop.run`.

    Raises:
        SweetError: a rank failed; its own error, or the last lines of the log.
        Interrupted: a signal came; the checkpoint has the last step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stop_path(folder).unlink(missing_ok=True)
    job.write(folder)
    summary: Record | None = None
    with interrupts or Interrupts() as interrupts, closing(Launchers(layout, folder, log)) as launchers:
        running = True
        while running:
            running = launchers.are_running()  # looked at before the last reading
            for line in launchers.progress():
                if "record" in line:
                    interrupts.hold()
                    on_record(line["record"])
                elif "stopped" in line:
                    raise Interrupted(line["stopped"])
                else:
                    summary = line["summary"]
            if interrupts.asked:
                stop_path(folder).touch()
            if running:
                time.sleep(POLL_INTERVAL)
    if summary is None:
        raise error_of(folder, log, 0)
    return summary
