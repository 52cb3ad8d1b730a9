"""Shows the results of `sweet train`, `sweet demo` and `sweet bench`: tables on stdout, and a page of a study."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sweet.cli import console
from sweet.cli.spec import Call
from sweet.errors import TooManyFailures
from sweet.stages.base import StageResult
from sweet.units import count

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
    console.heading(f"sweet bench · {result.run}")
    scope = f"{count(len(results.seeds), 'seed')}, {count(results.test_tasks, 'unseen task')}"
    methods, *other_tables = tables(results)["success"] or [methods_table(results)]
    console.show(
        f"{scope}: mean [95 % interval over seeds]",
        methods.of("", 1, 2, 3, 9),
        methods.of("sweet minus the method", 4, 5, 6),
        methods.of("what a method needs, alone", 7, 8),
    )
    for section, listed in tables(results).items():
        console.show(*(table for table in (listed if section != "success" else other_tables) if not table.folded))
    console.show(result.metrics.results)


def show_rounds(result: StageResult) -> None:
    """Print the rounds of a training as a table."""
    from sweet.view.comparison import rounds

    console.heading(f"sweet {result.stage} · {result.run}")
    console.show(*rounds(result.as_json()["metrics"]))
