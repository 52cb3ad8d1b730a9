"""`sweet compare`, and the output of `sweet eval --compare`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Any

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.cli.declaration import ArgumentSpec
from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.scoring.humans.compare import run_compare_humans
from sweet.scoring.results.compare import CompareConfig, run_compare
from sweet.stages.base import StageResult
from sweet.view import human_comparison
from sweet.view.comparison import as_markdown, sections, trained_on


class Compare(Command[CompareConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [
            ArgumentSpec(
                "a", "A", "The baseline: a run (its newest scores), RUN:scores-2 or RUN:rollouts-1.", required=True
            ),
            ArgumentSpec(
                "b",
                "B",
                "The run or artifact to compare with it, in the same form; with --human --sim there is none.",
                required=False,
            ),
        ]

    def work(self, call: Call[CompareConfig]) -> None:
        if call.config.markdown and call.common.json:
            raise UsageError("Markdown and JSON cannot both go to stdout.", where="--markdown", fix="omit one")
        if call.config.human:
            self._humans(call)
            return
        _check_agents(call.arguments["b"], call.config)
        result = run_compare(call.arguments["a"], call.arguments["b"], call.config)
        metrics = result.as_json()["metrics"]
        if call.config.markdown:
            sys.stdout.write(as_markdown(metrics))
        else:
            console.print_result(result, as_json=call.common.json, draw=_show)
        if (line := view_command(metrics)) is not None:
            call.reporter.say(f"next: {line}")

    def _humans(self, call: Call[CompareConfig]) -> None:
        result = run_compare_humans(call.arguments["a"], call.arguments["b"], call.config, call.reporter)
        if call.config.markdown:
            sys.stdout.write(human_comparison.as_markdown(result.as_json()["metrics"]))
        else:
            console.print_result(result, as_json=call.common.json, draw=_show_humans)


def _check_agents(b: object, config: CompareConfig) -> None:
    """Raise UsageError if B is missing, or an option has no effect where agents are compared."""
    if b is None:
        raise UsageError("Missing argument 'B'.", where="B", fix="name the run or artifact to compare with A")
    for name in ("sim", "sim_url", "persona", "persona_file", "questions"):
        if getattr(config, name):
            what = Hint(option(name), " is an option of ", option("human"), ".")
            raise UsageError(what, where=option(name), fix=Hint("omit it, or ", option("human")))


def _show_humans(result: StageResult) -> None:
    for section in human_comparison.sections(result.as_json()["metrics"]):
        console.show(section)


def _show(result: StageResult) -> None:
    show_comparison(result.as_json()["metrics"])


def show_comparison(metrics: Mapping[str, Any]) -> None:
    console.show(console.safe_text(trained_on(metrics)))
    for section in sections(metrics):
        console.show(section)


def view_command(metrics: Mapping[str, Any]) -> str | None:
    """Return the command that shows the flipped tasks on both sides; None without any, or without dialogues."""
    of_a, of_b, flips = metrics["a"], metrics["b"], metrics["flips"]
    flipped = flips["lost"]["tasks"] or flips["gained"]["tasks"]
    if not flipped or of_a["rollouts"] is None or of_b["rollouts"] is None:
        return None
    other = of_b["rollouts"] if of_a["run"] == of_b["run"] else f"{of_b['run']}:{of_b['rollouts']}"
    words = ["sweet", "view", of_a["run"], "--from", of_a["rollouts"], "--against", other, "--changed", "differs"]
    return shlex.join(words)


COMMANDS = (
    Compare(
        name="compare",
        config=CompareConfig,
        summary="Compare two evaluations on the same tasks: paired differences, p-values, flipped tasks.",
        text="Every difference is B - A. Nothing is written into either run. Two evaluations in one run are named by "
        "their artifacts: RUN:scores-1 RUN:scores-3. With --human the humans are compared instead: what each replies "
        "to the same questions.",
        examples=(
            ("sweet compare runs/before runs/after", "the newest scores of both"),
            ("sweet compare RUN:scores-1 RUN:scores-3", "before and after training, in one run"),
            ("sweet compare A B --markdown", "a table for a pull request"),
            ("sweet compare A B --repeats OTHER", "the variation between seeds, OTHER being played with another seed"),
            ("sweet compare --human A B", "how alike the humans of two runs reply"),
            ("sweet compare --human RUN@scripted RUN@ann", "two humans of the same dialogues"),
            ("sweet compare --human RUN --sim MODEL --sim-url URL", "ask another human the questions of RUN"),
        ),
    ),
)
