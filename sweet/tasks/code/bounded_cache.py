"""A cache of the newest entries, up to a number of them and up to a sum of their sizes.

What programs of models return, and their sources, can each have megabytes: a number of entries alone does not bound
the memory of the process that scores.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key; the oldest are dropped first.

    Args:
        most: maximum number of entries.
        most_bytes: maximum sum of the sizes of entries.
    """

    def __init__(self, most: int, most_bytes: int = sys.maxsize) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._sizes: dict[K, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def add(self, key: K, value: V, size: int = 0) -> None:
        """Add an entry whose key is new."""
        self._entries[key], self._sizes[key] = value, 0
        self.grow(key, size)

    def grow(self, key: K, size: int) -> None:
        """Add bytes to an entry's size, unless it has been dropped."""
        if key not in self._sizes:
            return
        self._sizes[key] += size
        self.bytes += size
        while self._entries and (len(self._entries) > self._most or self.bytes > self._most_bytes):
            oldest, _ = self._entries.popitem(last=False)
            self.bytes -= self._sizes.pop(oldest)
