"""`pixels`: how alike two pages look, from their pixels alone. No weights, no randomness; our own stand-in for CLIP.

A page is laid out on a square of 256 x 256 pixels, so that what stands at the same share of the height is compared.
Its background is the commonest colour. Two kinds of content are measured, each pixel p with a mass:

    colour   m(p) = 0.05 + |c(p) - background| / sqrt(3)         c in [0, 1]^3
    edges    m(p) = 0.002 + |gradient of the luminance at p|

so that what is drawn counts, and the empty paper around it little. Each mass is dealt out to bins: the colour to the 8
nearest of 4 x 4 x 4 colours, the gradient to the 2 nearest of 8 orientations (modulo 180 degrees; the 0.002 goes to a
ninth bin, "no edge"). With the cell of the page that p lies in this gives, on grids of 1, 2, 4 and 8 cells a side, one
distribution over (cell, bin) each. A ninth distribution holds the page's height, dealt out to the 2 nearest of 17
steps of half an octave.

The embedding is the square roots of all nine side by side, each part of length 1, divided by 3. So the cosine of two
pages is the mean of nine Bhattacharyya coefficients, sum_i sqrt(p_i q_i) (A. Bhattacharyya, 1943): 1 for the same
picture, in [0, 1] always.
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
_PLACES = np.array([_LEVELS * _LEVELS, _LEVELS, 1])
"""Of red, green and blue in a colour's number."""
_TURNS = 8
_HEIGHTS = 17
_LEAST_HEIGHT = 64
_PAPER = 0.05
_FLAT = 0.002
_LUMINANCE = np.array([0.299, 0.587, 0.114])
"""Of ITU-R BT.601."""

Floats = NDArray[np.float64]


class Pixels:
    """Implements sweet.render.similarity.Similarity. The name counts up whenever the numbers change."""

    name = "pixels-1"
    choice = "pixels"
    keeps = False

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
    """[cells, cells, colours] of the finest grid: the pixels' masses, dealt out to the nearest colours."""
    steps = pixels * (_LEVELS - 1)
    codes = np.rint(steps).astype(np.intp) @ _PLACES
    commonest = np.bincount(codes.ravel(), minlength=_LEVELS**3).argmax()
    background = pixels[codes == commonest].mean(axis=0)
    mass = _PAPER + np.linalg.norm(pixels - background, axis=2) / math.sqrt(3)
    low = np.minimum(steps.astype(np.intp), _LEVELS - 2)
    share = steps - low
    dealt = np.zeros((_CELLS, _CELLS, _LEVELS**3))
    for corner in np.ndindex(2, 2, 2):
        weight = mass * np.where(corner, share, 1 - share).prod(axis=2)
        dealt += _dealt((low + corner) @ _PLACES, weight, _LEVELS**3)
    return dealt


def _edges(pixels: Floats) -> Floats:
    """[cells, cells, orientations + 1] of the finest grid: the gradients, dealt out to the nearest orientations."""
    luminance = pixels @ _LUMINANCE
    down, across = np.gradient(luminance)
    strength = np.hypot(down, across)
    turn = (np.arctan2(down, across) / math.pi % 1) * _TURNS
    low = np.floor(turn).astype(np.intp)
    share = turn - low
    dealt = _dealt(low % _TURNS, strength * (1 - share), _TURNS + 1)
    dealt += _dealt((low + 1) % _TURNS, strength * share, _TURNS + 1)
    dealt[:, :, _TURNS] += _FLAT * (_SIDE // _CELLS) ** 2
    return dealt


def _dealt(bins: NDArray[np.intp], mass: Floats, count: int) -> Floats:
    """[cells, cells, count]: each pixel's mass added to its bin in its cell."""
    cell = np.arange(_SIDE) // (_SIDE // _CELLS)
    place = (cell[:, None] * _CELLS + cell[None, :]) * count + bins
    found: Floats = np.bincount(place.ravel(), mass.ravel(), _CELLS * _CELLS * count).astype(np.float64)
    return found.reshape(_CELLS, _CELLS, count)


def _pooled(masses: Floats, grid: int) -> Floats:
    """[grid * grid * bins]: the masses of the finest cells added up to larger ones."""
    cell = _CELLS // grid
    pooled: Floats = masses.reshape(grid, cell, grid, cell, -1).sum(axis=(1, 3)).ravel()
    return pooled


def _height(pixels: float) -> Floats:
    """The height on a page of 1280 pixels' width, dealt out to steps of half an octave."""
    step = min(max(2 * math.log2(max(pixels, 1) / _LEAST_HEIGHT), 0.0), _HEIGHTS - 1.0)
    low = min(int(step), _HEIGHTS - 2)
    dealt = np.zeros(_HEIGHTS)
    dealt[low], dealt[low + 1] = 1 - (step - low), step - low
    return dealt
