"""The regression head: what a model's hidden states say of a turn, as one number (the paper's other critic).

    score(o_t, a_t, c) = w . mean_{i <= end of a_t} h_i + b

h_i are the model's last hidden states of all tokens up to and including the turn: c, the observation and the reply, and
image tokens where a model has them. The head knows states and positions, not text. Since it is linear, it is applied to
each state and the numbers are averaged: in a prefix tree a state that many turns share is read once, and no mean of
states is ever formed.

The head is a part of the model while it is trained, so that the optimizer, the checkpoints and the engines take it with
everything else. On the disk it is a file of its own beside the model, which stays one that any program can load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from sweet.errors import UsageError
from sweet.hints import Hint, stage

NAME = "regression_head"
"""The attribute of the model that holds its head."""

FILE = "regression_head.safetensors"
"""Beside the model's own files: `weight` [1, width] and `bias` [1], fp32."""


class RegressionHead(torch.nn.Linear):
    """States [..., width] to numbers [...], in fp32 under autocast too. It begins at zero, so every score does."""

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__(width, 1, device=device, dtype=torch.float32)
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.zeros_(self.bias)

    def forward(self, states: Tensor) -> Tensor:
        with torch.autocast(states.device.type, enabled=False):
            return linear(states.float(), self.weight, self.bias)[..., 0]


def attach_head(model: Any) -> RegressionHead:
    """Give a causal language model a new head, which is trained with it."""
    head = RegressionHead(model.config.get_text_config().hidden_size, model.device)
    model.add_module(NAME, head)
    return head


def get_head(model: Any) -> RegressionHead | None:
    """The model's head; None where it has none."""
    head: RegressionHead | None = getattr(model, NAME, None)
    return head


@contextmanager
def detached_head(model: Any) -> Iterator[RegressionHead | None]:
    """The model without its head while this is open, as other programs know it; gives the head."""
    head = get_head(model)
    if head is None:
        yield None
        return
    delattr(model, NAME)
    try:
        yield head
    finally:
        model.add_module(NAME, head)


def save_head(head: RegressionHead, folder: Path) -> None:
    """Write the head into a model's folder."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().float().cpu().contiguous() for name, tensor in head.state_dict().items()}
    save_file(tensors, folder / FILE)


def load_head(model: Any, folder: Path) -> None:
    """Give the model the head that lies in its folder.

    Raises:
        UsageError: there is none, or one of a model of another width.
    """
    from safetensors.torch import load_file

    path, fix = folder / FILE, Hint(stage("train-critic", variant="regression"), " again")
    try:
        tensors = load_file(path)
    except Exception as error:  # the reader raises whatever it met
        raise UsageError(f"The critic's regression head cannot be read: {error}", where=path, fix=fix) from error
    head = attach_head(model)
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    if shapes != {name: list(tensor.shape) for name, tensor in head.state_dict().items()}:
        raise UsageError(f"The regression head {shapes} is not of this model.", where=path, fix=fix)
    head.load_state_dict(tensors)


def prefix_means(values: Tensor, paths: Sequence[Sequence[int]], stops: Sequence[Sequence[int]]) -> Tensor:
    """Means of `values` along the beginnings of paths.

    Args:
        values: [positions], what the head says of each state.
        paths: for each sequence, the position of each of its ids.
        stops: for each sequence, how many of its ids each mean runs over.

    Returns:
        [means], fp32, sequence by sequence; added up in fp64, for a mean runs over thousands.
    """
    table = torch.zeros(len(paths), max(max(counts_, default=0) for counts_ in stops), dtype=torch.long)
    for row, path, counts_ in zip(table, paths, stops, strict=True):
        length = max(counts_, default=0)
        row[:length] = torch.tensor(path[:length])
    rows = torch.tensor([row for row, counts_ in enumerate(stops) for _ in counts_], device=values.device)
    counts = torch.tensor([stop for counts_ in stops for stop in counts_], device=values.device)
    sums = values[table.to(values.device)].double().cumsum(1)
    return (sums[rows, counts - 1] / counts).float()
