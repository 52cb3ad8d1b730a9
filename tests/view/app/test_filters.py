"""The filter as a line of words."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.view.app.filters import EXAMPLE, describe, parse
from sweet.view.selection import Filter

NAMES = st.text(string.ascii_lowercase + "_", min_size=1, max_size=10)
REWARDS = st.none() | st.floats(allow_nan=False)


@given(
    st.builds(
        Filter,
        outcomes=st.frozensets(NAMES),
        task=st.none() | st.text(min_size=1, max_size=20),
        reward_below=REWARDS,
        reward_above=REWARDS,
        faults=st.booleans(),
    )
)
def test_parse_and_describe_are_inverses(filter: Filter) -> None:
    assert parse(describe(filter)) == filter


def test_words() -> None:
    assert parse("") == Filter()
    assert parse("  reward<0.5   outcome=failed,error fault task='a b*' ") == Filter(
        outcomes=frozenset({"failed", "error"}), task="a b*", reward_below=0.5, faults=True
    )
    assert parse(EXAMPLE).faults


@pytest.mark.parametrize("line", ["failed", "reward=1", "reward<", "reward>x", "reward<nan", "outcome=", "task=", "'"])
def test_what_is_no_filter_is_refused_with_what_is_one(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert caught.value.fix
