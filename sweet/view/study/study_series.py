"""Convert the results of a study to the series and rates of its plots and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sweet.report.schema import Point, Rate, Series
from sweet.study.results import INTERVALS, Against, Bounds, Columns, MethodResult, StudyResults
from sweet.view.study.display_names import GROUPS, JUDGES, KINDS, METHODS, PLUS, SWEET, known_first

OTHERS = "others"


def groups(results: StudyResults) -> dict[str, list[MethodResult]]:
    """Return the methods by group; unknown methods come last."""
    by_name = {one.method: one for one in results.methods}
    grouped = {title: [by_name[name] for name in names if name in by_name] for title, names in GROUPS.items()}
    grouped[OTHERS] = [one for one in results.methods if one.method not in METHODS]
    return {title: methods for title, methods in grouped.items() if methods}


def methods(results: StudyResults) -> list[MethodResult]:
    """Return the methods in the order of display."""
    return [one for group in groups(results).values() for one in group]


def rate(name: str, mean: float, ci: Bounds | None) -> Rate:
    low, high = ci or (None, None)
    return Rate(name=name, mean=mean, low=low, high=high)


def best_of(results: StudyResults) -> list[Series]:
    """Return success by the number of finished dialogues that each judge chooses from."""
    return list(_series(results.best_of or {}, "n", JUDGES))


def best_of_turns(results: StudyResults) -> list[Series]:
    """Return success by the number of replies that each judge chooses from at each turn."""
    return list(_series(results.best_of_turns or {}, "n", JUDGES))


def offline(results: StudyResults) -> list[Series]:
    """Return success by the number of offline dialogues for each method; `sweet` first, like the critic elsewhere."""
    return list(_series(results.offline or {}, "trajectories", {name: name for name in (SWEET, *METHODS)}))


def learning(results: StudyResults) -> list[Series]:
    """Return success on validation tasks by the tokens that the agent generated, for each method with a curve; `sweet`
    first."""
    by_name = {one.method: one for one in results.methods if one.curve}
    series = []
    for name in known_first(by_name, dict.fromkeys((SWEET, *METHODS))):
        points = [
            Point(
                x=at.tokens,
                y=at.success,
                low=at.success_ci and at.success_ci[0],
                high=at.success_ci and at.success_ci[1],
            )
            for at in by_name[name].curve
            if at.tokens is not None
        ]
        if points:
            series.append(Series(name=name, points=points))
    return series


def _series(columns: Columns, over: str, names: Mapping[str, str]) -> Iterator[Series]:
    curves = [name for name in columns if name != over and not name.endswith(INTERVALS)]
    for name in known_first(curves, names):
        drawn: Iterable[tuple[Any, Any, Any]] = zip(
            columns[over],
            columns[name],
            columns.get(name + INTERVALS) or [None] * len(columns[name]),
            strict=True,
        )
        points = [Point(x=x, y=y, low=ci and ci[0], high=ci and ci[1]) for x, y, ci in drawn]
        if points:
            yield Series(name=names.get(name, name), points=points)


def credit(results: StudyResults) -> dict[str, list[Rate]]:
    """Return the mean advantage of each kind of turn, by critic."""
    if results.credit is None:
        return {}
    by_critic = {JUDGES["critic"]: results.credit.critic, JUDGES["no_info"]: results.credit.no_info}
    return {
        judge: [rate(KINDS.get(kind, kind), found[kind].mean, found[kind].ci) for kind in known_first(found, KINDS)]
        for judge, found in by_critic.items()
        if found
    }


def agreement(results: StudyResults) -> list[Rate]:
    """Return how often the order of each critic is the true one."""
    found = results.credit.agreement if results.credit else {}
    return [rate(JUDGES.get(name, name), found[name].share, found[name].ci) for name in known_first(found, JUDGES)]


def agreement_by_kind(results: StudyResults) -> dict[str, list[Rate]]:
    """Return the agreement by the kinds of the two replies, by critic."""
    found = results.credit.agreement_by_kind if results.credit else {}
    return {
        JUDGES.get(name, name): [rate(_pair(kinds), one.share, one.ci) for kinds, one in found[name].items()]
        for name in known_first(found, JUDGES)
        if found[name]
    }


def _pair(kinds: str) -> str:
    return " over ".join(KINDS.get(kind, kind) for kind in kinds.split(">"))


AGAINST: dict[str, Callable[[MethodResult], Against | None]] = {
    SWEET: lambda one: one.against_sweet,
    PLUS: lambda one: one.against_plus,
}
"""The methods that the others are compared with, and where the results have the difference."""


def verdict(results: StudyResults, ours: str = SWEET) -> dict[str, list[str]]:
    """Return the methods that `ours` is above, below, or not distinguishable from.

    The decision uses both intervals of the paired difference, over tasks and over seeds; if one is missing, it is open.
    """
    found: dict[str, list[str]] = {"above": [], "below": [], "open": []}
    for one in methods(results):
        against = AGAINST[ours](one)
        if against is None or one.method == ours:
            continue
        intervals = [against.ci, against.seeds_ci]
        if all(ci is not None and ci[0] > 0 for ci in intervals):
            found["above"].append(one.method)
        elif all(ci is not None and ci[1] < 0 for ci in intervals):
            found["below"].append(one.method)
        else:
            found["open"].append(one.method)
    return found


def verdict_in_words(results: StudyResults) -> list[str]:
    """Return a sentence for each of the three cases that has methods, for `sweet` and for `sweet-plus`.

    Names of methods may be untrusted text.
    """
    sentences = {
        "above": "Both intervals of the paired difference, over tasks and over seeds, are above zero for",
        "below": "Both intervals of the paired difference are below zero for",
        "open": "At least one of the two intervals includes zero or is missing for",
    }
    found = {ours: verdict(results, ours) for ours in AGAINST}
    return [
        f"{words} {ours} minus {', '.join(cases[kind])}."
        for ours, cases in found.items()
        for kind, words in sentences.items()
        if cases[kind]
    ]
