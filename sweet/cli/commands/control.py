"""`sweet control`."""

from __future__ import annotations

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.cli.declaration import ArgumentSpec
from sweet.inspection.controlling import ControlConfig, control
from sweet.runs.run import Run


class Control(Command[ControlConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [
            ArgumentSpec("run", "RUN", "The run directory.", required=True),
            ArgumentSpec(
                "command", "COMMAND", "pause, resume, concurrency, requeue or stop.", required=True, is_path=False
            ),
            ArgumentSpec(
                "value",
                "VALUE",
                "The number of dialogues at once (concurrency), or the id of a dialogue (requeue).",
                required=False,
                is_path=False,
            ),
        ]

    def work(self, call: Call[ControlConfig]) -> None:
        run, command, value = (call.arguments[name] for name in ("run", "command", "value"))
        run = Run.open(run)
        metrics = control(run, command, value, call.config)
        if call.common.json:
            output = {"stage": "control", "run": str(run.path), "metrics": metrics.as_json(), "artifacts": []}
            console.print_json(output)
        elif metrics.answer is not None:
            console.show(console.safe_text(metrics.answer))
        else:
            text = f"{metrics.attempt} has not answered within {call.config.wait:g} s; it will, when it looks next."
            console.show(console.safe_text(text))


COMMANDS = (
    Control(
        name="control",
        config=ControlConfig,
        summary="Pause, resume, change or stop a stage that runs, from another terminal.",
        text="pause starts nothing new and lets what is under way finish: rollout, rank, eval, and a training in one "
        "process. concurrency N sets how many dialogues are played at once. requeue DIALOGUE plays a dialogue of the "
        "running rollout again: one under way from its start, a failed one, or a finished one, whose row moves to the "
        "log. stop is Ctrl-C.",
        examples=(
            ("sweet control RUN pause", "nothing new is started until sweet control RUN resume"),
            ("sweet control RUN concurrency 400", "at most 400 dialogues at once from now on"),
            ("sweet control RUN requeue micro-17-s0-r0", "play this dialogue again"),
            ("sweet control RUN stop", "as Ctrl-C: finished work is kept"),
        ),
    ),
)
