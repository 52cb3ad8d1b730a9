"""What was meant by a word that nobody knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.suggestions import did_you_mean, nearest


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("rolout", ["rollout", "rank"], "rollout"),
        ("ROLLOUT", ["rollout", "rank"], "rollout"),
        ("--num-task", ["--num-tasks", "--new"], "--num-tasks"),
        ("col", ["micro", "colbench"], "colbench"),
        ("score-2", ["scores-1", "scores-2"], "scores-2"),
        ("xyzzy", ["rollout", "rank"], None),
        ("", ["rollout"], None),
        ("rollout", [], None),
    ],
)
def test_the_nearest_word(word: str, known: list[str], meant: str | None) -> None:
    assert nearest(word, known) == meant
    assert did_you_mean(word, known, "--") == (f" Did you mean --{meant}?" if meant else "")


@given(st.text(), st.lists(st.text()))
def test_it_is_always_one_of_those_known(word: str, known: list[str]) -> None:
    assert nearest(word, known) in [None, *known]
