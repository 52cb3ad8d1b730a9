"""`sweet rollout`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sweet.cli import console
from sweet.cli.command import NewRun, command
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.rollouts.config import RolloutConfig
    from sweet.stages.base import StageResult

app = typer.Typer(add_completion=False)


@command(
    app,
    "rollout",
    examples=(
        ("sweet rollout --num-tasks 20 --samples 2", "the packaged agent and the scripted human, no server"),
        (
            "sweet rollout RUN --tasks colbench --agent-url http://localhost:8000/v1 --agent MODEL "
            "--sim MODEL --sim-url http://localhost:8001/v1",
            "ColBench with two servers",
        ),
        ("sweet rollout RUN --persona plain --persona terse", "two humans, over whom the tasks are spread"),
        ("sweet rollout RUN --agent RUN/actor/actor-1", "dialogues of a trained actor"),
        ("sweet rollout RUN --split test --best-of 16", "the critic chooses among 16 replies at each turn"),
        ("sweet rollout --agent DIR -- --max-model-len 16384", "a model that vllm serves during the rollout"),
    ),
    text="Each finished dialogue is one line of the run's rollouts. Called again with the same options on the same "
    "run, it plays the missing dialogues. A model without an address runs on this machine: by vllm, if it is "
    "installed and supports the machine (it is started and stopped automatically), else in this process.",
)
def rollout(call: Call[RolloutConfig], run: NewRun = None) -> None:
    from sweet.cli.stage import run_stage, slug

    task = call.config.task
    run_stage(call, run, new_run=(task, f"{slug(task)}-{slug(call.config.agent)}"), show=_show)


def _show(result: StageResult) -> None:
    from sweet.view.comparison import played_by_human

    console.show_result(result, hidden={"humans"})
    for section in played_by_human(result.as_json()["metrics"]):
        console.show(section)
