"""A diff contains both texts, marks the differences, and is fast for any texts."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sweet.view.diff import CONTEXT, DiffLine, diff, in_context
from tests.view.conftest import HOSTILE
from tests.view.test_terminal import ESCAPES, drawn

TEXTS = st.lists(st.sampled_from(["", "a", "b", "x = 1", "x = 2", "  return x", HOSTILE])).map("\n".join) | st.text()


def side(lines: list[DiffLine], signs: str) -> str:
    return "\n".join(line.text for line in lines if line.sign in signs)


@given(TEXTS, TEXTS)
def test_both_texts_are_in_it(left: str, right: str) -> None:
    lines = diff(left, right)
    assert side(lines, " -") == left
    assert side(lines, " +") == right
    assert (left == right) == all(line.sign == " " for line in lines)


@given(TEXTS, TEXTS)
def test_only_common_lines_are_omitted(left: str, right: str) -> None:
    lines = diff(left, right)
    shown = in_context(lines)
    assert [line for line in shown if line.sign in "+-"] == [line for line in lines if line.sign in "+-"]
    result = [int(line.text.split()[0].replace(",", "")) for line in shown if line.sign == "@"]
    assert sum(result) + sum(line.sign != "@" for line in shown) == len(lines)


@given(TEXTS, TEXTS, st.integers(8, 100))
def test_no_text_reaches_the_terminal_as_more_than_text(left: str, right: str, width: int) -> None:
    for line in diff(left, right):
        shown = drawn(line, width, color=True)
        plain = ESCAPES.sub("", shown)
        assert not any(unicodedata.category(char) in {"Cc", "Cf"} and char != "\n" for char in plain)
        assert all(cell_len(row) <= width for row in plain.splitlines())


def test_what_it_looks_like() -> None:
    common = [f"line {n}" for n in range(10)]
    lines = in_context(diff("\n".join([*common, "x = min(x, 90)"]), "\n".join([*common, "x = min(x, 80)", "more"])))
    assert [line.sign for line in lines] == ["@", *" " * CONTEXT, "-", "+", "+"]
    assert lines[0].text == "7 common lines"
    assert [line.text[start:end] for line in lines for start, end in line.changed] == ["90", "80"]
    text = "".join(drawn(line, 30, color=True) for line in lines)
    assert "\x1b[1;4;31m90" in text
    assert "- x = min(x, 90)" in ESCAPES.sub("", text)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("\n".join(map(str, range(20_000))), "\n".join(map(str, range(20_000, 0, -1)))),
        ("a\nb\n" * 10_000, "b\na\n" * 10_000),
        ("a\n" * 700 + "b", "c\n" + "a\n" * 700),
        ("x " * 50_000, "y " * 50_000),
    ],
)
def test_hostile_texts_cost_no_time(left: str, right: str) -> None:
    before = time.process_time()
    lines = diff(left, right)
    assert time.process_time() - before < 2
    assert side(lines, " -") == left
