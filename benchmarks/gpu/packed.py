"""Plain sequences packed into one row without padding, with FlashAttention's kernel for sequences of varying length:
the baseline that shares no prefix and wastes nothing.

The kernel is flash-attn's, or the one that torch has in `torch.nn.attention.varlen`. On a CPU, which has neither,
torch's attention computes one sequence after the other, so that packing and gradients can be checked there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from benchmarks.gpu.models import CountingScorer
from benchmarks.gpu.results import Skipped
from sweet.learn.sequences import TokenSequence

NAME = "benchmark_packed"
"""The name under which the attention is registered with transformers."""

Kernel = Callable[[Tensor, Tensor, Tensor, Sequence[int], float | None], Tensor]
"""Query [tokens, heads, size], key and value [tokens, key heads, size], the lengths of the sequences, the scale of the
scores -> [tokens, heads, size]."""


@dataclass
class _Row:
    """The row that is computed."""

    attend: Kernel
    lengths: Sequence[int]


def kernel(where: torch.device) -> tuple[str, Kernel]:
    """The kernel of a device, with its name.

    Raises:
        Skipped: a GPU, and neither flash-attn nor a torch with such a kernel.
    """
    if where.type != "cuda":
        return "sdpa, one sequence after the other", _one_by_one
    if find_spec("flash_attn") is not None:
        return "flash-attn", _flash_attn
    if find_spec("torch.nn.attention.varlen") is not None:
        return "torch.nn.attention.varlen", _torch_varlen
    raise Skipped("flash-attn is not installed, and this torch has no kernel for packed sequences")


def _one_by_one(query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], scale: float | None) -> Tensor:
    rows = (torch.split(tensor.transpose(0, 1)[None], list(lengths), dim=2) for tensor in (query, key, value))
    outputs = [
        scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)[0]
        for q, k, v in zip(*rows, strict=True)
    ]
    return torch.cat(outputs, dim=1).transpose(0, 1)


_row = _Row(_one_by_one, ())
"""Of this process. Layers that are recomputed need it in the backward pass, which ends before the next row begins."""


def _boundaries(lengths: Sequence[int], where: torch.device) -> Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32, device=where).cumsum(0, dtype=torch.int32)


def _flash_attn(query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], scale: float | None) -> Tensor:
    from flash_attn import flash_attn_varlen_func

    ends, longest = _boundaries(lengths, query.device), max(lengths)
    result: Tensor = flash_attn_varlen_func(
        query, key, value, ends, ends, longest, longest, softmax_scale=scale, causal=True
    )
    return result


def _torch_varlen(query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], scale: float | None) -> Tensor:
    from torch.nn.attention import varlen

    attention: Any = varlen.varlen_attn
    known = inspect.signature(attention).parameters
    # The first version of torch with it has another argument, and no groups of heads.
    given: dict[str, Any] = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    if "scale" in known:
        given["scale"] = scale
    if "enable_gqa" in known:
        given["enable_gqa"] = True
    else:
        key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], dim=1) for one in (key, value))
    ends, longest = _boundaries(lengths, query.device), max(lengths)
    result: Tensor = attention(query, key, value, ends, ends, longest, longest, **given)
    return result


class PackedScorer(CountingScorer):
    """A scorer of plain sequences in one row.

    Raises:
        Skipped: there is no kernel for it.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model, share=False, **options)
        self.kernel, attend = kernel(self.device)
        _register()
        model.set_attn_implementation(NAME)
        _row.attend = attend

    def _sequence_states(self, sequences: Sequence[TokenSequence]) -> Tensor:
        lengths = [len(sequence.ids) for sequence in sequences]
        _row.lengths = lengths
        ids = torch.tensor([[i for sequence in sequences for i in sequence.ids]], device=self.device)
        positions = torch.tensor([[place for length in lengths for place in range(length)]], device=self.device)
        states = self._hidden(ids, position_ids=positions)[0]
        return pad_sequence(list(torch.split(states, lengths)), batch_first=True)


def _attend(
    _module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention interface of transformers: heads of one row, [1, heads, tokens, size], to [1, tokens, heads, size]."""
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    heads, keys, values = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    # Another scorer of the same model computes one sequence, and lengths that are not its own would lead the kernel out
    # of its tensors.
    lengths = _row.lengths if sum(_row.lengths) == len(heads) else [len(heads)]
    result = _row.attend(heads, keys, values, lengths, kwargs.get("scaling"))
    return result[None], None


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, lambda *_args, **_kwargs: None)
