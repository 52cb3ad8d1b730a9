"""The interface of screenshot similarities: embeddings as unit vectors, compared by their cosine.

A `Similarity` embeds screenshots. `sweet.render.similarity_models` (CLIP, SigLIP) and `sweet.render.similarity_pixels`
(histograms) implement it, and `sweet.render.similarity_choice.open_similarity` selects one. The cosines of different
similarities are distributed differently, so each has a name, with a digest of its weights, that is recorded with every
metric computed from it; metrics under different names are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sweet.errors import SweetError
from sweet.hints import Hint, option

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
            fix=Hint("name another model by ", option("similarity")),
        )
    return (wide / length).astype(np.float32)
