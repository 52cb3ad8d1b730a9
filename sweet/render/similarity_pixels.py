"""`pixels`: a similarity of pages from their pixels alone, without weights or randomness, as a stand-in for CLIP.

A page is scaled to a square of 256 x 256 pixels, so that contents at the same relative height are compared. Its
background is the most frequent colour. Two kinds of content are measured, for which each pixel p has a mass:

    colour   m(p) = 0.05 + |c(p) - background| / sqrt(3)         c in [0, 1]^3
    edges    m(p) = 0.002 + |gradient of the luminance at p|

so that contents count and the empty background counts little. Each mass is distributed to bins: the colour to the 8
nearest of 4 x 4 x 4 colours, the gradient to the 2 nearest of 8 orientations (modulo 180 degrees; the 0.002 goes to a
ninth bin, "no edge"). With the cell of the page that contains p, this gives one distribution over (cell, bin) for each
grid of 1, 2, 4 and 8 cells a side. A ninth distribution is the page's height, distributed to the 2 nearest of 17 steps
of half an octave.

The embedding is the concatenation of the square roots of all nine, each part of length 1, divided by 3. The cosine of
two pages is therefore the mean of nine Bhattacharyya coefficients, sum_i sqrt(p_i q_i) (A. Bhattacharyya, 1943): always
in [0, 1], and 1 for the same image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sweet.render.screenshot_images import read_image
from sweet.render.similarity import Vector, unit

_SIDE = 256
_CELLS = 8
_GRIDS = (1, 2, 4, _CELLS)
_LEVELS = 4
_STRIDES = np.array([_LEVELS * _LEVELS, _LEVELS, 1])
"""The factors of red, green and blue in a colour's index."""
_TURNS = 8
_HEIGHTS = 17
_LEAST_HEIGHT = 64
_PAPER = 0.05
_FLAT = 0.002
_LUMINANCE = np.array([0.299, 0.587, 0.114])
"""The weights of red, green and blue in ITU-R BT.601."""

Floats = NDArray[np.float64]


class Pixels:
    """Implements sweet.render.similarity.Similarity. The number in the name changes with the embeddings."""

    name = "pixels-1"
    choice = "pixels"

    def embed(self, pictures: Sequence[bytes]) -> list[Vector]:
        return [_embedding(png) for png in pictures]


def _embedding(png: bytes) -> Vector:
    from PIL.Image import Resampling

    picture = read_image(png)
    small = picture.resize((_SIDE, _SIDE), Resampling.BOX)
    pixels: Floats = np.asarray(small, dtype=np.float64) / 255
    colours = _colours(pixels)
    edges = _edges(pixels)
    parts = [_pooled(masses, grid) for masses in (colours, edges) for grid in _GRIDS]
    parts.append(_height(picture.height / picture.width * 1280))
    return unit(np.concatenate([np.sqrt(part / part.sum()) for part in parts]))


def _colours(pixels: Floats) -> Floats:
    """Return [cells, cells, colours] of the finest grid: the pixels' masses, distributed to the nearest colours."""
    steps = pixels * (_LEVELS - 1)
    codes = np.rint(steps).astype(np.intp) @ _STRIDES
    commonest = np.bincount(codes.ravel(), minlength=_LEVELS**3).argmax()
    background = pixels[codes == commonest].mean(axis=0)
    mass = _PAPER + np.linalg.norm(pixels - background, axis=2) / math.sqrt(3)
    low = np.minimum(steps.astype(np.intp), _LEVELS - 2)
    share = steps - low
    masses = np.zeros((_CELLS, _CELLS, _LEVELS**3))
    for corner in np.ndindex(2, 2, 2):
        weight = mass * np.where(corner, share, 1 - share).prod(axis=2)
        masses += _histogram((low + corner) @ _STRIDES, weight, _LEVELS**3)
    return masses


def _edges(pixels: Floats) -> Floats:
    """Return [cells, cells, orientations + 1] of the finest grid: gradients, distributed to nearest orientations."""
    luminance = pixels @ _LUMINANCE
    down, across = np.gradient(luminance)
    strength = np.hypot(down, across)
    turn = (np.arctan2(down, across) / math.pi % 1) * _TURNS
    low = np.floor(turn).astype(np.intp)
    share = turn - low
    masses = _histogram(low % _TURNS, strength * (1 - share), _TURNS + 1)
    masses += _histogram((low + 1) % _TURNS, strength * share, _TURNS + 1)
    masses[:, :, _TURNS] += _FLAT * (_SIDE // _CELLS) ** 2
    return masses


def _histogram(bins: NDArray[np.intp], mass: Floats, count: int) -> Floats:
    """Return [cells, cells, count]: the sum of the pixels' masses in each bin of each cell."""
    cell = np.arange(_SIDE) // (_SIDE // _CELLS)
    index = (cell[:, None] * _CELLS + cell[None, :]) * count + bins
    found: Floats = np.bincount(index.ravel(), mass.ravel(), _CELLS * _CELLS * count).astype(np.float64)
    return found.reshape(_CELLS, _CELLS, count)


def _pooled(masses: Floats, grid: int) -> Floats:
    """Return [grid * grid * bins]: the masses of the finest cells, summed to larger cells."""
    cell = _CELLS // grid
    pooled: Floats = masses.reshape(grid, cell, grid, cell, -1).sum(axis=(1, 3)).ravel()
    return pooled


def _height(pixels: float) -> Floats:
    """Return the height of the page, at a width of 1280 pixels, distributed to steps of half an octave."""
    step = min(max(2 * math.log2(max(pixels, 1) / _LEAST_HEIGHT), 0.0), _HEIGHTS - 1.0)
    low = min(int(step), _HEIGHTS - 2)
    masses = np.zeros(_HEIGHTS)
    masses[low], masses[low + 1] = 1 - (step - low), step - low
    return masses
