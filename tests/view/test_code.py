"""Markdown and code of models have styles, and no part of them is lost, hidden, interpreted or made a link."""

from __future__ import annotations

import re
import time
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from sweet.results.dialogue import COLOURED, coloured
from sweet.results.pages import line
from sweet.view.code import Code, Fragment, fragments, highlighted, prose, tokens
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


LANGUAGES = ("python", "html", "sql", "text", "no such language")


@given(st.text() | st.text("def ‹›<&>\"'\n\t\r\\`x1#-/*"), st.sampled_from(LANGUAGES))
def test_nothing_of_it_is_changed(code: str, language: str) -> None:
    assert "".join(part for _, part in tokens(printable(code), language)) == printable(code)
    html = coloured(Fragment(code, language))
    assert unescape(re.sub(r'</?span[^<>"]*(?:"[a-z]+")?>', "", html)) == printable(code)


@pytest.mark.parametrize(
    ("language", "code", "spans"),
    [
        ("python", 'def f(x):\n    return "<b>" + 1  # no', [("keyword", "def"), ("name", "f"), ("comment", "# no")]),
        ("html", '<a href="x">', [("keyword", "a"), ("name", "href"), ("string", '"x"')]),
        ("sql", "SELECT 1", [("keyword", "SELECT"), ("number", "1")]),
    ],
)
def test_what_has_a_colour(language: str, code: str, spans: list[tuple[str, str]]) -> None:
    html = coloured(Fragment(code, language))
    for kind, part in spans:
        assert f'<span class="{kind}">{line(part)}</span>' in html


def test_long_code_has_no_colours() -> None:
    assert "<span" not in coloured(Fragment("def " * COLOURED, "python"))


@given(MARKDOWN | st.just(HOSTILE), st.integers(8, 120))
def test_nothing_is_lost_linked_or_wider_than_the_terminal(text: str, width: int) -> None:
    shown = prose(text, "python")
    lines = drawn(shown, width).splitlines()
    assert visible("".join(lines)) == visible(printable(text))
    assert all(cell_len(line) <= width for line in lines)
    check_segments(shown, width)


@pytest.mark.parametrize("language", ["python", "html", "sql", "json", "no such language"])
@given(MARKDOWN)
def test_highlighting_loses_nothing_either(language: str, text: str) -> None:
    assert visible(highlighted(text, language).plain) == visible(printable(text))


def test_what_is_styled() -> None:
    text = "# Title\n1. **bold** and `code` and *so*\n- item [here](http://x.example)"
    shown = drawn(prose(text, ""), color=True)
    for styled in ("\x1b[1m# Title", "\x1b[1m1.", "\x1b[1m**bold**", "\x1b[36m`code`", "\x1b[1m-"):
        assert styled in shown
    assert "[here](http://x.example)" in shown


def test_a_line_of_code_is_parted_where_the_room_ends() -> None:
    shown = drawn(Code(highlighted("x = one_long_name + 世界世界\n\ty", "python")), 11).splitlines()
    assert [line.rstrip() for line in shown] == ["x = one_lon", "g_name + 世", "界世界", "    y"]


def test_a_fence_may_name_a_language_that_is_known_and_no_other() -> None:
    text = "```sql\nSELECT 1\n```\n```brainfuck\n+\n```\n```\nx\n```"
    languages = [one.language for one in fragments(text, "python", whole=False)]
    assert [language for language in languages if language] == ["sql", "text", "python"]
    assert [one.language for one in fragments("```\nx\n```", "", whole=False)] == ["", "text", ""]


@pytest.mark.parametrize(
    "text",
    [
        "`" * 50_000,
        "*" * 50_000,
        "[" * 50_000,
        "> " * 25_000,
        "**a" * 15_000,
        "[a](" * 499,
        "`a\n" * 9_000,
        "```a\n" * 9_000,
    ],
)
def test_hostile_markdown_costs_no_time(text: str) -> None:
    before = time.process_time()
    drawn(prose(text, "python"))
    assert time.process_time() - before < 2
