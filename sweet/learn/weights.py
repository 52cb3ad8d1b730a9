"""Weights that are kept beside those that are trained: the best so far, and a moving average.

The best are those of the epoch with the best accuracy on held-out preferences. They are stored in files next to the
checkpoint, named by step, so that the weights that a checkpoint calls the best exist whenever a training resumes from
it: a file is removed only after a checkpoint that does not need it has been saved.

The exponential moving average of a policy's weights may be asked by a credit rule as a teacher. After each step every
averaged weight a moves towards the trained weight w: a <- a + rate (w - a). The average begins at the weights that the
training starts from, and with the rate 0 it stays there. It is kept beside the model, and to compute with it the two
are exchanged in place: with an adapter only the adapter's weights are kept twice, and the model needs no second copy.
Where several ranks store the weights in parts (ZeRO-3), each averages and exchanges its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from sweet.errors import UsageError
from sweet.learn.engine import Engine, copy_weights, save_atomically


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
            weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load does not document its exceptions
            fix = "train without --resume"
            raise UsageError(f"The best weights cannot be read: {error}", where=path, fix=fix) from error
        return weights

    def _path(self, step: int) -> Path:
        return self._checkpoint.with_name(f"{self._checkpoint.name}.best-{step}")


def best_files(checkpoint: Path) -> list[Path]:
    """All files of weights next to a checkpoint, incomplete ones included."""
    return list(checkpoint.parent.glob(f"{checkpoint.name}.best-*"))


class WeightAverage:
    """The average of the weights that an engine trains. All ranks must call every method together.

    Args:
        rate: the weight of the newest, from 0 to 1. Tarvainen and Valpola (arXiv 1703.01780) write
            1 - rate for it.
    """

    def __init__(self, engine: Engine, rate: float) -> None:
        self.rate, self._engine = rate, engine
        self._weights = {name: tensor.detach().clone() for name, tensor in engine.stored_weights().items()}

    @torch.no_grad()
    def update(self) -> None:
        """Move to the weights of the model; called after each step."""
        trained = self._engine.stored_weights()
        for name, tensor in self._weights.items():
            tensor.lerp_(trained[name], self.rate)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averaged weights within the context, and then its own again, unchanged."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        self._engine.release()
        for name, parameter in self._engine.stored_weights().items():
            parameter.data, self._weights[name] = self._weights[name], parameter.data

    def state(self) -> dict[str, Tensor]:
        """Return the averaged weights by name, as this rank stores them, for a checkpoint."""
        return {name: tensor.cpu().clone() for name, tensor in self._weights.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: it is of another model.
        """
        copy_weights(self._weights, state)
