"""The regression head: maps a model's hidden states of a turn to one number (the paper's other critic, arXiv
2503.15478).

    score(o_t, a_t, c) = w . mean_{i <= end of a_t} h_i + b

h_i are the model's last hidden states of all tokens up to and including the turn: c, the observation and the reply, and
image tokens if the model has them. The head is independent of text. Because it is linear, it is applied to each state
and the numbers are averaged: in a prefix tree a state that many turns share is read once, and no mean of states is
computed.

Protocol `upstream` is the published head: without b, initialised with normal random numbers instead of zero
(`sweet.learn.objectives` has what it learns).

The head is a module of the model while it is trained, so that the optimizer, the checkpoints and the engines include
it. On disk it is a separate file next to the model, so that other programs can load the model.
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

NAME = "regression_head"
"""The attribute of the model that holds its head."""

FILE = "regression_head.safetensors"
"""The file next to the model's own: `weight` [1, width] and `bias` [1], fp32; no `bias` in protocol `upstream`."""


class RegressionHead(torch.nn.Linear):
    """Maps states [..., width] to numbers [...], in fp32 under autocast too.

    Args:
        bias: whether b is added.
        seed: of normal random weights with a standard deviation of 1 / (width + 1), as in OpenRLHF's reward model, from
            which the published head derives; None for zeros.
    """

    def __init__(self, width: int, device: torch.device, *, bias: bool = True, seed: int | None = None) -> None:
        super().__init__(width, 1, bias=bias, device=device, dtype=torch.float32)
        torch.nn.init.zeros_(self.weight)
        if bias:
            torch.nn.init.zeros_(self.bias)
        if seed is not None:
            normal = torch.randn(1, width, generator=torch.Generator().manual_seed(seed))
            with torch.no_grad():
                self.weight.copy_(normal / (width + 1))

    def forward(self, states: Tensor) -> Tensor:
        with torch.autocast(states.device.type, enabled=False):
            return linear(states.float(), self.weight, self.bias)[..., 0]


def attach_head(model: Any, *, bias: bool = True, seed: int | None = None) -> RegressionHead:
    """Add a new head (`RegressionHead`) to a causal language model; it is trained with the model."""
    head = RegressionHead(model.config.get_text_config().hidden_size, model.device, bias=bias, seed=seed)
    model.add_module(NAME, head)
    return head


def get_head(model: Any) -> RegressionHead | None:
    """The model's head; None if it has none."""
    head: RegressionHead | None = getattr(model, NAME, None)
    return head


@contextmanager
def detached_head(model: Any) -> Iterator[RegressionHead | None]:
    """Remove the head from the model in this context, as other programs expect the model. Yields the head, or None."""
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
    """Write the head to a model's folder."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().float().cpu().contiguous() for name, tensor in head.state_dict().items()}
    save_file(tensors, folder / FILE)


def load_head(model: Any, folder: Path) -> None:
    """Attach the head in a model's folder to the model.

    Raises:
        UsageError: there is none, or it belongs to a model of another width.
    """
    from safetensors.torch import load_file

    path, fix = folder / FILE, "sweet train-critic --variant regression again"
    try:
        tensors = load_file(path)
    except Exception as error:  # safetensors does not document its exceptions
        raise UsageError(f"The critic's regression head cannot be read: {error}", where=path, fix=fix) from error
    head = attach_head(model, bias="bias" in tensors)
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    if shapes != {name: list(tensor.shape) for name, tensor in head.state_dict().items()}:
        raise UsageError(f"The regression head {shapes} is not of this model.", where=path, fix=fix)
    head.load_state_dict(tensors)


def prefix_means(values: Tensor, paths: Sequence[Sequence[int]], stops: Sequence[Sequence[int]]) -> Tensor:
    """Means of `values` over prefixes of paths.

    Args:
        values: [positions], the head's output for each state.
        paths: for each sequence, the position of each of its ids.
        stops: for each sequence, the lengths of the prefixes to average.

    Returns:
        [means], fp32, sequence by sequence; summed in fp64, because a mean may cover thousands of states.
    """
    table = torch.zeros(len(paths), max(max(counts_, default=0) for counts_ in stops), dtype=torch.long)
    for row, path, counts_ in zip(table, paths, stops, strict=True):
        length = max(counts_, default=0)
        row[:length] = torch.tensor(path[:length])
    rows = torch.tensor([row for row, counts_ in enumerate(stops) for _ in counts_], device=values.device)
    counts = torch.tensor([stop for counts_ in stops for stop in counts_], device=values.device)
    sums = values[table.to(values.device)].double().cumsum(1)
    return (sums[rows, counts - 1] / counts).float()
