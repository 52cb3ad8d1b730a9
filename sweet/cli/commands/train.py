"""`sweet train`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweet.cli import console
from sweet.cli.command import NewRun, command
from sweet.cli.spec import Call
from sweet.units import format_value

if TYPE_CHECKING:
    from sweet.pipeline.config import LoopConfig


@command(
    "train",
    "sweet.pipeline.config:LoopConfig",
    is_stage=True,
    examples=(
        ("sweet train runs/mine --tasks FILE --agent MODEL --rounds 3", "your tasks and your model"),
        ("sweet train runs/mine", "continue, with the run's recipe"),
        ("sweet train runs/mine --dry-run", "what is done, what is next, and what it takes"),
        ("sweet train runs/b --recipe runs/mine/recipe.toml --set rank.fraction=0.2", "another run, one change"),
    ),
    text="Evaluates the agent, lets it play, scores and labels the dialogues, trains the critic, ranks candidates, "
    "pairs them, trains the actor and evaluates it on the same unseen tasks; the next round begins with that "
    "actor. The options of every stage are in one recipe, which is written to RUN/recipe.toml. Called again on "
    "the same run, it continues where it stopped, whatever stopped it.",
)
def train(call: Call[LoopConfig], run: NewRun = None) -> None:
    from sweet.cli.loops import show_rounds
    from sweet.cli.stage import run_stage, slug
    from sweet.pipeline.recipe import resolve
    from sweet.pipeline.stage import run_train
    from sweet.runs.stages import RECIPE

    if call.common.dry_run:
        _preview(call, run)
        return
    train = resolve(call.config, run).train
    new_run = (train.task, f"train-{slug(train.tasks or train.task)}-{slug(train.agent)}")

    def resuming() -> str | None:
        """Return `sweet train RUN`, once the run has the recipe of this call."""
        has_recipe = call.run is not None and (call.run / RECIPE).exists()
        return shlex.join(["sweet", "train", str(call.run)]) if has_recipe else None

    run_stage(call, run, work=run_train, new_run=new_run, show=show_rounds, resuming=resuming)


def _preview(call: Call[LoopConfig], path: Path | None) -> None:
    from sweet.pipeline.needs import needs_of
    from sweet.pipeline.plan import plan_train
    from sweet.pipeline.recipe import resolve
    from sweet.runs.run import Run

    run = Run.open(path) if path is not None and path.exists() else None
    needs = needs_of(run, resolve(call.config, path))
    plan = plan_train(run, call.config, call.reporter).model_copy(update={"needs": needs}).as_json()
    used = plan.pop("config")
    if call.common.json:
        console.print_json({"stage": "train", "run": path and str(path), "config": used, "plan": plan})
    else:
        _show_plan(path, plan, used)


SHOWN = {
    **dict.fromkeys(("rollout", "evaluation"), ("max-turns", "temperature")),
    "rank": ("judge", "candidates", "fraction"),
    "pair": ("pairs",),
    **dict.fromkeys(("train-critic", "train-actor"), ("lr", "epochs", "batch")),
    "train-online": ("lr", "steps", "tasks-per-step", "group"),
}
"""The settings of a step that its line shows, by the table that has them."""


def _show_plan(run: Path | None, plan: Mapping[str, Any], used: Mapping[str, Any]) -> None:
    """Print what differs from the recipe, and the steps.

    Args:
        used: the settings of all tables, as table.option.
    """
    from sweet.pipeline.plan import table_of

    console.heading(f"sweet train · {run or 'a new run'}, not run · {plan['recipe']}")
    console.show(*(f"  {line}" for line in plan["changed"]))
    rows = []
    for step in plan["steps"]:
        work = step.get("work") or {}
        tokens: list[Any] = [work.get(name) for name in ("tokens_read", "tokens_written")]
        turns = work.get("turns", work.get("turns_at_most"))
        total = None if None in tokens else sum(tokens)
        table = table_of(step["step"])
        settings = ((name, used.get(f"{table}.{name}")) for name in SHOWN.get(table, ()))
        by = ", ".join(f"{name} {format_value(value)}" for name, value in settings if value is not None)
        done = (f"{number:,}" if isinstance(number, int) else "" for number in (work.get("dialogues"), turns, total))
        rows.append((step["step"], step["status"], *done, by))
    numbers = ["dialogues", "turns", "tokens"]
    console.show_rows(["step", "", *numbers, "by"], rows, right=numbers)
    needs = [
        (need["need"], need["status"], need["found"] + (f"\n{need['fix']}" if need["fix"] else ""))
        for need in plan["needs"]
    ]
    console.show_rows(["needs", "", "found"], needs)
    if plan["repeated"]:
        console.show(f"would be repeated: {'; '.join(plan['repeated'])}")
