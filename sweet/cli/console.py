"""Output to the user: results on stdout, everything else on stderr.

stdout is data: one table for people, or with `--json` one object for programs. stderr is narration: progress, notes,
and one panel for an error. On a terminal both wrap at its width; in a file or a pipe nothing wraps, so that paths and
commands can be searched for and copied. Text from models, files or servers passes through
`sweet.view.text.printable` and is drawn as `Text`, in which rich reads no markup.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sweet.errors import SweetError
from sweet.redaction import redacted, redacted_json
from sweet.units import format_bytes, format_metric, format_value, metric_name
from sweet.view.text import printable, printable_json

if TYPE_CHECKING:
    from sweet.stages.base import StageResult

UNWRAPPED = 4000
"""Columns of a file or a pipe."""
NARROW = 70
"""Columns below which a table is shown as paragraphs."""
WIDEST = 300
"""Columns of a cell at most, also in a file, where lines are not wrapped."""
WEB_DRIVER = "TEXTUAL_DRIVER"
"""The variable by which textual-serve says that it draws in a browser."""
MIN_COLUMNS = 20
"""Smaller values of `COLUMNS` are raised to this."""
PANEL_SIDES = 4
"""Columns of a panel's borders and padding."""
PAGE = 120
"""Columns of running text in a file or a pipe."""


def safe_text(text: object, style: str = "") -> Text:
    """Return any text in a form that is safe to print: control characters are visible, markup is not interpreted, and
    keys are removed."""
    return Text(printable(redacted(str(text))), style)


def output_console() -> Console:
    return _console(stderr=False)


def narration_console() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = columns() or (None if stream.isatty() else UNWRAPPED)
    kind = _Narration if stderr else _Console
    return kind(stderr=stderr, width=width, highlight=False, emoji=False, markup=False)


def can_redraw(console: Console) -> bool:
    """Return whether it is a terminal that can move its cursor: FORCE_COLOR forces colours in a file, but not bars."""
    return console.file.isatty() and not console.is_dumb_terminal


def columns() -> int | None:
    """Return `COLUMNS`, if it is a number that a terminal could have."""
    value = os.environ.get("COLUMNS", "")
    return max(int(value), MIN_COLUMNS) if value.isascii() and value.isdigit() and len(value) < 6 else None


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave the error to `sweet.cli.exits.exit_code_of`, which returns 0 (rich would exit with 1)."""
        raise BrokenPipeError


class _Narration(_Console):
    def _check_buffer(self) -> None:
        """Ignore errors of the stream: a full disk or a closed terminal must not stop the work. Unlike `print`, this
        method also writes progress bars."""
        try:
            super()._check_buffer()
        except BrokenPipeError:
            raise
        except OSError:
            self._buffer.clear()


_printed = 0
_stdout: TextIO | None = None
"""Where JSON goes while nothing else may go to stdout."""


@contextlib.contextmanager
def only_json() -> Iterator[None]:
    """Let only JSON go to stdout: what a scorer, a tool or a rule of a package prints goes to stderr."""
    global _stdout
    before, _stdout = _stdout, sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _stdout = before


def printed() -> int:
    """Return how many JSON values this process has printed."""
    return _printed


def print_json(value: Any) -> None:
    """Print one JSON value on stdout, without keys. NaN and infinity, which JSON lacks, are null."""
    global _printed
    _printed += 1
    from pydantic_core import to_json, to_jsonable_python  # not needed for the help

    safe = redacted_json(to_jsonable_python(value, inf_nan_mode="null", fallback=str))
    write_json(to_json(safe, indent=2, inf_nan_mode="null").decode() + "\n")
    (_stdout or sys.stdout).flush()


def write_json(text: str) -> None:
    """Write JSON or JSON Lines to stdout, on a terminal with escapes for what a terminal would execute or hide."""
    out = _stdout or sys.stdout
    out.write(printable_json(text) if out.isatty() else text)


def show_error(error: SweetError) -> None:
    """Print the error panel on stderr: what is wrong, where, and how to fix it.

    A fix that does not fit into a line of the panel follows it on one line, so that a command in it can be copied.
    """
    rows: list[Text] = [safe_text(line) for line in error.what.splitlines()]
    if error.where:
        rows.append(Text().append("where  ", "dim").append_text(safe_text(error.where)))
    fix = Text().append("try    ", "dim").append_text(safe_text(error.fix or "", "bold"))
    fits = fix.cell_len <= narration_console().width - PANEL_SIDES
    body = Text("\n").join([*rows, fix] if error.fix and fits else rows)
    title = Text(error.title)
    narration_console().print(
        Panel(body, title=title, title_align="left", border_style="red", expand=False, padding=(0, 1))
    )
    if error.fix and not fits:
        narration_console().print(fix, soft_wrap=True)


def show_traceback(error: BaseException) -> None:
    console = narration_console()
    for chunk in traceback.format_exception(error):
        for line in chunk.splitlines():
            console.print(safe_text(line), soft_wrap=True)


def print_result(result: StageResult, *, as_json: bool, draw: Callable[[StageResult], None] | None = None) -> None:
    """Print the result of a stage on stdout, as JSON or as tables."""
    if as_json:
        print_json(result.as_json())
    else:
        (draw or show_result)(result)


def show_result(result: StageResult, *, hidden: Collection[str] = ()) -> None:
    """Print a stage's metrics and artifacts as tables on stdout."""
    heading(" · ".join(filter(None, (result.stage, str(result.run), _played_by(result)))))
    metrics = result.as_json()["metrics"]
    _show_metrics({name: value for name, value in metrics.items() if name not in hidden})
    rows = [
        (artifact.id, artifact.kind, "" if artifact.rows is None else f"{artifact.rows:,}", artifact.path)
        for artifact in result.artifacts
    ]
    show_rows(["made", "kind", "rows", "path"], rows, right=["rows"])


