"""Quantities in the unit that suits them."""

from __future__ import annotations

import pytest

from sweet.view.units import format_bytes


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (99_960, "100 kB"),
        (999_400, "999 kB"),
        (999_600, "1.0 MB"),
        (436_000_000, "436 MB"),
        (1.25e9, "1.2 GB"),
        (3e13, "30,000 GB"),
    ],
)
def test_bytes_in_the_unit_that_suits_them(count: float, shown: str) -> None:
    assert format_bytes(count) == shown
