"""The trajectories of a run as Rich renderables: a table of many, one as a dialogue.

Nothing here prints. All text of models and files passes through `sweet.view.text`; none of it is read as markup. A
meaning never hangs on a colour alone, so that NO_COLOR takes nothing away. On a terminal a turn is a panel; where
output has no width to speak of (a pipe, a file) it is a heading and its text, unwrapped, so that it can be searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from sweet.stages.rows import Pair
from sweet.tasks.trajectory import Turn
from sweet.view.code import Piece, pieces
from sweet.view.half_blocks import Beside
from sweet.view.pictures import Album
from sweet.view.records import Record, Summary
from sweet.view.text import printable, printable_line
from sweet.view.unit_tests import UnitTest, unit_tests, why_not

NARROW = 64
"""Columns below which the table is a list."""
UNWRAPPED = 400
"""Columns from which on the output is taken to be no terminal."""

STYLES = {
    "passed": "green",
    "failed": "red",
    "error": "red",
    "crash": "red",
    "invalid": "red",
    "timeout": "yellow",
    "no_answer": "yellow",
}


VERDICTS = {True: ("pass", "green"), False: ("FAIL", "red"), None: ("?", "dim")}


def figure(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


@dataclass(frozen=True)
class TrajectoryTable:
    """One line a trajectory; with few columns two, the id and what is known of it."""

    summaries: Sequence[Summary]
    title: str
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._narrow() if options.max_width < NARROW else self._wide()
        yield Text(printable_line(self.title), style="italic")
        yield rows
        if self.caption:
            yield Text(printable_line(self.caption), style="dim italic")

    def _wide(self) -> Table:
        table = Table("#", Column("id", overflow="fold"), Column("outcome", overflow="fold"))
        for name in ("reward", "tests", "turns", "tokens", "seconds"):
            table.add_column(name, justify="right", no_wrap=True)
        table.columns[0].justify = "right"
        for number, summary in enumerate(self.summaries, 1):
            table.add_row(
                str(number),
                Text(printable_line(summary.id)),
                outcome_text(summary),
                figure(summary.reward),
                tests_passed(summary.passed, summary.total),
                str(summary.turns),
                "–" if summary.tokens is None else f"{summary.tokens:,}",
                figure(summary.seconds, 1),
            )
        return table

    def _narrow(self) -> Table:
        table = Table.grid(
            Column("#", justify="right", style="dim"), Column("id", overflow="fold"), padding=(0, 1, 0, 0)
        )
        for number, summary in enumerate(self.summaries, 1):
            known = outcome_text(summary).append(f" {figure(summary.reward)}")
            if summary.total:
                known.append(f" · {tests_passed(summary.passed, summary.total)}")
            known.append(f" · {count(summary.turns, 'turn')}")
            table.add_row(str(number), Text(printable_line(summary.id)).append("\n").append_text(known))
        return table


def outcome_text(summary: Summary) -> Text:
    """How the answer scored, or how the dialogue ended where nobody scored it; a fault beside it."""
    shown = summary.outcome or summary.ended
    text = Text(printable_line(shown), style=STYLES.get(shown, ""))
    if summary.fault and summary.fault != shown:
        text.append(f" ({printable_line(summary.fault)})", style="yellow")
    return text


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def tests_passed(passed: int | None, total: int | None) -> str:
    return f"{passed}/{total}" if total else "–"


@dataclass(frozen=True)
class Block:
    """A titled part: a panel on a terminal, a heading and plain text elsewhere."""

    title: Text
    body: RenderableType
    style: str = ""
    note: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        note = printable_line(self.note)
        if options.max_width >= UNWRAPPED:
            heading = Text("── ").append_text(self.title)
            yield heading.append(f" · {note}" if note else "")
            yield self.body
            yield ""
            return
        yield Panel(
            self.body,
            title=self.title,
            title_align="left",
            subtitle=Text(note, style="dim") if note else None,
            subtitle_align="right",
            border_style=self.style,
            padding=(0, 1),
        )


def dialogue(record: Record, *, hidden: bool, album: Album | None = None) -> RenderableType:
    """One trajectory: its head, turns with what the critic made of them, answer, tests, and c where it is asked for.

    With an `album` the dialogue is about pages: each turn's screenshot stands beside that of the page in mind.
    """
    parts: list[RenderableType] = [_head(record)]
    scale = record.scale
    number = 0
    for index, turn in enumerate(record.trajectory.dialogue_history):
        if turn.role == "user":
            parts.append(Block(Text("human", style="bold cyan"), _text(turn.content), "cyan"))
            continue
        number += 1
        parts.append(_agent_turn(record, index, turn, number, scale))
        if album is not None:
            parts.append(_screenshots(record, turn, number, album))
        parts.extend(_credit(record, index, scale, album))
    language = "html" if "<html" in record.trajectory.answer.lower() else "python"
    parts.append(Block(Text("answer", style="bold"), _code(record.trajectory.answer, language), "magenta"))
    tests = unit_tests(record)
    if tests:
        parts.append(_tests_block(record, tests))
    if why := why_not(record):
        parts.append(Block(Text("why", style="bold"), _text(why), "magenta"))
    if record.trajectory.error:
        parts.append(Block(Text("fault", style="bold yellow"), _text(record.trajectory.error), "yellow"))
    if hidden:
        title = Text("hidden from the agent", style="bold")
        parts.append(Block(title, _code(record.trajectory.task.hidden, language, whole=True), "yellow"))
    return Group(*parts)


def _head(record: Record) -> RenderableType:
    trajectory, score = record.trajectory, record.score
    outcome = score.outcome if score else trajectory.outcome
    line = Text(printable_line(trajectory.id), style="bold")
    line.append("  ").append(printable_line(outcome), style=STYLES.get(outcome, ""))
    line.append(f"  reward {figure(record.reward)}")
    if score and score.total:
        line.append(f"  tests {tests_passed(score.passed, score.total)}")
    usage = trajectory.usage
    facts = [f"task {printable_line(trajectory.task_id)}", count(len(trajectory.agent_turns), "turn")]
    if usage.completion_tokens:
        facts.append(count(usage.completion_tokens, "token"))
    if usage.seconds:
        facts.append(f"{usage.seconds:.1f} s")
    if score:
        facts.append(f"dialogue: {trajectory.outcome}")
    return Group(line, Text(" · ".join(facts), style="dim"))


def _agent_turn(record: Record, index: int, turn: Turn, number: int, scale: float) -> RenderableType:
    notes = []
    if turn.token_ids:
        notes.append(count(len(turn.token_ids), "token"))
    if turn.finish_reason and turn.finish_reason != "stop":
        notes.append(turn.finish_reason)
    title = Text(f"agent, turn {number}", style="bold green")
    advantage = record.advantage(index)
    if advantage is not None:
        title.append("  ").append_text(bar(advantage, scale))
    return Block(title, _spoken(turn), "green", " · ".join(notes))


def _spoken(turn: Turn) -> RenderableType:
    """The raw reply, with what the human does not see of it dimmed."""
    said, seen = turn.said, turn.content
    if said == seen:
        return _code(said, "python", whole=False)
    before, found, after = said.partition(seen) if seen else (said, "", "")
    if not found:
        return Group(Text(printable(said), style="dim"), Rule(style="dim"), _text(seen))
    text = Text(printable(before), style="dim")
    return text.append(printable(seen), style="not dim").append(printable(after))


def _screenshots(record: Record, turn: Turn, number: int, album: Album) -> RenderableType:
    pictures = [
        (f"turn {number}", album.of_turn(turn)),
        ("the page in mind", album.of_page(record.trajectory.task.ground_truth)),
    ]
    return Block(Text("screenshots", style="green"), Beside(pictures, album.draw), "green")


def _credit(record: Record, index: int, scale: float, album: Album | None) -> Iterator[RenderableType]:
    """The candidates of a turn, best first, and the pairs made from them. Pages in them are only named."""
    short = album.in_short if album is not None else str
    note = "" if album is None else "whole pages: --html FILE"
    candidates = record.best_first(index)
    if candidates:
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True, justify="right")
        table.add_column(overflow="fold")
        times = Counter(candidate.text for candidate in candidates)
        for candidate in {candidate.text: candidate for candidate in candidates}.values():
            text = Text(printable_line(short(candidate.text)))
            if times[candidate.text] > 1:
                text.append(f"  {times[candidate.text]} times", style="dim")
            table.add_row(bar(candidate.advantage, scale), text)
        yield Block(Text(count(len(candidates), "candidate"), style="blue"), table, "blue", note)
    pairs = record.pairs.get(index, [])
    if pairs:
        body = Group(*(_pair(pair, short) for pair in pairs))
        yield Block(Text(count(len(pairs), "pair"), style="blue"), body, "blue", note)


def _pair(pair: Pair, short: Callable[[str], str]) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for name, style, text, advantage in (
        ("chosen", "green", pair.chosen, pair.chosen_advantage),
        ("rejected", "red", pair.rejected, pair.rejected_advantage),
    ):
        table.add_row(Text(name, style=style), signed(advantage), Text(printable_line(short(text))))
    return table


def _tests_block(record: Record, tests: Sequence[UnitTest]) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for test in tests:
        verdict, style = VERDICTS[test.passed]
        body = Text(printable_line(test.call))
        if test.told:
            body.append(f"\n{printable_line(test.told)}", style="dim")
        table.add_row(Text(verdict, style=style), body)
    score = record.score
    note = tests_passed(score.passed, score.total) if score else ""
    return Block(Text("unit tests", style="bold"), table, "magenta", note)


def signed(value: float) -> str:
    return f"{value:+.3f}"


BAR = 4
"""Cells of a bar on either side of zero."""


def bar(value: float, scale: float) -> Text:
    """An advantage as its number and a bar: to the right of the line where it is positive, to the left where not."""
    cells = round(BAR * min(abs(value) / scale, 1.0)) if scale > 0 else 0
    text = Text(f"{signed(value)} ")
    text.append(" " * (BAR - cells if value < 0 else BAR))
    text.append("█" * (cells if value < 0 else 0), style="red").append("│", style="dim")
    text.append("█" * (cells if value > 0 else 0), style="green")
    return text.append(" " * (BAR - (cells if value > 0 else 0)))


def _text(content: str) -> Text:
    return Text(printable(content))


def _code(content: str, language: str, *, whole: bool = True) -> RenderableType:
    """Text with code in it. `whole`: text without a fence is code as well."""
    return Group(*(_piece(piece) for piece in pieces(content, language, whole=whole)))


def _piece(piece: Piece) -> RenderableType:
    if not piece.language:
        return _text(piece.text)
    from rich.syntax import Syntax

    syntax = Syntax("", piece.language, theme="ansi_dark", background_color="default")
    text = syntax.highlight(printable(piece.text))
    text.no_wrap = False  # a long line must not be cut
    text.overflow = "fold"
    text.rstrip()
    return text
