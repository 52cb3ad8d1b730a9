"""What templates print is safe, in HTML and in Markdown, without their saying so."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sweet.results.pages import _markdown, code, line, text
from sweet.view.text import printable_line
from tests.results.test_dialogues_page import read
from tests.view.conftest import HOSTILE

TEMPLATES = [one for one in files("sweet.results").joinpath("templates").iterdir() if one.name.endswith(".j2")]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda one: one.name)
def test_no_template_marks_anything_as_safe(template: object) -> None:
    content = template.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert "|safe" not in content.replace(" ", "")
    assert "autoescape" not in content


@given(st.text() | st.just(HOSTILE) | st.text(st.sampled_from("<>&\"'`|[]()*_@\x1b\u202e\n\\x")))
def test_any_text_is_one_line_of_text(content: str) -> None:
    assert "".join(read(f"<p>{line(content)}</p>").text.get("p", [])) == printable_line(content)
    assert set(read(f"<pre>{text(content)}</pre>").tags) == {"pre"}


def test_values_of_a_markdown_text_are_escaped() -> None:
    shown = _markdown().from_string("{{ value }}").render(value=HOSTILE)
    assert "\x1b" not in shown
    assert "<script" not in MarkdownIt("commonmark").enable("table").render(shown)
    assert code(HOSTILE) not in shown, "a sentence is no code span"
