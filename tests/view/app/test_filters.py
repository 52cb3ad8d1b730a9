"""The filter as words."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.view.app.filters import EXAMPLE, parsed, told
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
def test_told_and_parsed_are_inverse(filter: Filter) -> None:
    assert parsed(told(filter)) == filter


def test_words() -> None:
    assert parsed("") == Filter()
    assert parsed("  reward<0.5   outcome=failed,error fault task='a b*' ") == Filter(
        outcomes=frozenset({"failed", "error"}), task="a b*", reward_below=0.5, faults=True
    )
    assert parsed(EXAMPLE).faults


@pytest.mark.parametrize("line", ["failed", "reward=1", "reward<", "reward>x", "reward<nan", "outcome=", "task=", "'"])
def test_what_is_no_filter_is_refused_with_what_is_one(line: str) -> None:
    with pytest.raises(UsageError) as told:
        parsed(line)
    assert told.value.fix
