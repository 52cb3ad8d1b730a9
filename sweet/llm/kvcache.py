"""Keys and values of many sequences of different lengths, in one buffer per layer, and of finished sequences.

Each sequence has a row; its token at position p is in column p. Rows have independent lengths, so a new sequence does
not shift the others, the slots of finished ones are overwritten by the last rows, and a decoding step writes one column
per row instead of copying the whole cache, which would cost more than the model's arithmetic. Columns beyond a row's
length hold stale values, which the attention mask hides.

The model calls `SlotLayer.update` with the keys and values of its input tokens. The `Window` that the decoder sets
before each forward pass says where they are stored and what is attended to.

`PrefixStore` keeps finished sequences for prompts that share a prefix with one of them: in a dialogue every prompt is
the previous one with a reply and an answer appended, and all dialogues start with the same system prompt. Sequences are
looked up by the hashes of their prefixes of 16, 32, 48 … tokens, each chained to the previous one; matches are compared
token by token. The least recently used sequences are evicted when the memory limit is reached.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

from sweet.tasks.trajectory import common_length

_ROW_STEP, _COLUMN_STEP = 4, 64
"""Buffers grow by a quarter and at least by this much, so that the total cost of copying them stays small."""


@dataclass
class Window:
    """The part of the buffers that a forward pass uses.

    Attributes:
        first, rows: the rows `[first, first + rows)`, one for each sequence of the batch.
        columns: [rows, tokens], the column of each new token; None stores from column 0 on and attends to these tokens
            alone.
        width: number of columns that are attended to.
    """

    first: int = 0
    rows: int = 0
    columns: torch.Tensor | None = None
    width: int = 0

    @cached_property
    def index(self) -> torch.Tensor:
        """The row numbers, [rows]."""
        device = None if self.columns is None else self.columns.device
        return torch.arange(self.first, self.first + self.rows, device=device)


class SlotLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's buffers, [rows, heads, columns, head size]."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cache = cache

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new keys and values, [rows, heads, tokens, head size]; return those that are attended to."""
        key, value = key_states, value_states
        if not self.is_initialized:
            self.lazy_initialization(key, value)
            self.keys, self.values = (t.new_empty((0, t.shape[1], 0, t.shape[3])) for t in (key, value))
        self.resize()
        window = self.cache.window
        last = window.first + window.rows
        if window.columns is None:
            self.keys[window.first : last, :, : key.shape[2]] = key
            self.values[window.first : last, :, : value.shape[2]] = value
            return key, value
        rows = window.index
        if key.shape[2] == 1:
            column = window.columns[:, 0]
            self.keys[rows, :, column] = key[:, :, 0]
            self.values[rows, :, column] = value[:, :, 0]
        else:
            self.keys[rows[:, None], :, window.columns] = key.transpose(1, 2)
            self.values[rows[:, None], :, window.columns] = value.transpose(1, 2)
        return self.keys[window.first : last, :, : window.width], self.values[window.first : last, :, : window.width]

    def resize(self) -> None:
        """Have the rows and columns that were requested."""
        rows, columns = self.cache.rows, self.cache.columns
        if (rows, columns) != (self.keys.shape[0], self.keys.shape[2]):
            self.keys, self.values = _resized(self.keys, rows, columns), _resized(self.values, rows, columns)

    def get_seq_length(self) -> int:
        """Columns before the new tokens, from which the library derives the width of a mask."""
        window = self.cache.window
        return 0 if window.columns is None else window.width - window.columns.shape[1]


