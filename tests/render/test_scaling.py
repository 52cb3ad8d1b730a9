"""Screenshots for vision models: bounded, scaled by one factor, and unchanged if they are small."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sweet.errors import SweetError
from sweet.render.page import Screenshot
from sweet.render.screenshot_images import MOST_PIXELS, scaled
from tests.render.pictures import plain

SIDES = st.tuples(st.integers(1, 400), st.integers(1, 400))


def shot(width: int, height: int, colour: str = "#10b981") -> Screenshot:
    return Screenshot(plain(colour, width, height), width, height, ())


def size(png: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(png)) as image:
        return image.size


@settings(max_examples=40, deadline=None)
@given(st.lists(SIDES, min_size=1, max_size=2), st.integers(400, 90_000))
def test_all_are_scaled_by_one_factor_within_the_limit(sides: list[tuple[int, int]], most: int) -> None:
    made = scaled([shot(*side) for side in sides], most)
    factor = min(1.0, (most / max(width * height for width, height in sides)) ** 0.5)
    for png, side in zip(made, sides, strict=True):
        assert size(png)[0] * size(png)[1] <= most
        assert all(abs(now - before * factor) <= 1 for now, before in zip(size(png), side, strict=True))


def test_small_screenshots_are_unchanged() -> None:
    shots = [shot(1280, 1562), shot(1280, 720)]
    assert scaled(shots) == tuple(one.png for one in shots)
    assert 1280 * 1562 <= MOST_PIXELS < 1280 * 1563


def test_a_giant_page_keeps_its_colours_and_scales_the_other_too() -> None:
    tall, small = scaled([shot(1280, 10_000), shot(1280, 720, "#111827")])
    assert size(tall)[0] == size(small)[0] == 505
    with Image.open(io.BytesIO(small)) as image:
        assert image.convert("RGB").getcolors() == [(505 * 284, (0x11, 0x18, 0x27))]


def test_an_invalid_screenshot_is_refused() -> None:
    with pytest.raises(SweetError, match="cannot be read"):
        scaled([Screenshot(b"\x89PNG\r\n\x1a\n", 1280, 10_000, ())])
