"""Screenshots of turns: on terminals, as descriptions, and in the HTML page."""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Group

from sweet.render.page import RenderFailed, RenderSettings, Screenshot, page_key
from sweet.render.store import SCREENSHOTS, ScreenshotStore
from sweet.results.dialogue import HtmlScreenshots
from sweet.runs.run import Run
from sweet.tasks.base import Task
from sweet.tasks.trajectory import Trajectory, Turn, dump
from sweet.view.dialogue_view import DisplayOptions
from sweet.view.records import Records
from sweet.view.run_screenshots import Unreadable, scaled
from sweet.view.side_by_side import side_by_side_parts
from sweet.view.viewer import ViewConfig, Viewer
from tests.render.pictures import png
from tests.results.test_dialogues_page import read, written
from tests.view.conftest import HOSTILE, made
from tests.view.test_terminal import ESCAPES, drawn

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def picture(rows: list[list[tuple[int, int, int]]]) -> Image.Image:
    image = Image.new("RGB", (len(rows[0]), len(rows)))
    image.putdata([pixel for row in rows for pixel in row])
    return image


def shot(colour: tuple[int, int, int], height: int = 720) -> Screenshot:
    return Screenshot(png(Image.new("RGB", (1280, height), colour)), 1280, height, ())


def page(body: str) -> str:
    return f"<html><body>{body}</body></html>"


REFERENCE, SHOWN, MISSING, FAILED = page("reference"), page(f"shown {HOSTILE}"), page("missing"), page("failed")


def dialogue(*replies: str, **changes: Any) -> Trajectory:
    turns = [Turn(role="user", content="A page, please.")]
    for reply in replies:
        turns += [Turn(role="assistant", content=reply), Turn(role="user", content="Not quite.")]
    task = Task(id="task", problem_description="A page, please.", ground_truth=REFERENCE)
    return Trajectory(id="t", task=task, dialogue_history=tuple(turns[:-1]), answer=replies[-1], **changes)


@pytest.fixture
def pages(tmp_path: Path) -> Run:
    """One dialogue: a page with a screenshot, one that was not rendered, one that failed, a reply without a page."""
    run = Run.create(tmp_path / "run", task="html")
    replies = (f"Look: {SHOWN} OK?", MISSING, FAILED, "What colour?")
    rollouts = made(run, "rollout", "rollouts", [dump(dialogue(*replies))], [])
    store = ScreenshotStore(run.path / SCREENSHOTS)
    for text, result in (
        (REFERENCE, shot(BLUE, 1440)),
        (SHOWN, shot(RED)),
        (FAILED, RenderFailed("blocked", f"it went away to {HOSTILE}")),
    ):
        store.put(page_key(text, RenderSettings()), result)
    ranked = {"trajectory_id": "t", "task_id": "task", "turn": 1, "observation": []}
    first, second = (
        {"text": text, "advantage": value, "logprob": -1.0, "reference": -1.0, "tokens": 3}
        for text, value in ((SHOWN, 0.5), (f"Mine: {MISSING}", -0.5))
    )
    made(run, "rank", "candidates", [{**ranked, "candidates": [first, second], "taken": first}], [rollouts])
    pair = {"id": "p", "chosen": first, "rejected": {"text": MISSING, "advantage": -0.5}}
    made(run, "pair", "pairs", [{**ranked, **pair}], [run.artifact("candidates-1")])
    return run


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60), st.integers(1, 60))
def test_a_scaled_picture_keeps_its_shape_and_its_bounds(across: int, down: int, width: int, height: int) -> None:
    found = scaled(png(Image.new("RGB", (across, down), RED)), width, height)
    assert found.width == width
    assert 1 <= found.height <= height
    assert found.height == pytest.approx(min(height, down * width / across), abs=1 + width / across)
    assert found.getcolors() == [(found.width * found.height, RED)]


def test_what_is_too_long_is_cut_off_below() -> None:
    image = Image.new("RGB", (100, 1000), BLUE)
    image.paste(RED, (0, 0, 100, 500))
    assert scaled(png(image), 10, 50).getcolors() == [(500, RED)]
    assert scaled(png(image.convert("RGBA")), 10, 1000).size == (10, 100)


