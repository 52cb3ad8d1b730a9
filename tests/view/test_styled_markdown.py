"""Markdown of models is styled, and no part of it is lost, hidden, interpreted or made a link."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from sweet.view.code import Code, highlighted, pieces
from sweet.view.parts import prose
from sweet.view.styled_markdown import markdown
from sweet.view.text import printable
from tests.view.conftest import HOSTILE
from tests.view.test_terminal import drawn

MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# ", "## ", "- ", "* ", "1. ", "> ", "> > ", "    ", "\n", "\n\n", "`", "```", "```python\n", "~~~", "**",
            "__", "*", "_", "[x](https://evil.example/a)", "![alt](x.png)", "[a]: https://b.example", "<!-- hidden -->",
            "<a href='x'>y</a>", "<details>", "| a | b |\n|---|---|\n", "|", "---\n", "&lt;", "\\", "word", " ", "世界",
            "\x1b]8;;https://evil.example\x07", "\x1b[31m", "\u202e", "def f(x):\n    return x\n", "\t", "\r\n",
        ]
    )
    | st.text(max_size=5),
    max_size=40,
).map("".join)  # fmt: skip


def visible(text: str) -> str:
    return "".join(text.split())


def check_segments(renderable: RenderableType, width: int) -> None:
    """Check that there are no links or other metadata that a terminal or Textual acts on."""
    console = Console(width=width, force_terminal=True, color_system="truecolor")
    for segment in console.render(renderable, console.options.update_width(width)):
        assert segment.control is None
        assert segment.style is None or (segment.style.link is None and not segment.style.meta)


@given(MARKDOWN | st.just(HOSTILE))
def test_styling_changes_no_character(text: str) -> None:
    assert markdown(text).text.plain == printable(text)


@given(MARKDOWN | st.just(HOSTILE), st.integers(8, 120))
def test_nothing_is_lost_linked_or_wider_than_the_terminal(text: str, width: int) -> None:
    blocks = [block.make() for block in prose(text, "python")]
    lines = [line for block in blocks for line in drawn(block, width).splitlines()]
    assert visible("".join(lines)) == visible(printable(text))
    assert all(cell_len(line) <= width for line in lines)
    for block in blocks:
        check_segments(block, width)


@pytest.mark.parametrize("language", ["python", "html", "sql", "json", "no such language"])
@given(MARKDOWN)
def test_highlighting_loses_nothing_either(language: str, text: str) -> None:
    assert visible(highlighted(text, language).plain) == visible(printable(text))


def test_what_is_styled() -> None:
    text = markdown("# Title\n1. **bold** and `code` and *so*\n[here](http://x.example) ![p](y.png)").text
    styled = {(text.plain[span.start : span.end], span.style) for span in text.spans}
    assert styled >= {
        (" Title", "bold"),
        ("1. ", "bold"),
        ("bold", "bold"),
        ("code", "cyan"),
        ("so", "italic"),
        ("here", "underline"),
        ("http://x.example", "blue"),
        ("y.png", "blue"),
    }


def test_a_wrapped_list_item_is_indented() -> None:
    shown = drawn(markdown("- one two three\n12. four five six"), 12).splitlines()
    assert [line.rstrip() for line in shown] == ["- one two", "  three", "12. four", "    five six"]


def test_a_line_of_code_is_parted_where_the_room_ends() -> None:
    shown = drawn(Code(highlighted("x = one_long_name + 世界世界\n\ty", "python")), 11).splitlines()
    assert [line.rstrip() for line in shown] == ["x = one_lon", "g_name + 世", "界世界", "    y"]


def test_a_fence_may_name_a_language_that_is_known_and_no_other() -> None:
    text = "```sql\nSELECT 1\n```\n```brainfuck\n+\n```\n```\nx\n```"
    assert [piece.language for piece in pieces(text, "python", whole=False) if piece.language] == [
        "sql",
        "text",
        "python",
    ]
    assert [piece.language for piece in pieces("```\nx\n```", "", whole=False)] == ["", "text", ""]


@pytest.mark.parametrize(
    "text",
    ["`" * 50_000, "*" * 50_000, "[" * 50_000, "> " * 25_000, "**a" * 15_000, "[a](" * 499, "`a\n" * 9_000],
)
def test_hostile_markdown_costs_no_time(text: str) -> None:
    before = time.process_time()
    for block in prose(text, "python"):
        drawn(block.make())
    assert time.process_time() - before < 2
