"""How alike two screenshots are: the cosine of their embeddings.

A `Similarity` turns pictures into unit vectors. There are three, and `open_similarity` chooses:

- the image tower of a CLIP or SigLIP model (sweet.render.similarity_models); CLIP ViT-B/32 is the paper's reward;
- `efficientnet`, an image classifier's features, where its package is installed (sweet.render.similarity_efficientnet);
- `pixels`, histograms of colour and of edges without any weights (sweet.render.similarity_pixels).

The last two are stand-ins for a machine without CLIP. Their cosines spread otherwise than CLIP's, so each similarity
has a name, with a digest of its weights, that stands beside every figure it gave; figures under different names are
never compared.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from sweet.device import Device
from sweet.errors import SweetError, UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

Vector = NDArray[np.float32]
"""One embedding, of length 1."""


CLIP = "openai/clip-vit-base-patch32"
"""The paper's: CLIP ViT-B/32."""

BLACK_SIDE = 224
"""A missing page scores as a black square of so many pixels a side (the published protocol)."""


class Similarity(Protocol):
    """A measure of how alike screenshots are."""

    name: str
    """Which one, with a digest of its weights where it has some: the same name means the same figures."""
    choice: str
    """The word that `open_similarity` takes for it."""
    keeps: bool
    """Whether an embedding is worth keeping on disk: it takes longer to make than to read."""

    def embed(self, pictures: Sequence[bytes]) -> list[Vector]:
        """The embeddings of pictures (PNG bytes), in their order, all of one length.

        Raises:
            SweetError: a picture cannot be read.
        """
        ...


def cosine(one: Vector, other: Vector) -> float:
    """Of two unit vectors: their scalar product, kept to [-1, 1]."""
    return float(np.clip(np.dot(one.astype(np.float64), other.astype(np.float64)), -1.0, 1.0))


def unit(vector: NDArray[np.floating]) -> Vector:
    """The vector at length 1.

    Raises:
        SweetError: it has no direction: it is zero or not finite.
    """
    wide = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(wide))
    if not np.isfinite(length) or length == 0:
        raise SweetError(
            "A screenshot has no embedding: the model gives numbers that are zero or not finite.",
            fix="name another model by --similarity",
        )
    return (wide / length).astype(np.float32)


def read_picture(png: bytes) -> Image:
    """A picture as RGB, what is transparent on white.

    Raises:
        SweetError: it cannot be read.
    """
    pillow()
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as opened:
            opened.load()
            if opened.mode == "RGB":
                return opened.copy()
            rgba = opened.convert("RGBA")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SweetError(
            f"A screenshot cannot be read: {error}.", fix="remove the run's screenshots/ folder"
        ) from error
    white = Image.new("RGBA", rgba.size, "white")
    white.alpha_composite(rgba)
    return white.convert("RGB")


@functools.cache
def black() -> bytes:
    """The picture of a missing page."""
    pillow()
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (BLACK_SIDE, BLACK_SIDE), "black").save(buffer, "PNG")
    return buffer.getvalue()


def pillow() -> None:
    """Raise UsageError where pictures cannot be read at all."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "Without Pillow no screenshot can be read.", where="pillow", fix="pip install 'sweet-rl[html]'"
        ) from error


def open_similarity(choice: str | None, device: Device, say: Callable[[str], None]) -> Similarity:
    """The similarity that is asked for.

    Args:
        choice: `clip`, `efficientnet`, `pixels`, or the directory or hub id of a CLIP or SigLIP model. None takes
            CLIP ViT-B/32 where its weights are in the local cache, else `pixels`.
        device: where a model runs.
        say: is told which one it is where nobody asked for it.

    Raises:
        UsageError: it is not there, or is no such model.
    """
    pillow()
    if choice is None:
        from sweet.render.similarity_models import is_cached

        if not is_cached(CLIP):
            from sweet.render.similarity_pixels import Pixels

            found = Pixels()
            say(
                f"The weights of {CLIP} are not on this machine: {found.name}, histograms of colours and edges, stands "
                "in. Its cosines are not comparable with CLIP's; --similarity clip fetches the weights."
            )
            return found
    if choice == "pixels":
        from sweet.render.similarity_pixels import Pixels

        return Pixels()
    if choice == "efficientnet":
        from sweet.render.similarity_efficientnet import EfficientNet

        return EfficientNet(device)
    from sweet.render.similarity_models import ImageTower

    return ImageTower(CLIP if choice in (None, "clip") else choice, device)
