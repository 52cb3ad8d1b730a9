"""`sweet play`."""

from __future__ import annotations

import os
import sys

from sweet.cli import console
from sweet.cli.command import Call
from sweet.cli.play_lines import LineInterface
from sweet.cli.stage_command import StageCommand, slug
from sweet.errors import UsageError
from sweet.hints import option
from sweet.rollouts.play.config import PlayConfig
from sweet.rollouts.play.interface import Interface
from sweet.rollouts.play.metrics import PlayMetrics
from sweet.rollouts.play.stage import plan_play, run_play
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult


def _play(run: Run, config: PlayConfig, reporter: Reporter) -> StageResult[PlayMetrics]:
    return run_play(run, config, reporter, _interface(run, config))


def _interface(run: Run, config: PlayConfig) -> Interface:
    if config.plain:
        return LineInterface()
    if not console.in_browser() and not (
        sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    ):
        raise UsageError(
            "There is no terminal to play on.",
            where="stdin and stderr",
            fix=option("plain", True),
        )
    from sweet.view.app.play import TextualInterface

    return TextualInterface(run, f"sweet play, {run.path}: the other side is being prepared")


def _name(config: PlayConfig) -> tuple[str, str]:
    return config.task, f"{slug(config.task)}-play-{slug(config.name)}"


class Play(StageCommand[PlayConfig]):
    """`sweet play` in this terminal, or as a server that runs it for each browser."""

    def work(self, call: Call[PlayConfig]) -> None:
        if console.in_browser():
            sys.stdout = sys.stderr  # the driver writes packets to stdout
        elif call.config.serve_at is not None:
            self._serve(call.config.serve_at, call)
            return
        super().work(call)

    def _serve(self, address: str, call: Call[PlayConfig]) -> None:
        from sweet.view.app.browser import parse_address, serve

        self._open(call)

        def ready(url: str) -> None:
            console.show_address(url)
            call.reporter.say("Serving until Ctrl-C.")

        def warn(place: str) -> None:
            call.reporter.warn(f"Whoever can reach {place} can play, and read the references of the tasks.")

        serve(*parse_address(address), call.words(), ready, extra="play", warning=warn)


COMMANDS = (
    Play(
        name="play",
        config=PlayConfig,
        stage=_play,
        plan=plan_play,
        name_run=_name,
        summary="Play the human or the agent yourself, in the terminal or in a browser.",
        text="You see what your side sees: as the human the request, the reference and, for pages, both pictures; as "
        "the agent the request alone. ? lists the keys. The dialogue under way is saved after every turn: the same "
        "command goes on with it. What you finish are ordinary rollouts, which sweet eval scores, sweet compare "
        "compares and sweet view shows.",
        examples=(
            ("sweet play --num-tasks 10 --name ada", "answer the packaged agent's questions"),
            ("sweet play RUN --as agent --name ada", "ask the scripted human"),
            ("sweet play RUN --agent MODEL --agent-url http://localhost:8000/v1", "against a served agent"),
            ("sweet play RUN --resume", "go on where you or a crash left off"),
            ("sweet play RUN --name ada --serve-at 8080", "in a browser on this machine"),
        ),
        long_work=False,
    ),
)
