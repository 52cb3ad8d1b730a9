"""Stores the weights of the epoch with the best accuracy on held-out preferences.

They are stored in files next to the checkpoint, named by step, so that the weights that a checkpoint calls the best
exist whenever a training resumes from it: a file is removed only after a checkpoint that does not need it has been
saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from sweet.errors import UsageError
from sweet.learn.engine import save_atomically


class Trains(Protocol):
    """What trains the weights (`sweet.learn.engine.Engine`)."""

    @property
    def rank(self) -> int: ...

    def weights(self) -> Mapping[str, Tensor] | None:
        """The trained weights by name, complete, on rank 0; None on the others."""


class BestCheckpoint:
    """The best weights so far. All ranks must call every method together.

    Args:
        engine: what trains.
        checkpoint: the checkpoint file next to which the weights are stored.

    Attributes:
        step, accuracy: of the best weights so far; None before the first.
    """

    def __init__(self, engine: Trains, checkpoint: Path) -> None:
        self._engine, self._checkpoint = engine, checkpoint
        self.step: int | None = None
        self.accuracy: float | None = None

    def update(self, step: int, accuracy: float) -> None:
        """Store the current weights unless earlier ones were better. On a tie the later ones win: they have trained
        longer, and a small held-out set hardly distinguishes epochs."""
        if self.accuracy is not None and accuracy < self.accuracy:
            return
        self.step, self.accuracy = step, accuracy
        weights = self._engine.weights()
        if weights is not None:
            save_atomically(dict(weights), self._path(step))

    def remove_outdated(self) -> None:
        """Remove all files but the best. Call it after a checkpoint that records the best step has been saved."""
        if self._engine.rank == 0:
            for path in best_files(self._checkpoint):
                if self.step is None or path != self._path(self.step):
                    path.unlink()

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, as `restore` expects it."""
        return {"step": self.step, "accuracy": self.accuracy}

    def restore(self, state: dict[str, Any]) -> None:
        self.step, self.accuracy = state["step"], state["accuracy"]

    def weights(self) -> dict[str, Tensor] | None:
        """The best trained weights by name, on rank 0; None on the others.

        Raises:
            UsageError: the file is missing or damaged.
        """
        if self._engine.rank != 0:
            return None
        assert self.step is not None
        path = self._path(self.step)
        try:
            found: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load does not document its exceptions
            raise UsageError(
                f"The best weights cannot be read: {error}",
                where=path,
                fix="train without --resume",
            ) from error
        return found

    def _path(self, step: int) -> Path:
        return self._checkpoint.with_name(f"{self._checkpoint.name}.best-{step}")


def best_files(checkpoint: Path) -> list[Path]:
    """All files of weights next to a checkpoint, incomplete ones included."""
    return list(checkpoint.parent.glob(f"{checkpoint.name}.best-*"))
