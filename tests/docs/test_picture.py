"""The animations of the README and of docs/viewing.md: real screens, no external resources, no scripts."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from docs.tools.record_viewer import SCENES, film
from docs.tools.view_pictures import SCENES as COMPARED
from tests.docs.pages import ROOT

SVG = "{http://www.w3.org/2000/svg}"
_ADVANTAGE = re.compile(r"[\s│]*[+-]0\.\d{3}\s*")


def _frame(words: str, y: int = 10) -> str:
    """A screen as Textual exports it: a window, and text with generated classes."""
    return (
        '<svg viewBox="0 0 40 20" xmlns="http://www.w3.org/2000/svg"><style>@font-face{src:url(https://x/y.woff)}'
        ".t-r1 { fill: #123456;font-weight: bold }</style><defs><clipPath id='c'><rect width='9'/></clipPath></defs>"
        '<rect fill="#292929" width="40" height="20"/><g transform="translate(9, 41)" clip-path="url(#c)">'
        f'<text class="t-r1" x="0" y="{y}" textLength="9">{words}</text></g></svg>'
    )


def test_shared_parts_of_frames_are_stored_once_and_each_frame_is_shown_in_its_time() -> None:
    result = film([_frame("one"), _frame("a &lt;b&gt;"), _frame("one")], [1.0, 2.0, 1.0])
    root = ElementTree.fromstring(result)
    assert [text.text for text in root.iter(f"{SVG}text")] == ["one", "a <b>"]
    assert len(list(root.iter(f"{SVG}rect"))) == 1
    assert "0.00%{visibility:visible}25.00%{visibility:hidden}75.00%{visibility:visible}" in result
    assert "0.00%{visibility:hidden}25.00%{visibility:visible}75.00%{visibility:hidden}" in result
    assert "fill: #123456" in result
    assert {text.get("transform") for text in root.iter(f"{SVG}text")} == {"translate(9, 41)"}


CAPTIONS = {"viewer.svg": [scene.caption for scene in SCENES], "comparison.svg": [scene[1] for scene in COMPARED]}
TOOLS = {"viewer.svg": "record_viewer", "comparison.svg": "view_pictures"}


@pytest.mark.parametrize("name", ["page.png", "served.png", "pictures.png"])
def test_the_pictures_of_browsers_are_small_and_shown(name: str) -> None:
    file: Path = ROOT / "docs" / name
    assert file.stat().st_size < 100_000
    with Image.open(file) as image:
        assert (image.format, image.width) == ("PNG", 1280)
        assert len(image.convert("RGB").getcolors(1 << 20) or ()) > 8, "something is drawn"
    assert any(f"]({name})" in page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md"))
    assert name in (ROOT / "docs/tools/view_pictures.py").read_text("utf-8")


def test_the_comparison_shows_advantages_of_both() -> None:
    root = ElementTree.parse(ROOT / "docs/comparison.svg").getroot()
    places = [float(text.get("x", "0")) for text in root.iter(f"{SVG}text") if _ADVANTAGE.fullmatch(text.text or "")]
    middle = float(root.attrib["viewBox"].split()[2]) / 2
    assert min(places, default=middle) < middle < max(places, default=middle), "run: python -m docs.tools.view_pictures"


@pytest.mark.parametrize("name", CAPTIONS)
def test_the_picture_loads_and_runs_nothing(name: str) -> None:
    file: Path = ROOT / "docs" / name
    text = file.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert text.count("http") == 1, "the namespace"
    root = ElementTree.fromstring(text)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        *("svg", "style", "g", "rect", "circle", "text")
    }
    words = "".join(part.replace("\u00a0", " ") for part in root.itertext())
    assert [caption for caption in CAPTIONS[name] if caption not in words] == [], (
        f"run: python -m docs.tools.{TOOLS[name]}"
    )
