"""Embeddings of screenshots without weights: bounds, order, determinism; which similarity is opened; the cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sweet.errors import SweetError, UsageError
from sweet.render.screenshot_images import BLACK_SIDE, black_square, read_image
from sweet.render.similarity import Embeddings, Vector, cosine, unit
from sweet.render.similarity_models import open_similarity
from sweet.render.similarity_pixels import Pixels
from tests.render.pictures import page, plain, png

PIXELS = Pixels()


def likeness(one: bytes, other: bytes) -> float:
    return cosine(*PIXELS.embed([one, other]))


def test_similarity_is_1_for_the_same_page_lower_for_others_and_lowest_for_none() -> None:
    reference = page(0)
    near, recoloured, other = page(0, shift=6), page(0, accent="#cc2222"), page(1, accent="#cc2222")
    found = [
        likeness(reference, shown) for shown in (reference, near, recoloured, other, plain("white"), black_square())
    ]
    assert found[0] == pytest.approx(1, abs=1e-6)
    assert found[1] > found[2] > found[3] > found[4] > found[5] >= 0
    assert found[0] - found[1] > 0.01
    assert found[5] < 0.3


def test_height_and_position_change_the_similarity() -> None:
    reference = page(2)
    assert likeness(reference, page(2, height=900)) < likeness(reference, page(2, height=520)) < 0.999
    assert likeness(reference, page(2, shift=90)) < likeness(reference, page(2, shift=10))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 99), st.integers(0, 99), st.integers(220, 700))
def test_pixels_are_bounded_symmetric_and_the_same_each_time(one: int, other: int, height: int) -> None:
    left, right = PIXELS.embed([page(one, height=height), page(other)])
    assert 0 <= cosine(left, right) == cosine(right, left) <= 1
    assert float(np.linalg.norm(left)) == pytest.approx(1, abs=1e-5)
    again = PIXELS.embed([page(one, height=height)])[0]
    assert np.array_equal(left, again)


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1), (255, 257)])
def test_images_of_any_shape_have_an_embedding(size: tuple[int, int]) -> None:
    (vector,) = PIXELS.embed([plain("#fedcba", *size)])
    assert np.isfinite(vector).all()


def test_transparent_pixels_are_white() -> None:
    clear = png(Image.new("RGBA", (30, 30), (255, 0, 0, 0)))
    assert read_image(clear).getpixel((3, 3)) == (255, 255, 255)
    assert likeness(clear, plain("white", 30, 30)) == pytest.approx(1, abs=1e-6)
    assert read_image(png(Image.new("L", (3, 3), 7))).getpixel((1, 1)) == (7, 7, 7)


@pytest.mark.parametrize("content", [b"", b"not a picture", page(0)[:200]])
def test_an_unreadable_screenshot_is_reported(content: bytes) -> None:
    with pytest.raises(SweetError, match="cannot be read"):
        read_image(content)


def test_a_missing_page_is_a_black_square() -> None:
    picture = read_image(black_square())
    assert picture.size == (BLACK_SIDE, BLACK_SIDE)
    assert picture.getextrema() == ((0, 0), (0, 0), (0, 0))


@pytest.mark.parametrize("numbers", [[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_zero_and_infinite_vectors_are_refused(numbers: list[float]) -> None:
    with pytest.raises(SweetError, match="no embedding"):
        unit(np.array(numbers))


def test_without_clip_pixels_is_used_with_a_note() -> None:
    said: list[str] = []
    found = open_similarity(None, "cpu", said.append)
    assert found.name == "pixels-1"
    assert "not comparable with CLIP" in said[0]
    assert open_similarity("pixels", "cpu", said.append).name == "pixels-1"
    assert len(said) == 1


@pytest.mark.parametrize("choice", ["clip", "nobody/nothing-at-all", "./no-such-folder", "a/b/c"])
def test_a_missing_model_is_reported_with_a_fix(choice: str) -> None:
    with pytest.raises(UsageError, match="There is no model") as caught:
        open_similarity(choice, "cpu", print)
    assert caught.value.where == "--similarity"
    assert caught.value.fix


class Counting:
    """`pixels` that records how many images it embeds."""

    name = "counting/1"
    choice = "pixels"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def embed(self, pictures: Sequence[bytes]) -> list[Vector]:
        self.asked.append(len(pictures))
        return PIXELS.embed(pictures)


def test_each_screenshot_is_embedded_once() -> None:
    first = Counting()
    embeddings = Embeddings(first)
    one, two, again = embeddings.embed([page(0), page(1), page(0)])
    assert np.array_equal(one, again)
    assert embeddings.embed([page(1)])[0] is two
    assert first.asked == [2]
