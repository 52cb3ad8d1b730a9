"""What the user sees: results on stdout, everything else on stderr.

stdout is data: one table for people, or with `--json` one object for programs. stderr is narration: progress, notes,
and one panel where something is wrong. On a terminal both wrap at its width; into a file or a pipe nothing wraps, so
that a path or a command in it can be found and copied. Text that came from models, files or servers passes through
`sweet.view.text.printable`, and is drawn as `Text`, in which rich reads no markup.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from sweet.errors import SweetError
from sweet.view.text import printable
from sweet.view.units import format_bytes

if TYPE_CHECKING:
    from sweet.stages.base import StageResult

UNWRAPPED = 4000
"""Columns of what is not a terminal."""
NARROW = 70
"""Columns below which a table has no room."""
NARROWEST = 20
"""Fewer columns than this nobody can read."""
PAGE = 120
"""The same for text to read."""


def inert(text: object, style: str = "") -> Text:
    """Any text, harmless: control characters are visible, and rich reads no markup in it."""
    return Text(printable(str(text)), style)


def output_console() -> Console:
    return _console(stderr=False)


def narration_console() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = columns() or (None if stream.isatty() else UNWRAPPED)
    kind = _Narration if stderr else _Console
    return kind(stderr=stderr, width=width, highlight=False, emoji=False, markup=False)


def columns() -> int | None:
    """`COLUMNS`, where it is a number that a terminal could have."""
    given = os.environ.get("COLUMNS", "")
    return max(int(given), NARROWEST) if given.isascii() and given.isdigit() and len(given) < 6 else None


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The reader is gone: `sweet.cli.exits.ended` returns quietly (rich would exit with 1)."""
        raise BrokenPipeError


class _Narration(_Console):
    def _check_buffer(self) -> None:
        """A log on a full disk, or a terminal that was closed, must not stop the work. Bars are written from here too,
        and not by print."""
        try:
            super()._check_buffer()
        except BrokenPipeError:
            raise
        except OSError:
            self._buffer.clear()


def print_json(value: Any) -> None:
    """One JSON value on stdout; not-a-number and infinity, which JSON lacks, are null."""
    from pydantic_core import to_json  # the help has no use for it

    text = to_json(value, indent=2, inf_nan_mode="null", fallback=str).decode()
    sys.stdout.write(text + "\n")


def show_error(error: SweetError) -> None:
    """The error panel on stderr: what is wrong, where, and what mends it."""
    rows: list[Text] = [inert(line) for line in error.what.splitlines()]
    if error.where:
        rows.append(Text().append("where  ", "dim").append_text(inert(error.where)))
    if error.fix:
        rows.append(Text().append("try    ", "dim").append_text(inert(error.fix, "bold")))
    _panel(error.title, rows)


def show_bug(error: BaseException) -> None:
    """The panel of an exception nobody meant."""
    rows = [inert(line) for line in (f"{type(error).__name__}: {error}".splitlines())]
    rows.append(
        Text().append("try    ", "dim").append("the same command with --debug, and report what it prints", "bold")
    )
    _panel("This is a bug in sweet", rows)


def show_traceback(error: BaseException) -> None:
    console = narration_console()
    for chunk in traceback.format_exception(error):
        for line in chunk.splitlines():
            console.print(inert(line), soft_wrap=True)


def _panel(title: str, rows: Iterable[Text]) -> None:
    body = Text("\n").join(rows)
    narration_console().print(
        Panel(body, title=Text(title), title_align="left", border_style="red", expand=False, padding=(0, 1))
    )


def finish(result: StageResult, *, as_json: bool, show_people: Callable[[StageResult], None] | None = None) -> None:
    """The result of a stage on stdout: for a program, or for people."""
    if as_json:
        print_json(result.as_json())
    else:
        (show_people or show_result)(result)


def show_result(result: StageResult, *, hidden: Collection[str] = ()) -> None:
    """A stage's metrics and artifacts as tables on stdout."""
    heading(f"{result.stage} · {result.run}")
    metrics = Table(show_header=False)
    metrics.add_column(style="bold")
    metrics.add_column(justify="right")
    shown = {name: value for name, value in result.as_json()["metrics"].items() if name not in hidden}
    for name, value in metric_rows(shown):
        metrics.add_row(inert(name), inert(value))
    show(metrics)
    if result.artifacts:
        made = [
            (artifact.id, artifact.kind, "" if artifact.rows is None else f"{artifact.rows:,}", artifact.path)
            for artifact in result.artifacts
        ]
        show_rows(["made", "kind", "rows", "path"], made, right=["rows"])