def giant() -> bytes:
    """A PNG whose header declares 60,000 × 60,000 pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the picture cannot be read"),
        (b"GIF89a", "the picture cannot be read"),
        (png(Image.new("RGB", (9, 9)))[:45], "the picture cannot be read"),
        (giant(), "the picture has 60000 × 60000 pixels"),
    ],
    ids=["empty", "no PNG", "torn", "giant"],
)
def test_an_unreadable_picture_is_reported(content: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        scaled(content, 10, 10)


def test_the_screenshot_of_a_turn_and_the_reference_page_are_named(pages: Run) -> None:
    shown = drawn(Viewer(pages, ViewConfig()).dialogue("t"), 4000, color=True)
    assert "▀" not in shown
    plain = ESCAPES.sub("", shown)
    key = page_key(SHOWN, RenderSettings())
    assert f"turn 1: 1280 × 720, screenshots/{key[:2]}/{key}.png" in plain
    assert plain.count("the reference page: 1280 × 1440") == 4
    for words in (
        "turn 2: not rendered",
        "turn 3: the page did not load: it went away",
        "turn 4: the reply contains no page",
    ):
        assert words in plain


def test_no_text_of_a_page_reaches_the_terminal_as_more_than_text(pages: Run) -> None:
    for color in (True, False):
        left = ESCAPES.sub("", drawn(Viewer(pages, ViewConfig(hidden=True)).dialogue("t"), 100, color=color))
        assert "\x1b" not in left
        assert "\x07" not in left
        assert "␛[31mred" in left


def test_pages_of_candidates_and_pairs_are_named(pages: Run) -> None:
    text = drawn(Viewer(pages, ViewConfig()).dialogue("t"), 4000)
    shown, missing = (page_key(page, RenderSettings())[:8] for page in (SHOWN, MISSING))
    assert f"+0.500     │████  [page {shown}, {len(SHOWN)} characters]" in text
    assert f"Mine: [page {missing}, {len(MISSING)} characters]" in text
    assert re.search(rf"rejected +-0.500 +\[page {missing}", text)
    assert text.count("whole pages: --html FILE") == 2


def test_a_run_of_another_kind_has_no_screenshots(run: Run) -> None:
    assert Viewer(run, ViewConfig()).a.options.screenshots is None
    assert "screenshots" not in drawn(Viewer(run, ViewConfig()).dialogue("t001"))


def test_a_kind_that_is_not_installed_has_none_either(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="elsewhere")
    made(run, "rollout", "rollouts", [dump(dialogue(SHOWN))], [])
    assert DisplayOptions.of(Records(run)).screenshots is None


def test_the_protocol_decides_what_the_page_of_a_turn_is(pages: Run) -> None:
    records = Records(pages)
    reply = "<HTML><p>one</p></HTML> <body><p>two</p></body>"
    paper = DisplayOptions.of(records).screenshots
    records.rollouts = records.rollouts.model_copy(update={"meta": {"protocol": "upstream"}})
    upstream = DisplayOptions.of(records).screenshots
    assert paper is not None
    assert upstream is not None
    assert paper.page(reply) == "<HTML><p>one</p></HTML>"
    assert upstream.page(reply) == "<body><p>two</p></body>"


def test_the_page_embeds_small_pictures_and_allows_no_others(pages: Run, tmp_path: Path) -> None:
    text = written(pages, tmp_path)
    reader = read(text)
    addresses = [value for name, value in reader.attributes if name == "src"]
    assert reader.tags.count("img") == len(addresses) == 2, "a turn's, and the reference once"
    colours = []
    for address in addresses:
        kind, _, content = address.partition(",")
        assert kind == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(content))) as image:
            assert image.width == 480
            red, _, blue = image.convert("RGB").resize((1, 1)).tobytes()
            colours.append("red" if red > 250 > 5 > blue else "blue" if blue > 250 > 5 > red else "other")
    assert colours == ["red", "blue"]
    policy = next(value for _, value in reader.attributes if "default-src" in value)
    assert "img-src data:;" in policy
    assert text.count('loading="lazy"') == 2
    for words in ("the page did not load: it went away", "not rendered", "the reply contains no page"):
        assert words in text
    assert "<script>alert" not in text
    assert "&lt;html&gt;&lt;body&gt;shown" in text
    without = written(pages, tmp_path, screenshots=False)
    assert "<img" not in without
    assert "1280 × 720, screenshots/" in without


def test_a_page_of_another_kind_allows_no_pictures(run: Run, tmp_path: Path) -> None:
    text = written(run, tmp_path)
    assert "img-src" not in text
    assert "<figure" not in text


def test_the_pictures_of_a_page_have_a_bound_together(pages: Run) -> None:
    screenshots = DisplayOptions.of(Records(pages)).screenshots
    assert screenshots is not None
    whole = HtmlScreenshots(screenshots)
    one = whole.reference(REFERENCE)
    bounded = HtmlScreenshots(screenshots)
    bounded.room = len(one)
    assert "<img" in bounded.reference(REFERENCE)
    assert "omitted, the page is full: 1280 × 1440, screenshots/" in bounded.reference(REFERENCE)
    assert (whole.omitted, bounded.omitted) == (0, 1)


def test_two_dialogues_side_by_side_show_their_last_pages(pages: Run) -> None:
    records = Records(pages)
    record = records.record(records.find("t"))
    left = replace(record, trajectory=record.trajectory.model_copy(update={"answer": SHOWN}))
    options = DisplayOptions.of(records)
    text = drawn(Group(*side_by_side_parts(left, record, options)), 4000)
    assert re.search(r"A: 1280 × 720.*\n +B: not rendered.*\n +the reference page: 1280 × 1440", text)
