"""Embeddings of screenshots, each made once: `FOLDER/ab/abcdef….f32` by the picture's sha256, one folder a similarity.

A file holds little-endian float32 numbers. It is written whole or not at all, and one that is not a unit vector
counts as not there. Any number of processes may use one folder.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sweet.files import write_whole
from sweet.render.similarity import Similarity, Vector

_MOST_IN_MEMORY = 1024
_ROUNDING = 1e-3


class Embeddings:
    """Embeddings by one similarity.

    Args:
        folder: where they are kept, below a folder of the similarity's own; None keeps them in memory alone.
    """

    def __init__(self, similarity: Similarity, folder: Path | None) -> None:
        self.similarity = similarity
        keeps = folder is not None and similarity.keeps
        self._folder = folder / re.sub(r"[^A-Za-z0-9._@-]", "-", similarity.name) if keeps and folder else None
        self._known: OrderedDict[str, Vector] = OrderedDict()

    def of(self, pictures: Sequence[bytes]) -> list[Vector]:
        """The embeddings of pictures (PNG bytes), in their order; what is not known is computed in one batch."""
        keys = [hashlib.sha256(png).hexdigest() for png in pictures]
        found: dict[str, Vector] = {}
        missing: dict[str, bytes] = {}
        for key, png in zip(keys, pictures, strict=True):
            if key in found or key in missing:
                continue
            known = self._known.get(key)
            vector = self._read(key) if known is None else known
            if vector is None:
                missing[key] = png
            else:
                found[key] = vector
        made = self.similarity.embed(list(missing.values())) if missing else []
        for key, vector in zip(missing, made, strict=True):
            found[key] = vector
            self._write(key, vector)
        for key, vector in found.items():
            self._known[key] = vector
            self._known.move_to_end(key)
        while len(self._known) > _MOST_IN_MEMORY:
            self._known.popitem(last=False)
        return [found[key] for key in keys]

    def _file(self, key: str) -> Path | None:
        return None if self._folder is None else self._folder / key[:2] / f"{key}.f32"

    def _read(self, key: str) -> Vector | None:
        path = self._file(key)
        try:
            content = path.read_bytes() if path else b""
        except OSError:
            return None
        if not content or len(content) % 4:
            return None
        vector = np.frombuffer(content, dtype="<f4").astype(np.float32)
        whole = bool(np.isfinite(vector).all()) and abs(float(np.linalg.norm(vector)) - 1) < _ROUNDING
        return vector if whole else None

    def _write(self, key: str, vector: Vector) -> None:
        path = self._file(key)
        if path is None:
            return
        write_whole(path, vector.astype("<f4").tobytes())
