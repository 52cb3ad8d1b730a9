"""Images in token sequences: the number of their tokens, and the model's inputs for them.

In the ids an image is a run of one placeholder token, one for each state that the model computes of it. That number
follows from the image's size, so a sequence stores only the path of each image; its pixels are read, scaled and cut
into patches by the model's own image processor (the one that needs only Pillow) when a forward pass needs them.
Supported are models with the inputs of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: patches of all images in one tensor
`pixel_values` [patches, numbers], and `image_grid_thw` [images, 3], the number of patches in time, height and width.
`merge_size` x `merge_size` patches become one token. The model computes positions in height and width itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sweet.errors import SweetError, UsageError
from sweet.learn.sequences import Picture, VisionModel
from sweet.llm.pretrained import load_config, load_image_processor
from sweet.render.screenshot_images import read_image

CACHE_SIZE = 8
"""Prepared images that are cached for the next forward pass: one of 512 tokens takes 10 MB."""

_INPUTS = {"pixel_values", "image_grid_thw"}


class VisionProcessor:
    """Prepares images for a vision-language model: its image processor with a limit on their size.

    Attributes:
        model: name and limit, as given.
        token: the id of the placeholder.

    Args:
        name: the model, as for `sweet.llm.pretrained`.
        max_pixels: larger images are scaled down to this many pixels; by default the processor's own limit.

    Raises:
        UsageError: the model has no image processor, or one with inputs other than those described above.
    """

    def __init__(self, name: str, max_pixels: int | None = None) -> None:
        self.model = VisionModel(name, max_pixels)
        self.processor = load_image_processor(name)
        config = load_config(name)
        token = getattr(config, "image_token_id", None)
        if not set(self.processor.model_input_names) >= _INPUTS or token is None:
            raise UsageError(
                f"The image inputs of the model {name} differ from those of Qwen2-VL and its successors.",
                where=f"{config.model_type}: {', '.join(self.processor.model_input_names)}",
                fix="a model of the families Qwen2-VL, Qwen2.5-VL or Qwen3-VL",
            )
        self.token = int(token)
        self.reserved = {int(i) for i in (token, getattr(config, "video_token_id", None)) if i is not None}
        """Ids that may only be used as placeholders."""
        if max_pixels is not None:
            size = self.processor.size
            longest_edge = min(max_pixels, int(size["longest_edge"]))
            self.processor.size = {
                "shortest_edge": min(int(size["shortest_edge"]), longest_edge),
                "longest_edge": longest_edge,
            }
        self._patches_per_token = int(self.processor.merge_size) ** 2
        self._cached = lru_cache(CACHE_SIZE)(lambda path, _changed: self._process(read_image(path.read_bytes())))

    def picture(self, path: Path) -> Picture:
        """The image in a file; only its size is read.

        Raises:
            SweetError: the file is not a usable PNG.
        """
        from PIL import Image

        try:
            with Image.open(path, formats=["PNG"]) as image:
                width, height = image.size
            patches = int(self.processor.get_number_of_image_patches(height, width, {}))
        except (OSError, ValueError) as error:
            raise SweetError(f"A screenshot cannot be shown to the model: {error}.", where=path) from error
        return Picture(path.absolute(), patches // self._patches_per_token, self.model)

    def patches(self, picture: Picture) -> tuple[Tensor, Tensor]:
        """The patches of an image, [patches, numbers], and its grid [3].

        Raises:
            SweetError: the file has changed.
        """
        try:
            pixels, grid = self._cached(picture.path, picture.path.stat().st_mtime_ns)
        except OSError as error:
            raise SweetError(f"A screenshot cannot be read: {error.strerror}.", where=picture.path) from error
        if int(grid.prod()) // self._patches_per_token != picture.tokens:
            raise SweetError("A screenshot changed while it was in use.", where=picture.path, fix="start again")
        return pixels, grid

    def _process(self, image: Any) -> tuple[Tensor, Tensor]:
        prepared_image = self.processor(images=[image], return_tensors="pt")
        return prepared_image["pixel_values"], prepared_image["image_grid_thw"][0]

    @cached_property
    def blank(self) -> tuple[Tensor, Tensor]:
        """The patches and the grid of a black image of the smallest size."""
        from PIL import Image

        side = int(self.processor.patch_size) * int(self.processor.merge_size)
        return self._process(Image.new("RGB", (side, side)))

    @property
    def blank_ids(self) -> tuple[int, ...]:
        """The placeholders of `blank`."""
        return (self.token,) * (int(self.blank[1].prod()) // self._patches_per_token)

    def save_pretrained(self, folder: Path) -> None:
        """Write the image processor, including the size limit."""
        self.processor.save_pretrained(folder)


@lru_cache
def vision_processor(model: VisionModel) -> VisionProcessor:
    """The processor of a model, one for each process."""
    return VisionProcessor(*model)


def image_inputs(model: Any, pictures: Sequence[Picture], ids: Tensor) -> dict[str, Tensor]:
    """The arguments of `model`'s forward pass besides `ids` for the images in their rows, in order; empty if there are
    none."""
    if not pictures:
        return {}
    prepared = [vision_processor(picture.vision).patches(picture) for picture in pictures]
    return _inputs(model, prepared, vision_processor(pictures[0].vision).token, ids)


def blank_inputs(model: Any, vision: VisionProcessor, ids: Tensor) -> dict[str, Tensor]:
    """`image_inputs` for rows of which one contains `VisionProcessor.blank_ids`, and no other image."""
    return _inputs(model, [vision.blank], vision.token, ids)


def _inputs(model: Any, prepared: Sequence[tuple[Tensor, Tensor]], token: int, ids: Tensor) -> dict[str, Tensor]:
    inputs = {
        "pixel_values": torch.cat([pixels for pixels, _ in prepared]).to(ids.device),
        "image_grid_thw": torch.stack([grid for _, grid in prepared]).to(ids.device),
    }
    # Later versions of the library require the positions of the images.
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        inputs["mm_token_type_ids"] = (ids == token).int()
    return inputs
