"""The interface of screenshot similarities: embeddings as unit vectors, compared by their cosine.

A `Similarity` embeds screenshots. `sweet.render.similarity_models` (CLIP, SigLIP) and `sweet.render.similarity_pixels`
(histograms) implement it, and `sweet.render.similarity_choice.open_similarity` selects one. The cosines of different
similarities are distributed differently, so each has a name, with a digest of its weights, that is recorded with every
metric computed from it; metrics under different names are never compared.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sweet.errors import SweetError
from sweet.files import write_whole

Vector = NDArray[np.float32]
"""One embedding, of length 1."""


class Similarity(Protocol):
    """A measure of how similar screenshots are."""

    name: str
    """Its name, with a digest of its weights if it has any: the same name means the same metrics."""
    choice: str
    """The value of `--similarity` that selects it."""
    keeps: bool
    """Whether embeddings are cached on disk: they take longer to compute than to read."""

    def embed(self, pictures: Sequence[bytes]) -> list[Vector]:
        """Return the embeddings of pictures (PNG bytes), in their order and all of the same length.

        Raises:
            SweetError: a picture cannot be read.
        """
        ...


def cosine(a: Vector, b: Vector) -> float:
    """Return the cosine of two unit vectors: their scalar product, clipped to [-1, 1]."""
    return float(np.clip(np.dot(a.astype(np.float64), b.astype(np.float64)), -1.0, 1.0))


def unit(vector: NDArray[np.floating]) -> Vector:
    """Return the vector scaled to length 1.

    Raises:
        SweetError: the vector is zero or not finite.
    """
    wide = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(wide))
    if not np.isfinite(length) or length == 0:
        raise SweetError(
            "A screenshot has no embedding: the model's output is zero or not finite.",
            fix="name another model by --similarity",
        )
    return (wide / length).astype(np.float32)


_MOST_IN_MEMORY = 1024
_ROUNDING = 1e-3


class Embeddings:
    """The embeddings of one similarity, cached as `FOLDER/SIMILARITY/ab/abcdef….f32`, named by the sha256 of the PNG.

    A file contains little-endian float32 numbers. It is written atomically, and one that is not a unit vector counts as
    missing. Any number of processes may use one folder.

    Args:
        folder: the cache folder, in which each similarity has its own; None caches in memory only.
    """

    def __init__(self, similarity: Similarity, folder: Path | None) -> None:
        self.similarity = similarity
        name = re.sub(r"[^A-Za-z0-9._@-]", "-", similarity.name)
        self._folder = folder / name if folder is not None and similarity.keeps else None
        self._known: OrderedDict[str, Vector] = OrderedDict()

    def of(self, pictures: Sequence[bytes]) -> list[Vector]:
        """Return the embeddings of pictures (PNG bytes), in their order; missing ones are computed in one batch."""
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
