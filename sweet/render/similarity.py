"""The interface of screenshot similarities: embeddings as unit vectors, compared by their cosine.

A `Similarity` embeds screenshots. `sweet.render.similarity_models` (CLIP, SigLIP) and `sweet.render.similarity_pixels`
(histograms) implement it, and `sweet.render.similarity_models.open_similarity` selects one. The cosines of different
similarities are distributed differently, so each has a name, with a digest of its weights, that is recorded with every
metric computed from it; metrics under different names are never compared.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sweet.errors import SweetError

Vector = NDArray[np.float32]
"""One embedding, of length 1."""


class Similarity(Protocol):
    """A measure of how similar screenshots are."""

    name: str
    """Its name, with a digest of its weights if it has any: the same name means the same metrics."""
    choice: str
    """The value of `--similarity` that selects it."""

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


class Embeddings:
    """The newest embeddings of one similarity, by the sha256 of the PNG."""

    def __init__(self, similarity: Similarity) -> None:
        self.similarity = similarity
        self._known: OrderedDict[str, Vector] = OrderedDict()

    def embed(self, pictures: Sequence[bytes]) -> list[Vector]:
        """Return the embeddings of pictures (PNG bytes), in their order; missing ones are computed in one batch."""
        keys = [hashlib.sha256(png).hexdigest() for png in pictures]
        missing = {key: png for key, png in zip(keys, pictures, strict=True) if key not in self._known}
        computed = self.similarity.embed(list(missing.values())) if missing else []
        vectors = {key: self._known[key] for key in keys if key in self._known} | dict(
            zip(missing, computed, strict=True)
        )
        for key, vector in vectors.items():
            self._known[key] = vector
            self._known.move_to_end(key)
        while len(self._known) > _MOST_IN_MEMORY:
            self._known.popitem(last=False)
        return [vectors[key] for key in keys]
