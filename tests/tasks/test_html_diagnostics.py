"""The diagnostics of pages: the similarities of texts, and the metrics over blocks."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from sweet.render.page import Block, Screenshot
from sweet.tasks.html.diagnostics import (
    MOST_BLOCKS,
    MOST_LOOKED_AT,
    NOTHING,
    diagnose,
    similarities,
    unseen,
)
from sweet.tasks.html.view import FARTHEST, color_distance
from tests.render.pictures import png


@given(st.lists(st.text(max_size=12), min_size=1, max_size=4), st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_similarities_of_texts_are_bounded_and_symmetric(ours: list[str], theirs: list[str]) -> None:
    found = similarities(ours, theirs)
    assert found.shape == (len(ours), len(theirs))
    assert (found >= 0).all()
    assert (found <= 1).all()
    assert np.array_equal(found, similarities(theirs, ours).T)
    assert (np.diag(similarities(ours, ours)) == 1).all()


def test_similarities_follow_the_formula() -> None:
    # ^n ni ig gh ht t$ and ^n na ac ch ht t$ share three of six and six.
    assert similarities(["night"], ["nacht"])[0, 0] == 0.5
    assert similarities(["a"], ["b"])[0, 0] == 0
    assert similarities(["listen"], ["silent"])[0, 0] < 0.5


def block(text: str, x: float, y: float, colour: str = "#000000", width: float = 200, height: float = 20) -> Block:
    return Block("p", text, x, y, width, height, colour, "", 16, bold=False, image=False)


def shot(*blocks: Block, height: int = 1000, showing: bool = True) -> Screenshot:
    """Return a grey page; the left half of each block with text is painted in the colour of its letters."""
    image = Image.new("RGB", (1000, height), "#909090")
    draw = ImageDraw.Draw(image)
    for each in blocks if showing else ():
        if each.text and each.width >= 2:
            draw.rectangle((each.x, each.y, each.x + each.width / 2, each.y + each.height), fill=each.color)
    return Screenshot(png(image), 1000, height, blocks)


REFERENCE = shot(
    block("Welcome to the bakery", 100, 0),
    block("Order bread online", 100, 200, "#ff0000"),
    block("", 0, 0, width=1000, height=1000),
)


def test_the_same_page_has_perfect_metrics() -> None:
    assert diagnose(REFERENCE, REFERENCE) == replace(NOTHING, block_match=1, text=1, position=1, color=1)


def test_each_metric_detects_one_flaw() -> None:
    welcome, order, _ = REFERENCE.blocks
    missing = diagnose(shot(welcome), REFERENCE)
    assert missing == replace(NOTHING, block_match=2 / 3, text=1, position=1, color=1)
    more = diagnose(shot(*REFERENCE.blocks, block("Nobody wants these words", 0, 500, width=400)), REFERENCE)
    assert more == replace(NOTHING, block_match=4 / 6, text=1, position=1, color=1)
    moved = diagnose(shot(welcome, replace(order, x=200, y=500)), REFERENCE)
    assert moved is not None
    assert (moved.block_match, moved.text, moved.position, moved.color) == pytest.approx((1, 1, 0.85, 1))
    painted = diagnose(shot(welcome, replace(order, color="#ffffff")), REFERENCE)
    assert painted is not None
    assert (painted.block_match, painted.position) == (1, 1)
    assert painted.color == pytest.approx(1 - color_distance("#ff0000", "#ffffff") / (2 * FARTHEST))
    said = diagnose(shot(welcome, replace(order, text="Order breads online")), REFERENCE)
    assert said is not None
    assert 0.9 < said.text < 1 == said.block_match


def test_dissimilar_texts_are_not_paired() -> None:
    assert diagnose(shot(block("zzz", 100, 0), block("qqq", 100, 200)), REFERENCE) == NOTHING
    assert diagnose(shot(), REFERENCE) == NOTHING
    assert diagnose(None, REFERENCE) == NOTHING


def test_texts_that_are_not_seen_are_not_paired_with_those_that_are() -> None:
    hidden = shot(*REFERENCE.blocks, showing=False)
    assert diagnose(hidden, REFERENCE) == NOTHING
    assert diagnose(hidden, hidden) == diagnose(REFERENCE, hidden) == diagnose(REFERENCE, REFERENCE)
    welcome, order, _ = REFERENCE.blocks
    one = replace(hidden, png=shot(welcome, showing=True).png)
    assert diagnose(one, REFERENCE) == replace(NOTHING, block_match=2 / 4, text=1, position=1, color=1)
    assert unseen(one, [welcome, order]).tolist() == [False, True]


def test_a_faint_text_is_not_seen() -> None:
    dark, faint = block("dark", 0, 0, "#808080"), block("faint", 0, 100, "#000000")
    image = shot(dark, replace(faint, color="#808080")).png
    assert unseen(Screenshot(image, 1000, 1000, ()), [dark, faint]).tolist() == [False, True]


def test_the_work_of_looking_is_bounded() -> None:
    everywhere = block("x", -5, -5, width=2000, height=2000)
    away = block("away", 3000, 3000)
    found = unseen(shot(everywhere), [away, *[everywhere] * 20])
    assert found.tolist() == [True, *[False] * MOST_LOOKED_AT, *[True] * (20 - MOST_LOOKED_AT)]


def test_a_reference_without_text_has_no_metrics() -> None:
    assert diagnose(REFERENCE, shot(block("", 0, 0))) is None


def test_only_the_largest_of_very_many_blocks_are_used() -> None:
    many = shot(*(block(f"line {i}", 0, i, width=100 + i % 7) for i in range(3 * MOST_BLOCKS)))
    found = diagnose(many, many)
    assert found is not None
    assert astuple(found) == pytest.approx((1, 1, 1, 1), abs=0.02)


BLOCKS = st.builds(
    block,
    st.text("ab c", max_size=6),
    st.floats(-50, 1100),
    st.floats(-50, 1100),
    st.sampled_from(["#000000", "#ff0000"]),
    st.floats(0, 2000),
    st.floats(0, 50),
)


@settings(deadline=None, max_examples=25)
@given(st.lists(BLOCKS, max_size=6), st.lists(BLOCKS, max_size=6))
def test_metrics_are_between_0_and_1(ours: list[Block], theirs: list[Block]) -> None:
    found = diagnose(shot(*ours), shot(*theirs, height=1500))
    if found is not None:
        assert all(0 <= value <= 1 + 1e-9 for value in astuple(found))
        assert set(found.rounded()) == {"block_match", "text", "position", "color"}
