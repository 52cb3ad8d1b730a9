"""`sweet demo --study`, as it is shown: tables on stdout, and the page with the plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweet.cli import console
from sweet.cli.command import Call
from sweet.errors import TooManyFailures
from sweet.stages.base import StageResult
from sweet.stages.statistics import p_in_words


def finish_study(call: Call[Any], study: Callable[[], StageResult]) -> None:
    """Do a study and show its results; where parts of it failed, those of the rest before the error."""
    try:
        result = study()
    except TooManyFailures as error:
        if error.result is not None:
            _tell(call, error.result)
        raise
    _tell(call, result)


def _tell(call: Call[Any], result: StageResult) -> None:
    console.finish(result, as_json=call.common.json, show_people=show_study)


def show_study(result: StageResult) -> None:
    """The results of a study as tables."""
    metrics = result.metrics
    seeds = len(metrics["seeds"])
    console.heading(f"sweet demo --study · {result.run}")
    console.show(
        console.inert(
            f"{seeds} {'seed' if seeds == 1 else 'seeds'}, {metrics['test_tasks']} unseen tasks; % [95 % over seeds]. "
            "sweet − it: in points, [95 % over tasks], p of the paired permutation test."
        )
    )
    header = ["method", "success", "tests passed", "greedy", "sweet − it", "p", "seconds"]
    console.show_rows(header, map(_method, metrics["methods"]), right=header[1:])
    _show_columns("best of N dialogues", "N", metrics["best_of"], "n")
    _show_columns("success by offline dialogues", "dialogues", metrics["offline"], "trajectories")
    _show_credit(metrics["credit"])
    console.show(console.inert(metrics["results"]))


def _method(row: Mapping[str, Any]) -> list[str]:
    against = row["against_sweet"]
    return [
        row["method"],
        *(_percent(row[name], row[f"{name}_ci"]) for name in ("success", "tests_passed", "greedy_success")),
        "" if against is None else _percent(against["difference"], against["ci"], signed=True),
        "" if against is None else p_in_words(against["p_value"]),
        f"{row['seconds']:.0f}",
    ]


def _show_columns(title: str, first: str, columns: Mapping[str, list[Any]] | None, axis: str) -> None:
    """Curves over an axis, each with its intervals beside it."""
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
    """What each critic makes of the kinds of turn, and how often it is right."""
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
    return f"{row['mean']:+.3f}" + ("" if row["ci"] is None else f" [{row['ci'][0]:+.3f}, {row['ci'][1]:+.3f}]")


def _percent(value: float, bounds: Sequence[float] | None, *, signed: bool = False) -> str:
    form = "{:+.1f}" if signed else "{:.1f}"
    shown = [form.format(100 * number) for number in (value, *(bounds or ()))]
    return shown[0] + (f" [{shown[1]}, {shown[2]}]" if bounds else "")
