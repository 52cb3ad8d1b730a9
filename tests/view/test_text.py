"""No character that a terminal executes or hides remains in a text."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.view.text import printable, printable_json, printable_line

ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Includes lone surrogates, which hypothesis excludes by default."""

HOSTILE = st.lists(
    st.sampled_from(
        ["\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\r", "\b", "\u202e", "\u200b", "\ud800", " ", "ok", "\n\t"]
    )
).map("".join)


def obeyed_or_hidden(char: str) -> bool:
    return char not in "\n\t" and unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(ANY_TEXT | HOSTILE)
def test_nothing_unseen_is_left(text: str) -> None:
    shown = printable(text)
    assert not any(obeyed_or_hidden(char) for char in shown)
    assert all(byte >= 0x20 or byte in (0x0A, 0x09) for byte in shown.encode())
    assert not any(0x7F <= ord(char) <= 0x9F for char in shown)


@given(ANY_TEXT | HOSTILE)
def test_idempotent_and_one_mark_for_each_character(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    assert shown.count("\n") == text.count("\n")
    assert len(shown) >= len(text)


@given(ANY_TEXT)
def test_a_line_is_one_line(text: str) -> None:
    assert len(printable_line(text).splitlines()) <= 1


def test_every_character_there_is() -> None:
    """All others stay as they are, or become marks of these."""
    found = [char for char in map(chr, range(sys.maxunicode + 1)) if obeyed_or_hidden(char)]
    assert len(found) > 2000
    for char in found:
        assert not any(map(obeyed_or_hidden, printable(char)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "␛[31mred"),
        ("\x1b]52;c;cm0=\x07", "␛]52;c;cm0=␇"),
        ("a\x9bJ", "a‹U+009B›J"),
        ("x = 1 \u202e# lla", "x = 1 ‹U+202E›# lla"),
        ("one\ttwo\nthree\r\n", "one\ttwo\nthree␍\n"),
        ("\x7f\x00", "␡␀"),
        ("Grüße, 世界 🙂 [bold]", "Grüße, 世界 🙂 [bold]"),
        ("a\u3164b\uffa0\u115f\u2800", "a‹U+3164›b‹U+FFA0›‹U+115F›‹U+2800›"),
        ("x\u034f\u180b\U000e0041", "x‹U+034F›‹U+180B›‹U+E0041›"),
        ("e" + "\u0301" * 8 + "x", "e" + "\u0301" * 6 + "‹U+0301›" * 2 + "x"),
        ("ก" + "\u0e47" * 7, "ก" + "\u0e47" * 6 + "‹U+0E47›"),
        ("Vie\u0302\u0323t, שָׁלוֹם, हिन्दी, ❤️", "Vie\u0302\u0323t, שָׁלוֹם, हिन्दी, ❤️"),
    ],
)
def test_how_it_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.dictionaries(HOSTILE, st.lists(ANY_TEXT | HOSTILE)))
def test_json_for_a_terminal_has_the_same_value_and_nothing_that_a_terminal_obeys(value: dict[str, list[str]]) -> None:
    for indent in (None, 2):
        shown = printable_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(shown) == value
        assert not any(obeyed_or_hidden(char) for char in shown)


def test_json_without_such_characters_is_unchanged() -> None:
    text = json.dumps({"name": "Ünïcödé", "lines": ["a\tb", "c\n"]}, ensure_ascii=False, indent=2)
    assert printable_json(text) == text
