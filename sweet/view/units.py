"""Quantities in the unit that suits them, for the terminal and for pages."""

from __future__ import annotations


def format_bytes(count: float) -> str:
    """Return a number of bytes with three digits or so: `436 MB`, `1.2 GB`."""
    if count < 1000:
        return f"{count:.0f} B"
    power = next((power for power in (1, 2) if count < 999.5 * 1000**power), 3)
    shown = count / 1000**power
    return f"{shown:,.0f} {'kMG'[power - 1]}B" if shown >= 99.95 else f"{shown:,.1f} {'kMG'[power - 1]}B"
