"""Filters and order, and the filter as a line of words."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.view.records import Summary
from sweet.view.selection import EXAMPLE, Filter, describe, parse, passes
from sweet.view.table import COLUMNS, SORT_KEYS, sort_rows


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
        "offset": number,
        "length": 1,
    }
    return Summary(**{**fields, **changes})


@pytest.mark.parametrize(
    ("filter", "passing"),
    [
        (Filter(), True),
        (Filter(outcomes=frozenset({"failed"})), True),
        (Filter(outcomes=frozenset({"answered", "timeout"})), True),
        (Filter(outcomes=frozenset({"passed"})), False),
        (Filter(task="task-0"), True),
        (Filter(task="*-0"), True),
        (Filter(task="task"), False),
        (Filter(reward_below=0.5), False),
        (Filter(reward_above=0.4, reward_below=0.6), True),
        (Filter(fault="*"), False),
        (Filter(change="solved"), False),
        (Filter(text="searched elsewhere"), True),
    ],
)
def test_a_filter(filter: Filter, passing: bool) -> None:
    assert passes(summary(), filter) is passing


def test_faults_and_unknown_rewards() -> None:
    assert passes(summary(fault="refusal"), Filter(fault="ref*"))
    assert not passes(summary(reward=None), Filter(reward_below=2))


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


@given(SUMMARIES, st.sampled_from(SORT_KEYS), st.booleans())
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
REWARDS = st.none() | st.floats(allow_nan=False)


@given(
    st.builds(
        Filter,
        outcomes=st.frozensets(NAMES),
        task=st.none() | NAMES,
        fault=st.none() | NAMES,
        reward_below=REWARDS,
        reward_above=REWARDS,
        change=st.none() | st.sampled_from(["solved", "lost"]),
        text=st.sampled_from(["", "rounded down", 'it\'s "odd"', "a=b reward"]),
    )
)
def test_parse_and_describe_are_inverses(filter: Filter) -> None:
    assert parse(describe(filter)) == filter


def test_words() -> None:
    assert parse("") == Filter()
    assert parse("  reward<0.5  every outcome=failed,error fault=* day ") == Filter(
        outcomes=frozenset({"failed", "error"}), reward_below=0.5, fault="*", text="every day"
    )
    assert parse(EXAMPLE).text == "any text"


@pytest.mark.parametrize("line", ["reward<", "reward>x", "reward<nan", "change=grown"])
def test_a_wrong_value_is_refused_with_a_right_one(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert caught.value.fix
