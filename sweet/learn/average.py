"""The exponential moving average of a policy's weights, which a credit rule may ask as a teacher.

After each step every averaged weight a moves towards the trained weight w: a <- a + rate (w - a). The average begins at
the weights that the training starts from, and with the rate 0 it stays there. It is kept beside the model, and to
compute with it the two are exchanged in place: with an adapter only the adapter's weights are kept twice, and the model
needs no second copy. Where several ranks store the weights in parts (ZeRO-3), each averages and exchanges its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from sweet.learn.engine import Engine, copy_weights


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
        own = self._engine.stored_weights()
        for name, tensor in self._weights.items():
            tensor.lerp_(own[name], self.rate)

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
