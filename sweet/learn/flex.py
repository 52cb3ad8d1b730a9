"""Attention over a prefix tree with FlexAttention: one fused kernel for the whole tree, which skips tiles without
visible keys.

The kernel gets a list of tiles of TILE x TILE slots to visit; in a partially visible tile it applies the tree's rule to
each pair of slots: q sees k exactly when k <= q < end(k) (`sweet.learn.tree`). Slots are in depth-first order, so the
tiles follow from the ends alone, without a mask of slots times slots. Let i be the tile of q and j < i the tile of k:
some q sees some k exactly when the greatest end in j reaches beyond the first slot of i, and every q sees every k
exactly when the least end in j reaches at least the end of i. Tiles on the diagonal are partially visible.

A tree is padded to a whole number of tiles with slots that see only themselves. The kernel is compiled once, for any
number of tiles above one, and once more with its backward pass where gradients are needed. On a CPU the same call is
not compiled and serves as the reference in tests: it computes all scores, and torch has no gradients there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sweet.learn.tree import Tree

TILE = 128
"""Slots of a tile; a size that the kernel supports on every GPU."""

KERNELS = 64
"""Kernels of a process at most: torch compiles one for each number of heads, size of a head, type of numbers, soft cap
and set of inputs that need gradients. Its own limit is 8, after which it raises an error."""

UNSUPPORTED = ("s_aux", "sinks", "position_bias")
"""Arguments that some models pass to their attention and this kernel does not support."""


class FlexTree:
    """A tree in the format of the kernel."""

    def __init__(self, tree: Tree) -> None:
        tiles = max(2, -(-len(tree.ids) // TILE))  # torch compiles a kernel apart for a size of 1
        self._padding = tiles * TILE - len(tree.ids)
        length = len(tree.ids) + self._padding
        self._ends = [*tree.ends, *range(len(tree.ids) + 1, length + 1)]
        self._masks: dict[torch.device, Any] = {}

    def mask(self, device: torch.device) -> Any:
        """The tiles that a layer on this device visits."""
        if device not in self._masks:
            self._masks[device] = self._mask_on(device)
        return self._masks[device]

    def _mask_on(self, device: torch.device) -> Any:
        from torch.nn.attention.flex_attention import BlockMask

        ends = torch.tensor(self._ends, device=device)

        def visible(_row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (key <= query) & (query < ends[key])

        partial, full = tiles_of(ends)
        return BlockMask.from_kv_blocks(*_tile_lists(partial), *_tile_lists(full), BLOCK_SIZE=TILE, mask_mod=visible)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float | None = None,
        softcap: float | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> Tensor:
        """Attention of one row: [1, heads, slots, size] to [1, slots, heads, size]. Keys may have fewer heads.

        Raises:
            ValueError: the model uses a feature that the kernel does not support.
        """
        unsupported = [name for name in UNSUPPORTED if kwargs.get(name) is not None] + ["dropout"] * (dropout > 0)
        if unsupported:
            raise ValueError(f"FlexAttention cannot express {', '.join(unsupported)}")
        padded = [pad(heads, (0, 0, 0, self._padding)) for heads in (query, key, value)]
        score = None if softcap is None else _capped(softcap)
        result: Tensor = _kernel(query.device.type)(
            *padded,
            score_mod=score,
            block_mask=self.mask(query.device),
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return result[:, :, : query.shape[2]].transpose(1, 2)


def tiles_of(ends: Tensor) -> tuple[Tensor, Tensor]:
    """Which tiles are visible.

    Args:
        ends: [slots], the end of each slot's subtree; a whole number of tiles.

    Returns:
        Two boolean matrices [query tiles, key tiles]: partially visible, and fully visible.
    """
    tiles = ends.reshape(-1, TILE)
    number = torch.arange(len(tiles), device=ends.device)
    query, key = number[:, None], number[None, :]
    partial = (key < query) & (tiles.amax(1)[None] > query * TILE)
    full = (key < query) & (tiles.amin(1)[None] >= (query + 1) * TILE)
    return (partial & ~full) | (key == query), full


def _tile_lists(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """For each row of queries, the number of visible tiles and their indices first: [1, 1, rows] and [1, 1, rows,
    columns]."""
    counts = tiles.sum(1, dtype=torch.int32)
    order = tiles.int().argsort(dim=1, descending=True, stable=True).int()
    return counts[None, None], order[None, None].contiguous()


@functools.cache
def _capped(cap: float) -> Callable[..., Tensor]:
    """The soft cap of scores; cached, because a new function would make torch compile the kernel again."""

    def capped(score: Tensor, _row: Tensor, _head: Tensor, _query: Tensor, _key: Tensor) -> Tensor:
        return torch.tanh(score / cap) * cap

    return capped


@functools.cache
def _kernel(device: str) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    kernel: Any = flex_attention
    return compiled() if device == "cuda" else kernel


def compiled(backend: str = "inductor") -> Callable[..., Any]:
    """FlexAttention as torch compiles it when it is called first, for heads of a whole number of tiles.

    All sizes but the number of tiles are marked as static. The compiler would take two equal ones for the same, and it
    does not find out by itself that the number of slots is a multiple of TILE, so that no kernel needs to look for the
    end of the slots within a tile.
    """
    from torch.nn.attention.flex_attention import flex_attention

    kernel: Any = flex_attention
    compiler: Any = torch._dynamo
    compiler.config.recompile_limit = max(compiler.config.recompile_limit, KERNELS)

    # fullgraph: fail if the kernel cannot be compiled, instead of silently computing all scores. dynamic: otherwise
    # there is a kernel for the first length alone, and layers that are computed again may get the other one.
    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def attend_tiles(*tiled: Tensor, **options: Any) -> Any:
        return kernel(*(heads.flatten(2, 3) for heads in tiled), **options)

    def attend(*padded: Tensor, **options: Any) -> Any:
        tiled = [heads.view(*heads.shape[:2], -1, TILE, heads.shape[3]) for heads in padded]
        for heads, tiles in zip(padded, tiled, strict=True):
            compiler.mark_static(heads, [0, 1, 3])
            compiler.mark_static(tiles, [0, 1, 3, 4])
        return attend_tiles(*tiled, **options)

    return attend
