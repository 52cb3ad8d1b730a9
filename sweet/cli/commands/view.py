"""`sweet view`."""

from __future__ import annotations

import sys

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.cli.declaration import ArgumentSpec
from sweet.cli.stage_command import newest_run, newest_run_argument
from sweet.view.viewer import ViewConfig, Viewer


class View(Command[ViewConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [newest_run_argument()]

    def work(self, call: Call[ViewConfig]) -> None:
        config = call.config
        run = newest_run(call.arguments["run"], call.reporter)
        viewer = Viewer(run, config)
        if config.html is not None:
            written, left_out = viewer.write_html(config.html)
            call.reporter.say(f"{written} dialogues written to {config.html}.")
            if left_out:
                call.reporter.warn(f"{left_out} pictures did not fit; --id and --limit choose fewer dialogues.")
            if call.common.json:
                metrics = {"trajectories": written, "pictures_left_out": left_out, "html": str(config.html)}
                console.print_json({"stage": "view", "run": str(run.path), "metrics": metrics, "artifacts": []})
        elif call.common.json:
            console.print_json(viewer.as_json())
        elif config.id is not None:
            console.show_page(viewer.dialogue(config.id))
        elif sys.stdin.isatty() and sys.stdout.isatty():
            viewer.browse(console.show_page, input)
        else:
            console.show_page(viewer.table())


COMMANDS = (
    View(
        name="view",
        config=ViewConfig,
        summary="Look at dialogues in the terminal, or write them as one page.",
        examples=(
            ("sweet view", "browse the newest run"),
            ("sweet view RUN --outcome failed --sort turns", "only some, in another order"),
            ("sweet view RUN --html dialogues.html", "one self-contained page"),
        ),
    ),
)