def show_plan(title: str, plan: Mapping[str, Any]) -> None:
    """Print the plan of a stage (`sweet.stages.plans.Plan`) as a table on stdout, with the source of its rates."""
    heading(title)
    figures = Table(show_header=False)
    figures.add_column(style="bold")
    figures.add_column(justify="right")
    counted = {name: value for name, value in plan.items() if name not in ("memory", "rates", "assumed")}
    for name, value in metric_rows(counted | _in_units(counted)):
        name = {"hours": "time"}.get(name, name)
        figures.add_row(inert(name), inert(value))
    for name, size in plan.get("memory", {}).items():
        shown = f"{size / 2**30:,.2f} GiB" if size >= 2**28 else f"{size / 2**20:,.1f} MiB"
        figures.add_row(f"memory, {name}", shown)
    show(figures)
    for name, rate in plan.get("rates", {}).items():
        show(inert(f"{name.replace('_', ' ')}: {_rate_in_words(rate)}"))
    for sentence in plan.get("assumed", []):
        show(inert(f"assumed: {sentence}"))


def _in_units(plan: Mapping[str, Any]) -> dict[str, str]:
    """What is shown in another way than other figures."""
    ways = {"flops": lambda count: f"{count:.3g}", "bytes": format_bytes, "hours": _clock}
    return {name: way(plan[name]) for name, way in ways.items() if plan.get(name) is not None}


def _clock(hours: float) -> str:
    """Hours in the unit that suits them."""
    if hours >= 1:
        return f"{hours:,.1f} h"
    return f"{60 * hours:.1f} min" if hours >= 1 / 60 else f"{3600 * hours:.2g} s"


def _rate_in_words(rate: Mapping[str, Any] | None) -> str:
    if rate is None:
        return "no attempt tells (--rates RUN)"
    other = f", where {', '.join(rate['differs'])} differ" if rate["differs"] else ""
    return f"{figure(rate['value'])} {rate['unit']}, by {rate['from']}{other}"


def show_table(title: str, header: list[str], rows: Iterable[Iterable[object]]) -> None:
    """A table on stdout, under a title."""
    heading(title)
    show_rows(header, rows)


def show_rows(header: list[str], rows: Iterable[Iterable[object]], right: Iterable[str] = ()) -> None:
    """A table on stdout; on a narrow terminal each row is a paragraph instead, which loses nothing.

    Args:
        right: the headings of the columns of figures, which stand to the right.
    """
    cells = [[cell if isinstance(cell, Text) else inert(cell) for cell in row] for row in rows]
    if output_console().width < NARROW:
        for row in cells:
            show(row[0])
            for name, cell in zip(header[1:], row[1:], strict=True):
                if cell.plain:
                    show(Padding(Text(f"{name} " if name else "", "dim").append_text(cell), (0, 0, 0, 2)))
        return
    table = Table(*(Column(name, justify="right" if name in right else "left", overflow="fold") for name in header))
    for row in cells:
        table.add_row(*row)
    show(table)


def heading(text: str) -> None:
    show(inert(text, "bold"))


def show(renderable: RenderableType) -> None:
    output_console().print(renderable)


def show_page(renderable: RenderableType) -> None:
    """Text to read, which wraps into a file too."""
    console = output_console()
    if not console.is_terminal:
        console.width = PAGE
    console.print(renderable)


def metric_rows(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values to show: an interval stands beside its rate, a nested mapping on one line."""
    rows = []
    for name, value in metrics.items():
        if name.endswith(("_ci_low", "_ci_high")) and name.rsplit("_ci_", 1)[0] in metrics:
            continue
        if isinstance(value, Mapping):
            shown = ", ".join(f"{key} {figure(item)}" for key, item in value.items()) or "none"
        elif isinstance(value, list | tuple):
            shown = ", ".join(figure(item) for item in value) or "none"
        else:
            shown = with_interval(metrics, name)
        rows.append((name.replace("_", " "), shown))
    return rows


def with_interval(metrics: Mapping[str, Any], name: str) -> str:
    """A metric with its confidence interval, where it has one: `0.31 [0.26, 0.37]`."""
    low, high = metrics.get(f"{name}_ci_low"), metrics.get(f"{name}_ci_high")
    shown = figure(metrics.get(name))
    return shown if low is None or high is None else f"{shown} [{figure(low)}, {figure(high)}]"


def figure(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def drop_output(stream: TextIO | None = None) -> None:
    """Write to nowhere from now on, what is still buffered included: nobody reads the stream (stdout unless another is
    given), or it cannot be written, and that must not raise when the process exits."""
    with contextlib.suppress(OSError, ValueError):  # it may be closed, or no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())