def _played_by(result: StageResult) -> str:
    """Return whose dialogues a stage played or scored, and on which tasks; empty for another stage."""
    from sweet.runs.run import Run
    from sweet.scoring.results.run_result import played_by

    artifacts = [artifact for artifact in result.artifacts if artifact.kind in ("rollouts", "scores")]
    with contextlib.suppress(SweetError):
        return played_by(Run(result.run).manifest(), artifacts[0]) if artifacts else ""
    return ""


def show_plan(title: str, plan: Mapping[str, Any]) -> None:
    """Print the plan of a stage (`sweet.stages.plans.Plan`) as a table on stdout."""
    heading(title)
    memory = {f"memory, {name}": format_bytes(size) for name, size in plan.get("memory", {}).items()}
    _show_metrics({name: value for name, value in plan.items() if name not in ("memory", "assumed")} | memory)
    show(*(f"assumed: {sentence}" for sentence in plan.get("assumed", [])))


def _show_metrics(metrics: Mapping[str, Any]) -> None:
    """Print names and values. An interval follows its rate; a nested mapping is one line."""
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in metrics.items():
        if name.endswith(("_ci_low", "_ci_high")) and name.rsplit("_ci_", 1)[0] in metrics:
            continue
        if isinstance(value, Mapping):
            text = ", ".join(f"{key} {format_metric(key, item)}" for key, item in value.items()) or "none"
        elif isinstance(value, list | tuple):
            text = ", ".join(format_value(item) for item in value) or "none"
        else:
            text = format_metric(name, value, metrics)
        table.add_row(safe_text(metric_name(name)), safe_text(text))
    show(table)


def show_rows(header: list[str], rows: Iterable[Iterable[object]], right: Iterable[str] = ()) -> None:
    """Print a table on stdout, and nothing without rows; on a narrow terminal, print each row as a paragraph.

    Args:
        right: the headings of the columns that are aligned to the right.
    """
    cells = [[cell if isinstance(cell, Text) else safe_text(cell) for cell in row] for row in rows]
    if not cells:
        return
    if output_console().width < NARROW:
        for row in cells:
            show(row[0])
            for name, cell in zip(header[1:], row[1:], strict=True):
                if cell.plain:
                    show(Padding(Text(f"{name} " if name else "", "dim").append_text(cell), (0, 0, 0, 2)))
        return
    table = Table()
    for name in header:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", max_width=WIDEST)
    for row in cells:
        table.add_row(*row)
    show(table)


def heading(text: str) -> None:
    show(safe_text(text, "bold"))


def show(*renderables: RenderableType) -> None:
    """Print on stdout, each from a new line; plain text as `safe_text`."""
    for renderable in renderables:
        output_console().print(safe_text(renderable) if isinstance(renderable, str) else renderable)


def show_address(url: str) -> None:
    """Print the address at which something is served: in one line, to be copied, and at once, also into a pipe."""
    show_command(safe_text(url))
    sys.stdout.flush()


def show_command(renderable: RenderableType) -> None:
    """Print a line with a command to be copied, which is not broken to the width of the terminal."""
    output_console().print(renderable, soft_wrap=True)


def show_page(renderable: RenderableType) -> None:
    """Print running text, which wraps in a file too."""
    console = output_console()
    if not console.is_terminal:
        console.width = PAGE
    console.print(renderable)


def drop_output(stream: TextIO | None = None) -> None:
    """Redirect a stream (stdout by default) to the null device, including its buffered text.

    The reader has exited or the stream cannot be written, which must not raise an error when the process exits.
    """
    with contextlib.suppress(OSError, ValueError):  # the stream may be closed, or not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def in_browser() -> bool:
    """Return whether textual-serve has started this process to draw in a browser."""
    return bool(os.environ.get(WEB_DRIVER))
