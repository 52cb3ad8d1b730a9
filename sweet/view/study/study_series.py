"""The results of a study as the series and rates that are drawn and put into tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sweet.report.schema import Point, Rate, Series
from sweet.study.results import INTERVALS, Bounds, Columns, MethodResult, StudyResults
from sweet.view.study.display_names import GROUPS, JUDGES, KINDS, METHODS, SWEET, known_first

OTHERS = "others"


def groups(results: StudyResults) -> dict[str, list[MethodResult]]:
    """The methods under what they have in common; those that are not known come last."""
    by_name = {one.method: one for one in results.methods}
    found = {title: [by_name[name] for name in names if name in by_name] for title, names in GROUPS.items()}
    found[OTHERS] = [one for one in results.methods if one.method not in METHODS]
    return {title: methods for title, methods in found.items() if methods}


def methods(results: StudyResults) -> list[MethodResult]:
    """In the order in which they are shown."""
    return [one for found in groups(results).values() for one in found]


def rate(name: str, mean: float, ci: Bounds | None) -> Rate:
    low, high = ci or (None, None)
    return Rate(name=name, mean=mean, low=low, high=high)


def best_of(results: StudyResults) -> list[Series]:
    """Success by N, for each that picks."""
    return list(_series(results.best_of or {}, "n", JUDGES))


def offline(results: StudyResults) -> list[Series]:
    """Success by the number of offline dialogues, for each method; `sweet` first, as the critic is elsewhere."""
    return list(_series(results.offline or {}, "trajectories", {name: name for name in (SWEET, *METHODS)}))


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
    """The mean advantage of each kind of turn, by critic."""
    if results.credit is None:
        return {}
    by_critic = {JUDGES["critic"]: results.credit.critic, JUDGES["no_info"]: results.credit.no_info}
    return {
        judge: [rate(KINDS.get(kind, kind), found[kind].mean, found[kind].ci) for kind in known_first(found, KINDS)]
        for judge, found in by_critic.items()
        if found
    }


def agreement(results: StudyResults) -> list[Rate]:
    """How often the order of each critic is the true one."""
    found = results.credit.agreement if results.credit else {}
    return [rate(JUDGES.get(name, name), found[name].share, found[name].ci) for name in known_first(found, JUDGES)]


def agreement_by_kind(results: StudyResults) -> dict[str, list[Rate]]:
    """The same by the kinds of the two replies, by critic."""
    found = results.credit.agreement_by_kind if results.credit else {}
    return {
        JUDGES.get(name, name): [rate(_pair(kinds), told.share, told.ci) for kinds, told in found[name].items()]
        for name in known_first(found, JUDGES)
        if found[name]
    }


def _pair(kinds: str) -> str:
    return " over ".join(KINDS.get(kind, kind) for kind in kinds.split(">"))


def verdict(results: StudyResults) -> dict[str, list[str]]:
    """The methods that `sweet` is above, below, or cannot be told from: by both intervals of the paired difference,
    over tasks and over seeds. Where one of them is not known it is open."""
    found: dict[str, list[str]] = {"above": [], "below": [], "open": []}
    for one in methods(results):
        if one.against_sweet is None or one.method == SWEET:
            continue
        intervals = [one.against_sweet.ci, one.against_sweet.seeds_ci]
        if all(ci is not None and ci[0] > 0 for ci in intervals):
            found["above"].append(one.method)
        elif all(ci is not None and ci[1] < 0 for ci in intervals):
            found["below"].append(one.method)
        else:
            found["open"].append(one.method)
    return found


def verdict_in_words(results: StudyResults) -> list[str]:
    """A sentence for each of the three, where there are such methods. Names of methods may be any text."""
    found = verdict(results)
    sentences = {
        "above": "Both intervals of the paired difference, over tasks and over seeds, lie above zero for sweet less",
        "below": "Both intervals of the paired difference lie below zero for sweet less",
        "open": "At least one of the two intervals leaves it open for sweet less",
    }
    return [f"{words} {', '.join(found[kind])}." for kind, words in sentences.items() if found[kind]]
