"""Show two dialogues of a task side by side in parts: aligned turns, and the differences of their answers and tests.

The first is A, the second B. Equal texts are shown once; on a narrow terminal A is shown above B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from itertools import zip_longest

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

from sweet.tasks.base import with_calls
from sweet.tasks.trajectory import Turn
from sweet.view.code import Code
from sweet.view.credit_view import bar, grid, rewards_note
from sweet.view.dialogue_view import DisplayOptions, calls_part, head, headline, reply, result_part, unit_tests
from sweet.view.parts import INDENT, Indented, Part, Pictures
from sweet.view.records import Record
from sweet.view.run_screenshots import RunScreenshots
from sweet.view.text import VERDICTS, printable, printable_line

MIN_COLUMNS = 72
"""Columns below which A is shown above B."""
CONTEXT = 3
"""Common lines that are shown around a change."""
COMPARED_PAIRS = 2_000_000
"""Most pairs of lines to compare; of longer texts all lines count as changed."""
SIGNS = {"-": "red", "+": "green", " ": "", "⋯": "dim"}
"""Styles of the lines of a difference: only in A, only in B, common, and where common lines are left out."""


@dataclass(frozen=True)
class TwoColumns:
    """Two renderables side by side, or stacked with the letters A and B; `lettered` adds them to both layouts."""

    left: RenderableType | None
    right: RenderableType | None
    lettered: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sides = {"A": self.left, "B": self.right}
        if options.max_width < MIN_COLUMNS:
            yield from (_lettered(name, side) for name, side in sides.items() if side is not None)
            return
        table = Table(
            Column(ratio=1), Column(ratio=1),
            box=box.MINIMAL, border_style="dim", show_header=False, show_edge=False, pad_edge=False, expand=True,
        )  # fmt: skip
        table.add_row(*(_lettered(name, side or "") if self.lettered else side or "" for name, side in sides.items()))
        yield table


def _lettered(name: str, side: RenderableType) -> Table:
    table = grid(2)
    table.add_row(Text(name, "bold"), side)
    return table


def side_by_side_parts(
    left: Record, right: Record, options: DisplayOptions, screenshots: RunScreenshots | None = None
) -> list[Part]:
    """Return the parts of two dialogues of a task.

    Args:
        screenshots: of the right one, if it is of another run.
    """
    heads = [Group(Text("  ").join(headline(record)), head(record)) for record in (left, right)]
    both = Indented(TwoColumns(heads[0], heads[1], lettered=True), INDENT)
    parts = [Part("head", Text(), lambda: both)]
    number = 0
    turns = zip_longest(left.trajectory.dialogue_history, right.trajectory.dialogue_history)
    for index, (turn_a, turn_b) in enumerate(turns):
        present = [turn for turn in (turn_a, turn_b) if turn is not None]
        agent = present[0].role != "user"
        number += present[0].role == "assistant"
        title = Text(f"agent {number}", "bold green") if agent else Text("human", "bold cyan")
        same = len(present) == 2 and _compared(present[0]) == _compared(present[1])
        bars = [_bar(left, index), _bar(right, index)]
        body: Callable[[], RenderableType] = partial(_turns, turn_a, turn_b, bars, options, same=same)
        size = max(len(turn.said) for turn in present)
        note = "the same" if same else ""
        parts.append(Part("agent" if agent else "human", title, body, index, note, size, differs=not same))
    answers = left.trajectory.answer, right.trajectory.answer
    differs = answers[0] != answers[1]
    note, size = "- A, + B" if differs else "the same", sum(map(len, answers))
    body = partial(_difference, *answers)
    parts.append(Part("answer", Text("answers", "bold magenta"), body, note=note, characters=size, differs=differs))
    if options.screenshots is not None:
        find = partial(last_pages, left, right, options.screenshots, screenshots or options.screenshots)
        parts.append(Part("screenshots", Text("screenshots", "bold magenta"), pictures=find))
    tests = [unit_tests(record) for record in (left, right)]
    if all(tests):
        differs = [test.passed for test in tests[0]] != [test.passed for test in tests[1]]
        body = partial(_tests, left, right)
        parts.append(Part("tests", Text("unit tests", "bold magenta"), body, differs=differs))
    return parts


def difference(left: str, right: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of `diff -u`, each with its sign."""
    a, b = left.split("\n"), right.split("\n")
    if len(a) * len(b) > COMPARED_PAIRS:
        yield from (("-", line) for line in a)
        yield from (("+", line) for line in b)
        return
    for number, line in enumerate(unified_diff(a, b, n=CONTEXT, lineterm="")):
        if line.startswith("@@"):
            if int(line.split()[1].partition(",")[0]) < -1:  # `@@ -7,3 +9,2 @@`: six lines before it are left out
                yield "⋯", ""
        elif number > 1:  # after the names of both files
            yield line[0], line[1:]


def _turns(
    left: Turn | None, right: Turn | None, bars: list[Text | None], options: DisplayOptions, *, same: bool
) -> RenderableType:
    replies = _content(left, options) if same else TwoColumns(_content(left, options), _content(right, options))
    return Group(TwoColumns(bars[0], bars[1]), replies or "") if any(bars) else replies or ""


def _content(turn: Turn | None, options: DisplayOptions) -> RenderableType | None:
    if turn is None:
        return None
    if turn.role == "user":
        return options.text(turn.content)
    inner = [result_part(0, turn)] if turn.role == "tool" else calls_part(0, turn)
    return Group(*([reply(turn, options)] if turn.role == "assistant" else []), *inner)


def _compared(turn: Turn) -> tuple[str, str]:
    return turn.role, with_calls(turn.said, turn.tool_calls)


def _bar(record: Record, index: int) -> Text | None:
    """Return what is known of the worth of a turn: its advantage and its rewards; None without any."""
    advantage, rewards = record.advantage(index), record.trajectory.turn_rewards.get(index)
    notes = [] if advantage is None else [bar(advantage, record.scale)]
    notes += [Text(rewards_note(rewards), "dim")] if rewards else []
    return Text("  ").join(notes) if notes else None


def _difference(left: str, right: str) -> RenderableType:
    if left == right:
        return Code(Text(printable(left)))
    return Group(*(Code(Text(f"{sign} {printable(line)}", SIGNS[sign])) for sign, line in difference(left, right)))


def last_pages(left: Record, right: Record, of_left: RunScreenshots, of_right: RunScreenshots) -> Pictures:
    """Return the pictures of the last pages and of the reference page, with titles."""
    return [
        ("A", of_left.page_picture(left.trajectory.answer)),
        ("B", of_right.page_picture(right.trajectory.answer)),
        ("the reference page", of_left.page_picture(left.trajectory.task.ground_truth)),
    ]


def _tests(left: Record, right: Record) -> Table:
    """Return a table with one row per test: the verdicts on A and on B, and the call."""
    table = grid(3)
    table.add_row(Text("A", "bold"), Text("B", "bold"), "")
    for test_a, test_b in zip(unit_tests(left), unit_tests(right), strict=False):
        verdicts = [Text(*VERDICTS[test.passed]) for test in (test_a, test_b)]
        call = Text(printable_line(test_a.call))
        for name, test in (("A", test_a), ("B", test_b)):
            if test.failure:
                call.append(f"\n{name} {printable_line(test.failure)}", "dim")
        table.add_row(*verdicts, call)
    return table
