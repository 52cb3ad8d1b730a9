"""Code on an HTML page has colours and is otherwise unchanged."""

from __future__ import annotations

import re
from html import escape, unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.view.code import Piece, tokens
from sweet.view.text import printable
from sweet.view.transcript import COLOURED, coloured

LANGUAGES = ("python", "html", "sql", "text", "no such language")


@given(st.text() | st.text("def ‹›<&>\"'\n\t\r\\`x1#-/*"), st.sampled_from(LANGUAGES))
def test_nothing_of_it_is_changed(code: str, language: str) -> None:
    assert "".join(part for _, part in tokens(printable(code), language)) == printable(code)
    html = coloured(Piece(code, language))
    assert unescape(re.sub(r'</?span[^<>"]*(?:"[a-z]+")?>', "", html)) == printable(code)


@pytest.mark.parametrize(
    ("language", "code", "spans"),
    [
        ("python", 'def f(x):\n    return "<b>" + 1  # no', [("keyword", "def"), ("name", "f"), ("comment", "# no")]),
        ("html", '<a href="x">', [("keyword", "a"), ("name", "href"), ("string", '"x"')]),
        ("sql", "SELECT 1", [("keyword", "SELECT"), ("number", "1")]),
    ],
)
def test_what_has_a_colour(language: str, code: str, spans: list[tuple[str, str]]) -> None:
    html = coloured(Piece(code, language))
    for kind, part in spans:
        assert f'<span class="{kind}">{escape(part)}</span>' in html


def test_long_code_has_no_colours() -> None:
    assert "<span" not in coloured(Piece("def " * COLOURED, "python"))
