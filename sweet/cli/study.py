"""Shows the results of `sweet demo --study`: tables on stdout, and a page with plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sweet.cli import console
from sweet.cli.command import Call
from sweet.errors import TooManyFailures
from sweet.scoring.results.statistics import p_in_words
from sweet.stages.base import StageResult
from sweet.units import count, format_duration, percent, percent_bounds, plain_bounds

T = TypeVar("T")

SHOWN = 5
"""Most points of a learning curve in the table; the page has all of them."""


def finish_study(call: Call[Any], study: Callable[[], StageResult]) -> None:
    """Run a study and show its results. If parts of it failed, show the other results before the error."""
    try:
        result = study()
    except TooManyFailures as error:
        if error.result is not None:
            if call.common.json:
                error.found = error.result.as_json()
            else:
                show_study(error.result)
            _write(call, error.result)
        raise
    console.print_result(result, as_json=call.common.json, draw=show_study)
    _write(call, result)


def _write(call: Call[Any], result: StageResult) -> None:
    """Write the page next to the results."""
    from sweet.study.results import read_results
    from sweet.view.study import write_report

    written = write_report(result.run, read_results(Path(result.as_json()["metrics"]["results"])))
    if written.remark:
        call.reporter.say(written.remark)
    call.reporter.say(f"Written: {written.page}.")


def show_study(result: StageResult) -> None:
    """Print the results of a study as tables."""
    metrics = result.as_json()["metrics"]
    console.heading(f"sweet demo --study · {result.run}")
    scope = f"{count(len(metrics['seeds']), 'seed')}, {count(metrics['test_tasks'], 'unseen task')}"
    console.show(console.safe_text(f"{scope}: mean [95 % interval over seeds]"))
    header = ["method", "success", "tests passed", "greedy"]
    console.show_rows(header, map(_method, metrics["methods"]), right=header[1:])
    console.heading("sweet minus the method, in points")
    header = ["method", "difference [over tasks]", "[over seeds]", "p"]
    console.show_rows(header, map(_against, metrics["methods"]), right=header[1:])
    console.heading("what a method needs, alone")
    header = ["method", "generated tokens", "time"]
    console.show_rows(header, map(_cost, metrics["methods"]), right=header[1:])
    _show_curves(metrics["methods"])
    _show_columns("best of N replies at each turn", "N", metrics["best_of_turns"], "n")
    _show_columns("best of N finished dialogues", "N", metrics["best_of"], "n")
    _show_credit(metrics["credit"])
    console.show(console.safe_text(metrics["results"]))


def _method(row: Mapping[str, Any]) -> list[str]:
    rates = ("success", "tests_passed", "greedy_success")
    return [row["method"], *(_percent(row[name], row[f"{name}_ci"]) for name in rates)]


def _against(row: Mapping[str, Any]) -> list[str]:
    """Return the difference with its intervals."""
    against = row["against_sweet"]
    if against is None:
        return [row["method"], "", "", ""]
    difference = _percent(against["difference"], against["ci"], signed=True)
    return [
        row["method"],
        difference,
        _bounds(against["seeds_ci"], signed=True),
        p_in_words(against["p_value"]),
    ]


def _cost(row: Mapping[str, Any]) -> list[str]:
    """Return the tokens that the agent generated for the method, and the seconds of its steps: means over seeds."""
    return [row["method"], _number(row["generated_tokens"]), format_duration(row["seconds"])]


def _show_curves(methods: Sequence[Mapping[str, Any]]) -> None:
    """Print the learning curves, and what they had reached when `sweet` was done."""
    learned = [row for row in methods if row["curve"]]
    if not learned:
        return
    console.heading("success on validation tasks by generated tokens")
    header = ["method", "generated tokens", "time", "success"]
    rows = [
        [
            row["method"],
            _number(at["tokens"]),
            format_duration(at["seconds"]),
            _percent(at["success"], at["success_ci"]),
        ]
        for row in learned
        for at in _some(row["curve"])
    ]
    console.show_rows(header, rows, right=header[1:])
    console.heading("the same within the time that sweet needs")
    header = ["method", "success", "sweet minus it, in points", "generated tokens"]
    read = [(row["method"], row["at_equal_seconds"]) for row in learned if row["at_equal_seconds"] is not None]
    rows = [
        [
            name,
            _percent(at["success"], at["success_ci"]),
            _percent(at["sweet_minus"], at["sweet_minus_ci"], signed=True),
            _number(at["tokens"]),
        ]
        for name, at in read
    ]
    console.show_rows(header, rows, right=header[1:])


def _some(curve: Sequence[T]) -> list[T]:
    """Return at most SHOWN points of a curve at equal distances, the first and the last among them."""
    last = len(curve) - 1
    return [curve[at] for at in sorted({round(last * part / (SHOWN - 1)) for part in range(SHOWN)})]


def _number(tokens: float | None) -> str:
    return "" if tokens is None else f"{tokens:,.0f}"


def _show_columns(title: str, first: str, columns: Mapping[str, list[Any]] | None, axis: str) -> None:
    """Print curves over an axis, each value with its interval."""
    if columns is None:
        return
    console.heading(title)
    names = [name for name in columns if name != axis and not name.endswith("_ci")]
    rows = [
        [f"{at:,.0f}", *(_percent(columns[name][index], columns[f"{name}_ci"][index]) for name in names)]
        for index, at in enumerate(columns[axis])
    ]
    header = [first, *(name.replace("_", " ") for name in names)]
    console.show_rows(header, rows, right=header)


def _show_credit(credit: Mapping[str, Any] | None) -> None:
    """Print each critic's mean advantage by kind of turn, and how often it orders replies correctly."""
    if credit is None:
        return
    judges = list(credit["agreement"])
    named = [judge.replace("_", " ") for judge in judges]
    console.heading("mean advantage by kind of turn")
    kinds = sorted({kind for judge in judges for kind in credit[judge]})
    rows = [[kind, *(_spread(credit[judge].get(kind)) for judge in judges)] for kind in kinds]
    console.show_rows(["turn", *named], rows, right=named)
    console.heading("replies of a turn in the true order")
    couples = sorted({couple for judge in judges for couple in credit["agreement_by_kind"][judge]})
    rows = [["all", *(_share(credit["agreement"][judge]) for judge in judges)]]
    rows += [
        [couple, *(_share(credit["agreement_by_kind"][judge].get(couple)) for judge in judges)] for couple in couples
    ]
    console.show_rows(["couple", *named], rows, right=named)


def _share(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else _percent(row["share"], row["ci"])


def _spread(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    low, high = row["ci"] or (None, None)
    return f"{row['mean']:+.3f} {plain_bounds(low, high)}".rstrip()


def _percent(value: float, bounds: Sequence[float] | None, *, signed: bool = False) -> str:
    return f"{percent(value, signed=signed)} {_bounds(bounds, signed=signed)}".rstrip()


def _bounds(bounds: Sequence[float] | None, *, signed: bool = False) -> str:
    low, high = bounds or (None, None)
    return percent_bounds(low, high, signed=signed)
