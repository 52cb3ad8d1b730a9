"""The series, rates and tables of a study: what its page, the terminal and README show of `study.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sweet.results.facts import Point, Rate, Series
from sweet.results.scales import minus, short
from sweet.scoring.results.statistics import p_in_words
from sweet.study.results import Against, BestOf, Estimate, MethodResult, StudyResults
from sweet.study.settings import METHODS
from sweet.units import format_duration, percent, percent_bounds, plain_bounds
from sweet.view.comparison import Section, UntrustedText

SWEET = "sweet"
PLUS = "sweet-plus"

JUDGES = {
    "critic": "critic",
    "no_info": "no-info critic",
    "oracle": "oracle",
    "random": "random",
    "untrained": "untrained",
}
"""The judges that choose the best of N, or credit turns."""

KINDS = {
    "useful": "useful question",
    "useless": "useless question",
    "repeated": "repeated question",
    "early": "early answer",
    "full": "full answer",
    "partial": "partial answer",
    "wrong": "wrong answer",
    "part": "right part of an answer",
    "early part": "early part",
    "wrong part": "wrong part",
    "lost": "after an early or wrong part",
}
"""Kinds of turns."""

FAMILIES = {
    "micro": "generated tasks",
    "micro-long": "generated tasks with long dialogues",
    "micro-parts": "generated tasks whose answers are built in parts",
    "desk": "generated wishes at a desk with tools",
    "orders": "generated orders in a shop",
    "orders-long": "generated orders in a shop with longer dialogues",
}
"""Families of tasks."""

SMALL_AGENT = "an agent of a million parameters"
"""The agent if no model is named."""
BY_BOTH = "By both intervals of the paired difference, over tasks and over seeds, "
OTHERS = "others"
UNKNOWN = (None, None)
"""The bounds of an interval that is not known."""


def about(family: str, model: str | None = None) -> str:
    """Describe the scope of the results of a model on a family of tasks; without a model for the packaged agent."""
    tasks = FAMILIES.get(family, f"the generated tasks {family!r}")
    agent = model or SMALL_AGENT
    return f"A small proof on {tasks} and {agent}: not the results of the paper, and no evidence about large models."


def known_first(names: Iterable[str], order: Iterable[str]) -> list[str]:
    """Return the known names in the given order, then the others in their own order."""
    found = list(names)
    known = [name for name in order if name in found]
    return known + [name for name in found if name not in known]


def groups(results: StudyResults) -> dict[str, list[MethodResult]]:
    """Return the methods by group; unknown methods come last."""
    by_name = {one.method: one for one in results.methods}
    grouped: dict[str, list[MethodResult]] = {}
    for name in known_first(by_name, METHODS):
        group = METHODS[name].group if name in METHODS else OTHERS
        grouped.setdefault(group, []).append(by_name[name])
    return grouped


def methods(results: StudyResults) -> list[MethodResult]:
    """Return the methods in the order of display."""
    return [one for group in groups(results).values() for one in group]


def rate(name: str, found: Estimate) -> Rate:
    low, high = found.ci or UNKNOWN
    return Rate(name=name, mean=found.mean, low=low, high=high)


def _point(x: float, y: Estimate) -> Point:
    low, high = y.ci or UNKNOWN
    return Point(x=x, y=y.mean, low=low, high=high)


def learning(results: StudyResults) -> list[Series]:
    """Return success on validation tasks by the tokens that the agent generated, for each method with a curve; `sweet`
    first."""
    points = {
        one.method: [_point(at.tokens, at.success) for at in one.curve if at.tokens is not None]
        for one in results.methods
    }
    order = known_first(points, dict.fromkeys((SWEET, *METHODS)))
    return [Series(name=name, points=points[name]) for name in order if points[name]]


def best_of(found: Mapping[str, Sequence[BestOf]] | None) -> list[Series]:
    """Return success by the number of dialogues, or of replies at each turn, that each judge chooses from."""
    points = {name: [_point(at.n, at.success) for at in curve] for name, curve in (found or {}).items()}
    order = known_first(points, JUDGES)
    return [Series(name=JUDGES.get(name, name), points=points[name]) for name in order if points[name]]


def credit(results: StudyResults) -> dict[str, list[Rate]]:
    """Return the mean advantage of each kind of turn, by critic."""
    if results.credit is None:
        return {}
    by_critic = {JUDGES["critic"]: results.credit.critic, JUDGES["no_info"]: results.credit.no_info}
    return {
        judge: [rate(KINDS.get(kind, kind), found[kind]) for kind in known_first(found, KINDS)]
        for judge, found in by_critic.items()
        if found
    }


def agreement(results: StudyResults) -> dict[str, list[Rate]]:
    """Return how often the order of each judge is the true one: for all couples, and by the kinds of a couple."""
    if results.credit is None:
        return {}
    found, by_kind = results.credit.agreement, results.credit.agreement_by_kind
    return {
        JUDGES.get(name, name): [
            rate("all", found[name]),
            *(rate(_pair(kinds), one) for kinds, one in by_kind.get(name, {}).items()),
        ]
        for name in known_first(found, JUDGES)
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
        intervals = [against.difference.ci, against.seeds_ci]
        if all(ci is not None and ci[0] > 0 for ci in intervals):
            found["above"].append(one.method)
        elif all(ci is not None and ci[1] < 0 for ci in intervals):
            found["below"].append(one.method)
        else:
            found["open"].append(one.method)
    return found


def verdict_in_words(results: StudyResults, start: str = BY_BOTH) -> list[str]:
    """Return a sentence on `sweet` and one on `sweet-plus`: the methods that each is above, below or close to.

    Names of methods may be untrusted text.
    """
    words = {"above": "is above", "below": "is below", "open": "is not clearly different from"}
    sentences = []
    for ours in AGAINST:
        cases = [f"{words[kind]} {', '.join(names)}" for kind, names in verdict(results, ours).items() if names]
        if cases:
            sentences.append(f"{start}{ours} {'; '.join(cases)}.")
    return sentences


def tables(results: StudyResults) -> dict[str, list[Section]]:
    """Return the tables with rows, by the section that they are in."""
    found = {
        "success": [methods_table(results), _by_seed(results), _tries(results)],
        "learning": [*_learning(results)],
        "best-of-turns": [_over_n("best of N replies at each turn", best_of(results.best_of_turns))],
        "best-of": [_over_n("best of N finished dialogues", best_of(results.best_of))],
        "credit": [
            _rates_by_judge("mean advantage by kind of turn", "turn", credit(results), advantage_text),
            _rates_by_judge("replies of a turn in the true order", "couple", agreement(results), share_text),
        ],
    }
    return {section: [table for table in listed if table.rows] for section, listed in found.items()}


def methods_table(results: StudyResults) -> Section:
    """Return the rates, the difference and the cost of each method."""
    rows = []
    for one in methods(results):
        against = ["", "", ""]
        if one.against_sweet is not None:
            difference = difference_text(one.against_sweet.difference)
            seeds = percent_bounds(*(one.against_sweet.seeds_ci or UNKNOWN), signed=True)
            against = [difference, minus(seeds), p_in_words(one.against_sweet.p_value)]
        rates = [share_text(rate("", found)) for found in (one.success, one.tests_passed, one.greedy_success)]
        cost = [number_text(one.generated_tokens), format_duration(one.seconds)]
        order = "" if one.agreement is None else share_text(rate("", one.agreement))
        rows.append([one.method, *rates, *against, *cost, order])
    header = ["method", "success", "tests passed", "greedy", "sweet minus it", "over seeds", "p"]
    header += ["generated tokens", "time", "credit in order"]
    return _section("", header, rows, notes={name: one.what for name, one in METHODS.items()})


def _section(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], **more: Any) -> Section:
    """Return a table whose first column has names from the results."""
    return Section(title, header, [(UntrustedText(name), *cells) for name, *cells in rows], **more)


def _by_seed(results: StudyResults) -> Section:
    rows = [
        [one.method, *map(percent, one.success_by_seed)]
        for one in methods(results)
        if len(one.success_by_seed) == len(results.seeds)
    ]
    return _section("success of each seed", ["method", *map(str, results.seeds)], rows, folded=True)


def _tries(results: StudyResults) -> Section:
    rows = [
        [name, percent(one.success), ", ".join(_differences(tries[0].settings, one.settings)) or "as given"]
        for name, tries in (results.tries or {}).items()
        for one in tries
    ]
    return _section("settings tried on validation tasks", ["method", "success", "settings"], rows, folded=True)


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of stages that the second settings have otherwise."""
    for stage, options in second.items():
        for name, value in options.items() if isinstance(options, Mapping) else ():
            if value != first.get(stage, {}).get(name):
                yield f"{stage} {name} {value}"


