"""`sweet play`: in this terminal, or as a server that runs it for each browser."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from sweet.cli import console
from sweet.cli.command import NewRun, command
from sweet.cli.play_lines import LineInterface
from sweet.cli.spec import Call
from sweet.errors import UsageError

if TYPE_CHECKING:
    from sweet.rollouts.play.config import PlayConfig, PlayMetrics
    from sweet.rollouts.play.interface import Interface
    from sweet.runs.run import Run
    from sweet.stages.base import Reporter, StageResult

app = typer.Typer(add_completion=False)


@command(
    app,
    "play",
    examples=(
        ("sweet play --num-tasks 10 --name ada", "answer the packaged agent's questions"),
        ("sweet play RUN --as agent --name ada", "ask the scripted human"),
        ("sweet play RUN --agent MODEL --agent-url http://localhost:8000/v1", "against a served agent"),
        ("sweet play RUN --resume", "go on where you or a crash left off"),
        ("sweet play RUN --name ada --serve-at 8080", "in a browser on this machine"),
    ),
    text="You see what your side sees: as the human the request, the reference and, for pages, both pictures; as "
    "the agent the request alone. ? lists the keys. The dialogue under way is saved after every turn: the same "
    "command goes on with it. What you finish are ordinary rollouts, which sweet eval scores, sweet compare "
    "compares and sweet view shows.",
    long_work=False,
)
def play(call: Call[PlayConfig], run: NewRun = None) -> None:
    from sweet.cli.stage import open_run, run_stage, slug
    from sweet.rollouts.play.stage import run_play
    from sweet.view.app.browser import parse_address, serve

    config = call.config
    named = (config.task, f"{slug(config.task)}-play-{slug(config.name)}")
    if config.serve_at is None or call.common.dry_run or console.in_browser():
        if console.in_browser():
            sys.stdout = sys.stderr  # the driver writes packets to stdout

        def work(run: Run, config: PlayConfig, reporter: Reporter) -> StageResult[PlayMetrics]:
            return run_play(run, config, reporter, _interface(run, config))

        run_stage(call, run, work=work, new_run=named)
        return
    open_run(call, run, named)

    def ready(url: str) -> None:
        console.show_address(url)
        call.reporter.say("Serving until Ctrl-C.")

    def warn(place: str) -> None:
        call.reporter.warn(f"Whoever can reach {place} can play, and read the references of the tasks.")

    serve(*parse_address(config.serve_at), call.words(), ready, extra="play", warning=warn)


def _interface(run: Run, config: PlayConfig) -> Interface:
    if config.plain:
        return LineInterface()
    has_terminal = sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if not has_terminal and not console.in_browser():
        raise UsageError("There is no terminal to play on.", where="stdin and stderr", fix="--plain")
    from sweet.view.app.play import TextualInterface

    return TextualInterface(run, f"sweet play, {run.path}: the other side is being prepared")
