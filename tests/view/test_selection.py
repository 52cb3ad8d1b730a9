"""Filters and order, and the filter as a line of words."""

from __future__ import annotations

import string
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.view.records import Summary
from sweet.view.selection import EXAMPLE, Filter, describe, parse, passes
from sweet.view.table import COLUMNS, SortKey, sort_rows


def summary(number: int = 0, **changes: Any) -> Summary:
    fields: dict[str, Any] = {
        "id": f"t{number}",
        "task_id": f"task-{number}",
        "ended": "answered",
        "outcome": "failed",
        "reward": 0.5,
        "passed": 1,
        "total": 2,
        "turns": 3,
        "tokens": 10,
        "seconds": 1.0,
        "fault": "",
        "sample": 0,
        "seed": 0,
    }
    return Summary(**{**fields, **changes})


@pytest.mark.parametrize(
    ("filter", "passing"),
    [
        ("", True),
        ("outcome=failed", True),
        ("outcome=answered,timeout", True),
        ("outcome=passed", False),
        ("task=task-0", True),
        ("task=*-0", True),
        ("task=task", False),
        ("reward<0.5", False),
        ("reward>0.4 reward<0.6", True),
        ("fault=*", False),
        ("change=solved", False),
        ("searched elsewhere", True),
    ],
)
def test_a_filter(filter: str, passing: bool) -> None:
    assert passes(summary(), parse(filter)) is passing


def test_faults_and_unknown_rewards() -> None:
    assert passes(summary(fault="refusal"), parse("fault=ref*"))
    assert not passes(summary(reward=None), parse("reward<2"))


SUMMARIES = st.lists(
    st.builds(
        summary,
        st.integers(0, 99),
        reward=st.none() | st.floats(0, 1),
        tokens=st.none() | st.integers(0, 9),
        fault=st.sampled_from(["", "echo", "deadline"]),
        outcome=st.none() | st.sampled_from(["passed", "failed"]),
    ),
    max_size=12,
)


@given(SUMMARIES, st.sampled_from(get_args(SortKey)), st.booleans())
def test_order_loses_nothing_and_leaves_equals_as_they_are(found: list[Summary], key: Any, reverse: bool) -> None:
    ordered: Any = sort_rows(found, COLUMNS, key, reverse)
    assert sorted(map(id, ordered)) == sorted(map(id, found))
    if key == "reward":
        known = [s.reward for s in ordered if s.reward is not None]
        assert known == sorted(known, reverse=reverse)
        assert all(s.reward is None for s in ordered[len(known) :])
    if key != "order":
        assert sort_rows(ordered, COLUMNS, key, reverse) == ordered


NAMES = st.text(string.ascii_lowercase + "_", min_size=1, max_size=10)
REWARDS = st.floats(allow_nan=False).map(str)
CONDITIONS: dict[Any, Any] = {
    "outcome=": st.lists(NAMES, min_size=1).map(",".join),
    "task=": NAMES,
    "fault=": NAMES,
    "reward<": REWARDS,
    "reward>": REWARDS,
    "change=": st.sampled_from(["solved", "lost"]),
}


@given(
    st.builds(
        Filter,
        conditions=st.fixed_dictionaries({}, optional=CONDITIONS),
        text=st.sampled_from(["", "rounded down", 'it\'s "odd"', "a=b reward"]),
    )
)
def test_parse_and_describe_are_inverses(filter: Filter) -> None:
    assert parse(describe(filter)) == filter


def test_words() -> None:
    assert parse("") == Filter()
    assert parse("  reward<0.5  every outcome=failed,error fault=* day ") == Filter(
        {"reward<": "0.5", "outcome=": "failed,error", "fault=": "*"}, "every day"
    )
    assert parse(EXAMPLE).text == "any text"


@pytest.mark.parametrize("line", ["reward<", "reward>x", "reward<nan", "change=grown"])
def test_a_wrong_value_is_refused_with_a_right_one(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert caught.value.fix
