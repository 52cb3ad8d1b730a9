"""The files of an unfinished training, in the folder of its artifact: when it is done, that has only the model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sweet.credit.hyperparameters import Hyperparameters
from sweet.errors import UsageError
from sweet.learn.best_checkpoint import best_files
from sweet.learn.job import checkpoint_path
from sweet.stages.base import StageConfig, digest_of
from sweet.stages.record import RecordedRecord
from sweet.training.model import StartingModel

CHECKPOINT = "checkpoint.pt"
RANKS = "ranks"
"""The folder in which several ranks work."""

M = TypeVar("M", bound=RecordedRecord)


@dataclass(frozen=True)
class Checkpoints:
    """Where a training stores what it needs to be resumed.

    Attributes:
        folder: of the artifact.
        by_ranks: whether several ranks train.
    """

    folder: Path
    by_ranks: bool

    @property
    def ranks(self) -> Path:
        return self.folder / RANKS

    @property
    def file(self) -> Path:
        return checkpoint_path(self.ranks) if self.by_ranks else self.folder / CHECKPOINT

    def exist(self, *, one: str, several: str) -> bool:
        """Return whether an earlier attempt left a checkpoint.

        Args:
            one, several: the options of a training by one process, and of one by ranks.

        Raises:
            UsageError: it is one of ranks, and none train now, or the other way round.
        """
        if Checkpoints(self.folder, not self.by_ranks).file.exists():
            how, options = ("one process", one) if self.by_ranks else ("several ranks", several)
            raise UsageError(
                f"The training was started by {how}, and its checkpoint can only be read so.",
                where=self.folder,
                fix=f"{options}, or train without --resume",
            )
        return self.file.exists()

    def remove(self) -> None:
        """Remove all files but the model."""
        for path in (self.file, *best_files(self.file)):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.ranks, ignore_errors=True)


def training_digest(config: StageConfig, model: StartingModel, used: Hyperparameters, *inputs: str | None) -> str:
    """Return what identifies a training in its checkpoints.

    Args:
        inputs: the sha256 of what it reads.
    """
    encoding = [model.encoder.version] if model.encoder.version else []
    return digest_of([config.digest(), vars(used), model.base, [*inputs], *encoding])


def adapter_meta(model: StartingModel) -> dict[str, object]:
    """Return what the meta of an artifact says of the adapter that was trained; null where none was."""
    start = model.trainee.start
    return {
        "lora": None if start.lora is None else start.lora.rank,
        "lora_alpha": None if start.lora is None else start.lora.alpha,
        "lora_output": None if start.lora is None else start.output,
    }
