"""The weights of the epoch that did best on held-out preferences.

They are kept in files beside the checkpoint, each named by its step, so that what a checkpoint calls the best is there
whenever a training goes on from it: a file is dropped only when a checkpoint is settled that has no use for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.learn.engine import Engine, save_atomically


class BestCheckpoint:
    """All ranks call every method together.

    Args:
        engine: what is trained.
        checkpoint: the file beside which the weights are kept.

    Attributes:
        step, accuracy: of the best so far; None before the first.
    """

    def __init__(self, engine: Engine, checkpoint: Path) -> None:
        self._engine, self._checkpoint = engine, checkpoint
        self.step: int | None = None
        self.accuracy: float | None = None

    def update(self, step: int, accuracy: float) -> None:
        """Keep the weights as they are now, unless earlier ones did better. Of equals the later are kept: they have
        learned longer, and few held-out preferences tell epochs apart badly."""
        if self.accuracy is not None and accuracy < self.accuracy:
            return
        self.step, self.accuracy = step, accuracy
        weights = self._engine.weights()
        if weights is not None:
            save_atomically(weights, self._path(step))

    def remove_outdated(self) -> None:
        """A checkpoint that knows the best so far is there: drop the former ones."""
        if self._engine.rank == 0:
            for path in best_files(self._checkpoint):
                if self.step is None or path != self._path(self.step):
                    path.unlink()

    def state(self) -> dict[str, Any]:
        """For a checkpoint; `take_up` takes it."""
        return {"step": self.step, "accuracy": self.accuracy}

    def restore(self, state: dict[str, Any]) -> None:
        self.step, self.accuracy = state["step"], state["accuracy"]

    def weights(self) -> dict[str, Tensor] | None:
        """The best trained weights by name, on rank 0; None on the others.

        Raises:
            UsageError: the file is gone or torn.
        """
        if self._engine.rank != 0:
            return None
        assert self.step is not None
        path = self._path(self.step)
        try:
            found: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises whatever its reader met
            raise UsageError(
                f"The best weights cannot be read: {error}",
                where=path,
                fix=Hint("train without ", option("resume", True)),
            ) from error
        return found

    def _path(self, step: int) -> Path:
        return self._checkpoint.with_name(f"{self._checkpoint.name}.best-{step}")


def best_files(checkpoint: Path) -> list[Path]:
    """The files of weights beside a checkpoint, unfinished ones included."""
    return list(checkpoint.parent.glob(f"{checkpoint.name}.best-*"))