def _learning(results: StudyResults) -> Iterator[Section]:
    curves = [one for one in methods(results) if one.curve]
    points = [
        [
            one.method,
            number_text(at.tokens),
            format_duration(at.seconds),
            share_text(rate("", at.success)),
        ]
        for one in curves
        for at in one.curve
    ]
    header = ["method", "generated tokens", "time", "success"]
    yield _section("success on validation tasks by generated tokens", header, points, folded=True)
    ends = [
        [
            one.method,
            share_text(rate("", at.success)),
            difference_text(at.sweet_minus),
            number_text(at.tokens),
        ]
        for one in curves
        if (at := one.at_equal_seconds) is not None
    ]
    header = ["method", "success", "sweet minus it", "generated tokens"]
    yield _section("success on validation tasks within the time that sweet needs", header, ends)


def _over_n(title: str, series: Sequence[Series]) -> Section:
    cells = [
        {point.x: share_text(Rate(name="", mean=point.y, low=point.low, high=point.high)) for point in one.points}
        for one in series
    ]
    numbers = sorted({number for curve in cells for number in curve})
    rows = [[short(number), *(curve.get(number, "") for curve in cells)] for number in numbers]
    return _section(title, ["N", *(one.name for one in series)], rows)


def _rates_by_judge(
    title: str, first: str, judges: Mapping[str, Sequence[Rate]], text: Callable[[Rate], str]
) -> Section:
    """Return a table with a column for each judge and a row for each name of a rate."""
    names = dict.fromkeys(rate.name for rates in judges.values() for rate in rates)
    found = [{rate.name: text(rate) for rate in rates} for rates in judges.values()]
    return _section(title, [first, *judges], [[name, *(cells.get(name, "") for cells in found)] for name in names])


def share_text(rate: Rate) -> str:
    return minus(f"{percent(rate.mean)} {percent_bounds(rate.low, rate.high)}".rstrip())


def advantage_text(rate: Rate) -> str:
    return minus(f"{rate.mean:+.3f} {plain_bounds(rate.low, rate.high)}".rstrip())


def difference_text(difference: Estimate) -> str:
    """Return a difference of shares with its interval, in percentage points."""
    bounds = percent_bounds(*(difference.ci or UNKNOWN), signed=True)
    return minus(f"{percent(difference.mean, signed=True)} {bounds}".rstrip())


def number_text(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"
