"""Show two trajectories of a task side by side in parts: aligned turns, and the differences of their answers and tests.

The first is A, the second B. Equal texts are shown once; on a narrow terminal A is shown above B.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from sweet.tasks.trajectory import Turn
from sweet.view.credit_view import bar
from sweet.view.dialogue_view import DisplayOptions, head, headline, reply
from sweet.view.diff import DiffLine, diff, in_context
from sweet.view.half_blocks import PictureRow
from sweet.view.parts import BLOCK, INDENT, Block, Indented, Part, single_block
from sweet.view.records import Record
from sweet.view.run_screenshots import Picture, RunScreenshots
from sweet.view.terminal import VERDICTS
from sweet.view.text import printable_line
from sweet.view.unit_tests import unit_tests

MIN_COLUMNS = 72
"""Columns below which A is shown above B."""
SEPARATOR = " │ "
LINES = 100
"""Lines of a diff in one block."""


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
        width = (options.max_width - len(SEPARATOR)) // 2
        lines = [
            console.render_lines(_lettered(name, side) if self.lettered else side, options.update_width(width))
            for name, side in ((name, side or "") for name, side in sides.items())
        ]
        blank = [Segment(" " * width)]
        for left, right in zip_longest(*lines):
            yield from left or blank
            yield Segment(SEPARATOR, Style(dim=True))
            yield from right or blank
            yield Segment.line()


def _lettered(name: str, side: RenderableType) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    table.add_row(Text(name, "bold"), side)
    return table


def side_by_side_parts(
    left: Record, right: Record, options: DisplayOptions, screenshots: RunScreenshots | None = None
) -> list[Part]:
    """Return the parts of two trajectories of a task. The body of a part is made when it is drawn.

    Args:
        screenshots: of the right one, if it is of another run.
    """
    heads = [Group(Text("  ").join(headline(record)), head(record)) for record in (left, right)]
    parts = [
        Part("head", Text(), single_block(lambda: Indented(TwoColumns(heads[0], heads[1], lettered=True), INDENT), 5))
    ]
    number = 0
    a, b = left.trajectory.dialogue_history, right.trajectory.dialogue_history
    for index, (turn_a, turn_b) in enumerate(zip_longest(a, b)):
        turn = turn_a or turn_b
        agent = turn is not None and turn.role == "assistant"
        number += agent
        title = Text(f"agent {number}", "bold green") if agent else Text("human", "bold cyan")
        same = turn_a is not None and turn_b is not None and turn_a.said == turn_b.said
        body = partial(_turns, left, right, index, options)
        size = max(len(turn.said) for turn in (turn_a, turn_b) if turn is not None)
        note = "the same" if same else ""
        parts.append(Part("agent" if agent else "human", title, body, index, note, size, differs=not same))
    answers = left.trajectory.answer, right.trajectory.answer
    note = "the same" if answers[0] == answers[1] else "- A, + B"
    body = partial(_diff, *answers, whole=options.raw)
    title, size, differs = Text("answers", "bold magenta"), sum(map(len, answers)), answers[0] != answers[1]
    parts.append(Part("answer", title, body, note=note, characters=size, differs=differs))
    if options.screenshots is not None:
        both = options.screenshots, screenshots or options.screenshots
        shots = single_block(lambda: PictureRow(last_pages(left, right, *both), both[0].draw), 20)
        parts.append(Part("screenshots", Text("screenshots", "bold magenta"), shots))
    if unit_tests(left) and unit_tests(right):
        table = single_block(lambda: _tests(left, right), 10)
        verdicts = [[test.passed for test in unit_tests(record)] for record in (left, right)]
        differs = verdicts[0] != verdicts[1]
        parts.append(Part("tests", Text("unit tests", "bold magenta"), table, differs=differs))
    return parts


def diff_text(left: Record, right: Record) -> str:
    """Return the diff of the answers as plain text."""
    lines = in_context(diff(left.trajectory.answer, right.trajectory.answer))
    return "\n".join(f"{line.sign} {line.text}" for line in lines)


def _turns(left: Record, right: Record, index: int, options: DisplayOptions) -> Iterator[Block]:
    turns = _turn(left, index), _turn(right, index)
    bars = _bar(left, index), _bar(right, index)
    if any(bars):
        yield Block(lambda: TwoColumns(*bars))
    if turns[0] is not None and turns[1] is not None and turns[0].said == turns[1].said:
        yield from _said(turns[0], options)
        return
    sides = [list(_said(turn, options)) for turn in turns]
    if sum(block.characters for side in sides for block in side) <= BLOCK:
        sides = [[_joined(side)] if side else [] for side in sides]
    for block_a, block_b in zip_longest(*sides):
        blocks = [block for block in (block_a, block_b) if block is not None]
        lines, characters = (max(getattr(block, size) for block in blocks) for size in ("lines", "characters"))
        yield Block(partial(_two_columns, block_a, block_b), lines, 2 * characters)


def _joined(blocks: list[Block]) -> Block:
    lines, characters = (sum(getattr(block, size) for block in blocks) for size in ("lines", "characters"))
    return Block(lambda: Group(*(block.make() for block in blocks)), lines, characters)


def _two_columns(left: Block | None, right: Block | None) -> TwoColumns:
    return TwoColumns(left.make() if left else None, right.make() if right else None)


def _turn(record: Record, index: int) -> Turn | None:
    turns = record.trajectory.dialogue_history
    return turns[index] if index < len(turns) else None


def _said(turn: Turn | None, options: DisplayOptions) -> Iterable[Block]:
    if turn is None:
        return ()
    return reply(turn, options) if turn.role == "assistant" else options.text(turn.content)


def _bar(record: Record, index: int) -> Text | None:
    advantage = record.advantage(index)
    return None if advantage is None else bar(advantage, record.scale)


def _diff(left: str, right: str, *, whole: bool) -> Iterator[Block]:
    lines = diff(left, right)
    shown = lines if whole else in_context(lines)
    for start in range(0, len(shown), LINES):
        some = shown[start : start + LINES]
        yield Block(partial(_group, some), len(some), sum(len(line.text) for line in some))


def last_pages(
    left: Record, right: Record, of_left: RunScreenshots, of_right: RunScreenshots
) -> list[tuple[str, Picture]]:
    """Return the pictures of the last pages and of the reference page, with titles."""
    return [
        ("A", of_left.page_picture(left.trajectory.answer)),
        ("B", of_right.page_picture(right.trajectory.answer)),
        ("the reference page", of_left.page_picture(left.trajectory.task.ground_truth)),
    ]


def _group(lines: list[DiffLine]) -> Group:
    return Group(*lines)


def _tests(left: Record, right: Record) -> Table:
    """Return a table with one row per test: the verdicts on A and on B, and the call."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text("A", "bold"), Text("B", "bold"), "")
    for test_a, test_b in zip(unit_tests(left), unit_tests(right), strict=False):
        verdicts = [Text(*VERDICTS[test.passed]) for test in (test_a, test_b)]
        call = Text(printable_line(test_a.call))
        for name, test in (("A", test_a), ("B", test_b)):
            if test.passed is False and test.failure:
                call.append(f"\n{name} {printable_line(test.failure)}", "dim")
        table.add_row(*verdicts, call)
    return table
