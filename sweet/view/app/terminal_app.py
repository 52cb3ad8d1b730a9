"""What the viewer and `sweet play` have in common: they draw in the terminal's colours, and faint text can be read.

A terminal mixes faint text with its background. The terminal in the page of a browser (xterm.js) does so twice, and on
black a quarter of white is left. There faint text is drawn in a grey of its own, and what has a colour keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter

THEME = "ansi-dark"
"""The terminal's own colours, which are readable on dark and light terminals."""
GREY = Style(color="#949494", dim=False)
"""Faint text on black: a contrast of 7 to 1."""


@lru_cache(1024)
def _readable(style: Style) -> Style:
    plain = style.color is None or style.color.is_default
    return style + (GREY if plain else Style(dim=False))


class ReadableFaintText(LineFilter):
    """Draws faint text in a grey, for a terminal that is black."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(one.text, _readable(one.style), one.control) if one.style is not None and one.style.dim else one
            for one in segments
        ]


class TerminalApp(App[None]):
    """An application in the terminal's own colours, without animations."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self) -> None:
        super().__init__(ansi_color=True)  # set before the theme: otherwise NO_COLOR would give black on black
        self.theme = THEME
        self.animation_level = "none"
        self._faint = ReadableFaintText()

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return [*filters, self._faint] if self.is_web and not self.no_color else filters
