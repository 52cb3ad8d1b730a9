"""The exponential moving average of a policy's weights, which a credit rule may ask as a teacher.

After each step every averaged weight a moves towards the trained weight w: a <- a + rate (w - a). The average begins at
the weights that the training starts from. It is kept beside the model, and to compute with it the two are exchanged in
place: with an adapter only the adapter's weights are kept twice, and the model needs no second copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from sweet.learn.engine import copy_weights, trainable_weights


class WeightAverage:
    """The average of the trained weights of a model.

    Args:
        rate: the weight of the newest, above 0 and at most 1. Tarvainen and Valpola (arXiv 1703.01780) write
            1 - rate for it.
    """

    def __init__(self, model: Any, rate: float) -> None:
        self.rate = rate
        self._own = trainable_weights(model)
        self._weights = {name: tensor.detach().clone() for name, tensor in self._own.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Move to the weights of the model; called after each step."""
        for name, tensor in self._weights.items():
            tensor.lerp_(self._own[name], self.rate)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averaged weights within the context, and then its own again, unchanged."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for name, parameter in self._own.items():
            parameter.data, self._weights[name] = self._weights[name], parameter.data

    def state(self) -> dict[str, Tensor]:
        """Return the averaged weights by name, for a checkpoint."""
        return {name: tensor.cpu().clone() for name, tensor in self._weights.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: it is of another model.
        """
        copy_weights(self._weights, state)
