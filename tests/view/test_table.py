"""The columns that fit, and their content."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sweet.view.records import Summary
from sweet.view.table import GAP, NAME, Layout, fitted, needs_of
from tests.view.app.summaries import summary
from tests.view.conftest import HOSTILE


def titles(layout: Layout) -> list[str]:
    return [column.title for column, _ in layout.columns]


def of(summaries: list[Summary], width: int) -> Layout:
    return Layout.of(needs_of(summaries), width)


LONG = summary(id="micro-test-0007-s0-r0", task_id="micro-test-0007")


def test_all_columns_with_something_to_say_fit_on_80() -> None:
    assert titles(of([LONG], 76)) == ["outcome", "reward", "tests", "turns", "tokens", "seconds", "dialogue"]


def test_what_matters_least_goes_first() -> None:
    assert titles(of([LONG], 50)) == ["outcome", "reward", "tests", "dialogue"]
    assert titles(of([LONG], 36)) == ["outcome", "reward", "dialogue"]
    assert titles(of([LONG], 20)) == ["outcome", "dialogue"]


def test_a_column_without_values_is_omitted() -> None:
    unscored = summary(outcome=None, reward=None, total=None, tokens=None, seconds=None)
    assert titles(of([unscored], 76)) == ["outcome", "turns", "dialogue"]
    assert titles(of([], 76)) == ["dialogue"]


def test_a_fault_and_a_task_that_the_id_does_not_tell_have_columns() -> None:
    odd = summary(id="t1", task_id="parking", fault="refusal")
    assert titles(of([odd], 100))[-3:] == ["fault", "task", "dialogue"]


def test_the_arrow_is_at_the_sorted_column() -> None:
    layout = of([LONG], 76)
    assert "reward▲" in layout.header("reward", False).plain
    assert "reward▼" in layout.header("reward", True).plain
    assert "▲" not in layout.header("order", False).plain, "in the order of the file"
    assert "dialogue▼" in layout.header("order", True).plain


@given(st.integers(1, 120), st.text(max_size=80), st.booleans())
def test_every_line_has_the_cells_it_is_given(width: int, name: str, scored: bool) -> None:
    row = summary(id=name or "t", outcome="passed" if scored else None, fault="refusal")
    layout = of([row, LONG], width)
    assert {cell_len(layout.row(row).plain), cell_len(layout.header("reward", True).plain)} == {
        sum(cells + GAP for _, cells in layout.columns)
    }
    assert width < 20 or sum(cells + GAP for _, cells in layout.columns) - GAP <= width


@given(st.text(max_size=40), st.integers(1, 40), st.booleans())
def test_fitted(text: str, width: int, right: bool) -> None:
    assert cell_len(fitted(text.replace("\0", ""), width, right=right)) == width


def test_a_truncated_id_keeps_its_distinctive_end() -> None:
    assert fitted("micro-test-0007-s0-r0", 16) == "micro…0007-s0-r0"


def test_nothing_of_a_model_reaches_the_terminal_as_it_is() -> None:
    row = of([summary(id=HOSTILE, task_id=HOSTILE)], 300).row(summary(id=HOSTILE, task_id="x"))
    assert "\x1b" not in row.plain
    assert "[bold]x[/bold]" in row.plain, "and markup-like text is unchanged"
    assert not any("bold" in str(span.style) for span in row.spans)


@pytest.mark.parametrize("shown", [summary(reward=-0.25), summary(tokens=1234567, seconds=4321.98)])
def test_figures_are_not_cut(shown: Summary) -> None:
    assert "…" not in of([shown], 100).row(shown).plain


def test_whole_yields_the_columns_that_are_not_truncated() -> None:
    layout = of([LONG], 36)
    assert NAME not in layout.whole(LONG)
    assert NAME in layout.whole(summary(id="short"))