class SlotCache(Cache):
    """The cache that is passed to the model. `window` is set, and space for it reserved, before each forward pass.

    Attributes:
        most: tokens that the buffers have at most, unless more are in use.
        used: columns that hold tokens of a sequence; whoever removes sequences may lower it.
    """

    def __init__(self) -> None:
        self.rows = self.columns = self.used = 0
        self.most = sys.maxsize
        self.window = Window()
        make: Any = lambda: SlotLayer(self)  # noqa: E731
        super().__init__(layer_class_to_replicate=make)

    @property
    def slots(self) -> list[SlotLayer]:
        """The layers that hold keys and values."""
        return [layer for layer in self.layers if isinstance(layer, SlotLayer) and layer.is_initialized]

    def reserve(self, rows: int, columns: int) -> None:
        """Have all layers get at least so many rows and columns when they are written next. At the limit whatever is
        not in use is given up: rows from `rows` on, and columns from `used` on."""
        self.used = columns = max(self.used, columns)
        if rows <= self.rows and columns <= self.columns:
            return
        if max(rows, self.rows) * max(columns, self.columns) > self.most:
            self.rows, self.columns = min(rows, self.rows), min(columns, self.columns)
        if columns > self.columns:
            grown, room = max(columns + _COLUMN_STEP, columns * 5 // 4), self.most // max(rows, self.rows)
            self.columns = min(grown, room) if room >= columns else grown
        if rows > self.rows:
            self.rows = max(rows, min(max(rows + _ROW_STEP, rows * 5 // 4), self.most // self.columns))

    def copy_rows(self, sources: int | list[int], targets: slice | list[int], length: int) -> None:
        """Copy the first `length` columns of one row to new ones, or of some rows to as many existing others."""
        if isinstance(targets, slice):
            self.reserve(targets.stop, length)
        for layer in self.slots:
            layer.resize()
            for buffer in (layer.keys, layer.values):
                buffer[targets, :, :length] = buffer[sources, :, :length]

    def read_row(self, row: int, length: int) -> list[torch.Tensor]:
        """A copy of the first `length` columns of a row: keys and values of each layer in turn."""
        return [buffer[row, :, :length].clone() for layer in self.slots for buffer in (layer.keys, layer.values)]

    def write_row(self, row: int, saved: list[torch.Tensor], length: int) -> None:
        """Write the first `length` columns of what `read_row` returned into a row."""
        self.reserve(row + 1, length)
        tensors = iter(saved)
        for layer in self.slots:
            layer.resize()
            layer.keys[row, :, :length] = next(tensors)[:, :length]
            layer.values[row, :, :length] = next(tensors)[:, :length]

    def clear(self) -> None:
        """Free the memory."""
        self.layers.clear()
        self.rows = self.columns = self.used = 0

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one token takes in all layers; 0 before the first forward pass."""
        buffers = (buffer for layer in self.slots for buffer in (layer.keys, layer.values))
        return sum(b.shape[1] * b.shape[3] * b.element_size() for b in buffers)


def _resized(buffer: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    # Masked values are multiplied by zero, so a new buffer must not contain NaN.
    resized = buffer.new_zeros((rows, buffer.shape[1], columns, buffer.shape[3]))
    overlap = buffer[:rows, :, :columns]
    resized[: overlap.shape[0], :, : overlap.shape[2]] = overlap
    return resized


# Finished sequences ---------------------------------------------------------------------------------------------------

BLOCK = 16
"""Granularity of prefixes in tokens: a shorter common prefix is not worth copying."""


@dataclass(frozen=True)
class CachedSequence:
    """A sequence's ids and its row of the cache (`SlotCache.read_row`)."""

    ids: tuple[int, ...]
    tensors: list[torch.Tensor]

    @property
    def size(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors)


class PrefixStore:
    """Holds at most `capacity` bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._entries: OrderedDict[int, CachedSequence] = OrderedDict()
        self._prefix_hashes: dict[int, int] = {}
        self._next = 0

    def find(self, ids: Sequence[int]) -> tuple[CachedSequence, int] | None:
        """The sequence with the longest common prefix found, and the number of common ids."""
        key = None
        for prefix_hash in _prefix_hashes(ids):
            entry = self._prefix_hashes.get(prefix_hash)
            if entry is None:
                break
            key = entry
        if key is None:
            return None
        saved = self._entries[key]
        common = common_length(saved.ids, ids)
        if common < BLOCK:
            return None
        self._entries.move_to_end(key)
        return saved, common

    def covers(self, ids: Sequence[int]) -> bool:
        """Whether all but the last, incomplete block of `ids` is stored."""
        hit = self.find(ids)
        return hit is not None and len(ids) - hit[1] < BLOCK

    def add(self, ids: Sequence[int], tensors: list[torch.Tensor]) -> None:
        """Store a sequence, evicting the least recently used ones."""
        saved = CachedSequence(tuple(ids), tensors)
        if saved.size > self.capacity or len(ids) < BLOCK:
            return
        while self.used + saved.size > self.capacity:
            oldest, dropped = self._entries.popitem(last=False)
            self.used -= dropped.size
            for prefix_hash in _prefix_hashes(dropped.ids):
                if self._prefix_hashes.get(prefix_hash) == oldest:
                    del self._prefix_hashes[prefix_hash]
        number, self._next = self._next, self._next + 1
        self._entries[number] = saved
        self.used += saved.size
        # Prefixes point to the newest sequence: the next turn of a dialogue starts with all of it.
        self._prefix_hashes.update(dict.fromkeys(_prefix_hashes(saved.ids), number))

    def clear(self) -> None:
        self._entries.clear()
        self._prefix_hashes.clear()
        self.used = 0


def _prefix_hashes(ids: Sequence[int]) -> Iterator[int]:
    prefix_hash = 0
    for stop in range(BLOCK, len(ids) + 1, BLOCK):
        prefix_hash = hash((prefix_hash, *ids[stop - BLOCK : stop]))
        yield prefix_hash
