"""Select what compares screenshots by the value of `--similarity`.

- `clip`, or the directory or hub id of a CLIP or SigLIP model: its image tower (sweet.render.similarity_models). CLIP
  ViT-B/32 is the paper's reward.
- `pixels`: histograms of colour and of edges, without weights (sweet.render.similarity_pixels); a stand-in for a
  machine without CLIP.
"""

from __future__ import annotations

from collections.abc import Callable

from sweet.device import Device
from sweet.render.screenshot_images import require_pillow
from sweet.render.similarity import Similarity


def open_similarity(choice: str | None, device: Device, say: Callable[[str], None]) -> Similarity:
    """Open the similarity that `choice` names.

    Args:
        choice: `clip`, `pixels`, or the directory or hub id of a CLIP or SigLIP model. None selects CLIP ViT-B/32 if
            its weights are in the local cache, else `pixels`.
        device: the device that a model runs on.
        say: called with a line of text where `pixels` was selected by default.

    Raises:
        UsageError: Pillow or the model is missing, or the model is neither CLIP nor SigLIP.
    """
    require_pillow()
    from sweet.render.similarity_models import CLIP, ImageTower, is_cached
    from sweet.render.similarity_pixels import Pixels

    if choice == "pixels":
        return Pixels()
    if choice is None and not is_cached(CLIP):
        say(
            f"The weights of {CLIP} are not on this machine: {Pixels.name}, histograms of colours and edges, is used "
            "instead. Its cosines are not comparable with CLIP's; --similarity clip downloads the weights."
        )
        return Pixels()
    return ImageTower(CLIP if choice in (None, "clip") else choice, device)
