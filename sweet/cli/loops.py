"""Shows the results of `sweet train`, `sweet demo` and its study: tables on stdout, and a page of a study."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.table import Table

from sweet.cli import console
from sweet.cli.spec import Call
from sweet.errors import TooManyFailures
from sweet.stages.base import StageResult
from sweet.units import count, format_duration, price

if TYPE_CHECKING:
    from sweet.study.results import StudyMetrics


def finish_study(call: Call[Any], study: Callable[[], StageResult[StudyMetrics]]) -> None:
    """Run a study and show its results. If parts of it failed, show the other results before the error."""
    from sweet.results.study_page import write_study

    try:
        result = study()
    except TooManyFailures as error:
        if error.result is not None:
            if call.common.json:
                error.found = error.result.as_json()
            else:
                show_study(error.result)
            page = write_study(error.result.run, error.result.metrics.study)
            call.reporter.say(f"Written: {page}.")
        raise
    console.print_result(result, as_json=call.common.json, draw=show_study)
    call.reporter.say(f"Written: {write_study(result.run, result.metrics.study)}.")


def show_study(result: StageResult[Any]) -> None:
    """Print the results of a study as tables."""
    from sweet.results.study_facts import methods_table, tables

    results = result.metrics.study
    console.heading(f"sweet demo --study · {result.run}")
    scope = f"{count(len(results.seeds), 'seed')}, {count(results.test_tasks, 'unseen task')}"
    console.show(console.safe_text(f"{scope}: mean [95 % interval over seeds]"))
    methods, *others = tables(results)["success"] or [methods_table(results)]
    console.show(methods.of("", 1, 2, 3))
    console.show(methods.of("sweet minus the method", 4, 5, 6))
    console.show(methods.of("what a method needs, alone", 7, 8))
    for section, listed in tables(results).items():
        for table in listed if section != "success" else others:
            if not table.folded:
                console.show(table)
    console.show(console.safe_text(result.metrics.results))


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
