"""`sweet train`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from sweet.cli import console
from sweet.cli.command import NewRun, command
from sweet.cli.spec import Call
from sweet.units import format_duration, price

if TYPE_CHECKING:
    from sweet.pipeline.config import LoopConfig
    from sweet.stages.base import StageResult

app = typer.Typer(add_completion=False)


@command(
    app,
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
    from sweet.cli.stage import run_stage, slug
    from sweet.pipeline.recipe import resolve
    from sweet.pipeline.stage import run_train
    from sweet.stages.rounds import RECIPE

    if call.common.dry_run:
        _preview(call, run)
        return
    train = resolve(call.config, None).train
    new_run = (train.task, f"train-{slug(train.tasks or train.task)}-{slug(train.agent)}")

    def resuming() -> str | None:
        """Return `sweet train RUN`, once the run has the recipe of this call."""
        made = call.run is not None and (call.run / RECIPE).exists()
        return shlex.join(["sweet", "train", str(call.run)]) if made else None

    run_stage(call, run, work=run_train, new_run=new_run, show=show_rounds, resuming=resuming)


def _preview(call: Call[LoopConfig], given: Path | None) -> None:
    from sweet.pipeline.plan import plan_train
    from sweet.pipeline.recipe import resolve
    from sweet.runs.run import Run

    run = Run.open(given) if given is not None and given.exists() else None
    settings = resolve(call.config, given).outcome()
    plan = plan_train(run, call.config, call.reporter).as_json()
    if call.common.json:
        console.print_json({"stage": "train", "run": given and str(given), "config": settings, "plan": plan})
    else:
        console.print_json(settings)
        _show_plan(given, plan)


def _show_plan(run: Path | None, plan: Mapping[str, Any]) -> None:
    console.heading(f"sweet train · {run or 'a new run'}, not run")
    table = Table("step", "", "dialogues", "turns", "tokens")
    for column in table.columns[2:]:
        column.justify = "right"
    for step in plan["steps"]:
        work = step.get("work") or {}
        tokens: list[Any] = [work.get(name) for name in ("tokens_read", "tokens_written")]
        turns = work.get("turns", work.get("turns_at_most"))
        total = None if None in tokens else sum(tokens)
        cells = [_number(value) for value in (work.get("dialogues"), turns, total)]
        table.add_row(step["step"], step["status"], *cells)
    console.show(table)
    for title, lines in (("changed since the last call", plan["changed"]), ("would be repeated", plan["repeated"])):
        if lines:
            console.show(console.safe_text(f"{title}: {'; '.join(lines)}"))


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def show_rounds(result: StageResult) -> None:
    """Print the rounds of a training as a table."""
    console.heading(f"sweet {result.stage} · {result.run}")
    metrics = result.as_json()["metrics"]
    validated = any("validation" in one for one in metrics["rounds"])
    priced = "cost" in metrics
    leaked = any(one.get("leak_rate") for one in metrics["rounds"])
    name = str(metrics["metric"]).removesuffix("_rate")
    heads = ["round", "agent", f"{name} on test tasks", *(["on validation tasks"] if validated else [])]
    heads += ["human leaked"] if leaked else []
    solved = any("cost_per_solved_task" in one for one in metrics["rounds"])
    costs = [*(["cost"] if priced else []), *(["a solved test task"] if solved else [])]
    table = Table(*heads, "dialogues", "tokens", "time", *costs)
    for column in table.columns[2:]:
        column.justify = "right"
    for one in metrics["rounds"]:
        usage = one["usage"]
        tokens = sum(count for key, count in usage.items() if key.endswith("_tokens"))
        agent = f"{one['agent']} (kept)" if one["agent"] == metrics["best"] else one["agent"]
        cells: list[Any] = [str(one["round"] or "start"), console.safe_text(agent), console.metric(one, "test")]
        cells += [console.metric(one, "validation")] if validated else []
        cells += [console.metric(one, "leak_rate") if "leak_rate" in one else "–"] if leaked else []
        cells += [f"{usage['dialogues']:,}", f"{tokens:,}", format_duration(usage["seconds"])]
        cells += [price(one["cost"])] if priced else []
        cells += [price(one["cost_per_solved_task"]) if "cost_per_solved_task" in one else "–"] if solved else []
        table.add_row(*cells)
    table.add_section()
    totals = [
        f"{sum(one['usage']['dialogues'] for one in metrics['rounds']):,}",
        "",
        format_duration(metrics["seconds"]),
    ]
    table.add_row("all", *[""] * (len(heads) - 1), *totals, *([price(metrics["cost"])] if priced else []))
    console.show(table)
