"""`sweet view`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sweet.cli import console
from sweet.cli.command import OptionalRun, command
from sweet.cli.spec import Call
from sweet.units import count

if TYPE_CHECKING:
    from pathlib import Path

    from sweet.runs.run import Run
    from sweet.view.viewer import ViewConfig, Viewer


@command(
    "view",
    "sweet.view.viewer:ViewConfig",
    examples=(
        ("sweet view", "browse the newest run"),
        ("sweet view RUN --filter outcome=failed --sort turns", "filtered and sorted"),
        ("sweet view RUN --print --filter 'rounded down'", "a table of the dialogues with these words"),
        ("sweet view RUN --from rollouts-1 --against rollouts-3", "before and after, task by task"),
        ("sweet view RUN --serve", "in a browser on this machine"),
        ("sweet view RUN --html dialogues.html", "one self-contained page"),
    ),
    text="On a terminal this is an application; ? lists its keys. In a pipe or a file, and with --print, --id or "
    "--json, the dialogues are printed.",
)
def view(call: Call[ViewConfig], run: OptionalRun = None) -> None:
    from sweet.cli.stage import newest_run
    from sweet.view.viewer import Viewer

    config = call.config
    opened = newest_run(run, call.reporter)
    if console.in_browser():
        from sweet.view.app import browse

        sys.stdout = sys.stderr  # the driver writes packets to stdout
        browse(opened, config, served=True)
        return
    if config.serve:
        _serve(opened, call)
        return
    printed = config.print_ or config.id is not None or call.common.json
    if not printed and config.html is None and _is_interactive():
        from sweet.view.app import browse

        browse(opened, config)
        return
    viewer = Viewer(opened, config)
    if config.html is not None:
        _write(viewer, config.html, call)
    elif call.common.json:
        console.print_json(viewer.as_json())
    elif config.id is not None:
        console.show_page(viewer.dialogue(config.id))
    else:
        console.show_page(viewer.table())


def _is_interactive() -> bool:
    """Return whether stdin, stdout and stderr, on which the application draws, are a terminal that can move its
    cursor."""
    terminals = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return terminals and not console.output_console().is_dumb_terminal


def _serve(run: Run, call: Call[ViewConfig]) -> None:
    """Serve the application until Ctrl-C, on this machine alone."""
    from sweet.view.app.browser import LOOPBACK, serve
    from sweet.view.viewer import Viewer

    Viewer(run, call.config)  # what cannot be viewed is an error here, not on each page
    call.run = run.path.absolute()

    def ready(url: str) -> None:
        console.show_address(url)
        call.reporter.say("Serving until Ctrl-C; the address lets others on this machine in, too.")

    serve(LOOPBACK, call.config.port, call.words(), ready)


def _write(viewer: Viewer, page: Path, call: Call[ViewConfig]) -> None:
    """Write the page; `--json` lists it."""
    from sweet.results.dialogues_page import write_dialogues
    from sweet.stages.base import StageResult
    from sweet.view.viewer import ViewMetrics

    written, left_out = write_dialogues(page, viewer)
    call.reporter.say(f"{count(written, 'dialogue')} written to {page}.")
    if left_out:
        call.reporter.warn(f"{count(left_out, 'picture')} did not fit; --id and --limit choose fewer dialogues.")
    if call.common.json:
        metrics = ViewMetrics(trajectories=written, pictures_left_out=left_out, html=str(page))
        console.print_json(StageResult("view", viewer.run.path, metrics).as_json())
