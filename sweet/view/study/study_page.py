"""The HTML page of a study. Every text of the results is escaped, because they come from a file."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from sweet.json_value import JsonValue
from sweet.report.schema import Rate, Series
from sweet.scoring.results.statistics import p_in_words
from sweet.study.results import Bounds, MethodResult, StudyResults
from sweet.units import percent, percent_bounds, plain_bounds
from sweet.view.html import head, line, resource
from sweet.view.report.html_parts import duration, folded, note, section, table, value
from sweet.view.report.scales import minus, short
from sweet.view.study import study_series
from sweet.view.study.display_names import METHODS, about
from sweet.view.study.plots import DPI

SHOWN_AT = 110
"""Pixels of the page per inch of a plot."""

ALTERNATIVES = {
    "success": "Bars: success of each method, with its interval; the table has the numbers.",
    "best-of-turns": "Curves: success with the best of N replies at each turn; the table has the numbers.",
    "best-of": "Curves: success of the best of N finished dialogues; the table has the numbers.",
    "offline": "Curves: success by the number of offline dialogues; the table has the numbers.",
    "learning": "Curves: success on validation tasks by generated tokens; the table has the numbers.",
    "credit": "The mean advantage of each kind of turn, with its interval; the table has the numbers.",
}


def page(results: StudyResults, plots: Mapping[str, bytes], remark: str = "") -> Iterator[str]:
    """Yield the page in parts.

    Args:
        plots: PNG files by section.
        remark: a sentence about what is missing.
    """
    title = f"{results.family} · study"
    yield head(title, resource("transcript.css", "report/report.css", "study/study.css"), pictures=True)
    yield f"<header>\n{_masthead(results, title)}</header>\n<main>\n"
    if remark:
        yield note(remark)
    yield section("success", "Success", _plot("success", plots) + _methods(results) + _verdict(results))
    yield section("learning", "Learning curves", _learning(results, plots))
    turns = _curves("best-of-turns", plots, study_series.best_of_turns(results), "N")
    yield section("best-of-turns", "Best of N replies at each turn", turns and _paragraph(BEST_OF_TURNS) + turns)
    best_of = _curves("best-of", plots, study_series.best_of(results), "N")
    yield section("best-of", "Choosing among finished dialogues", best_of and _paragraph(BEST_OF) + best_of)
    yield section("offline", "Offline dialogues", _curves("offline", plots, study_series.offline(results), "dialogues"))
    yield section("credit", "Credit by kind of turn", _credit(results, plots))
    yield section("settings", "Settings", _settings(results))
    yield section("reading", "How to read this", "".join(map(_paragraph, READING)))
    yield "</main>\n</body>\n</html>\n"


BEST_OF_TURNS = (
    "At each turn of a dialogue the agent that all methods start from samples N replies, a judge chooses one, and the "
    "dialogue goes on with it: Best-of-N as in the paper's figure 3a. The judges are those of the methods: the critic, "
    "the critic that does not see the reference solution, the oracle, and the untrained agent with the solution. "
    "Choosing at random is equal to N = 1. This measures how well they distinguish replies, and says nothing about a "
    "trained agent: most judges see the reference solution."
)

BEST_OF = (
    "The same agent plays N dialogues of each task to their end, and one of them is chosen: by the critic, by the "
    "critic that does not see the reference solution, by the oracle (a success if there is one), or at random. This "
    "measures how well they distinguish good dialogues from bad ones."
)

LEARNING = (
    "Success on validation tasks by the tokens that the agent generated for the method, its evaluations excluded. All "
    "methods start at the same agent. A method that learns online, from its own actor's dialogues, has a point after "
    "every few steps of its training; any other one has a point for each part of the tokens, each a whole training."
)

EQUAL_SECONDS = (
    "At equal wall clock: the last point of each curve within the time that sweet needs on the same seed. "
    "The intervals are over seeds."
)

READING = (
    "Each seed draws its own data, training and samples. All methods of a seed start from the same agent; those that "
    "learn from ranked replies learn from the same sampled replies, each with its own judge. All are evaluated on the "
    "same unseen tasks.",
    "Generated tokens are all that the agent wrote for a method to learn from, dialogues and sampled replies; the time "
    "is that of all its steps. A step that methods share counts for each of them, as if each ran alone.",
    "A mean over seeds is followed by its 95 % t-interval over seeds, which estimates how much another draw of data, "
    "training and sampling would change it.",
    "The difference is paired: sweet minus the other method, on the same tasks. Its first interval is a bootstrap over "
    "tasks (other tasks of the same kind), its second a t-interval over the seeds' differences (other trainings). A "
    "finding should hold in both.",
    "An advantage of a critic is in nats a token, positive if the critic prefers a turn more than the model that it "
    "was trained from. Agreement counts pairs of replies of one turn whose true values differ; chance reaches a half.",
)


def _masthead(results: StudyResults, title: str) -> str:
    facts = {
        "tasks": results.family,
        "seeds": ", ".join(map(str, results.seeds)),
        "unseen tasks": f"{results.test_tasks:,}",
        **{name: value(found) for name, found in results.versions.items()},
    }
    listed = "".join(f"<div><dt>{line(name)}</dt><dd>{line(fact)}</dd></div>" for name, fact in facts.items())
    return f"<h1>{line(title)}</h1>\n{_paragraph(about(results.family, results.model))}<dl>{listed}</dl>\n"


def _methods(results: StudyResults) -> str:
    header = ["", "success", "greedy", "tests passed", "sweet minus it", "over seeds", "p", "generated tokens", "time"]
    listed = table(header, map(_method, study_series.methods(results)), "lrrrrrrrr")
    return f'<div class="methods">{listed}</div>\n' + folded("success of each seed", _by_seed(results))


def _method(one: MethodResult) -> list[str]:
    rates = [
        study_series.rate("success", one.success, one.success_ci),
        study_series.rate("greedy", one.greedy_success, one.greedy_success_ci),
        study_series.rate("tests passed", one.tests_passed, one.tests_passed_ci),
    ]
    compared = ["", "", ""]
    if (against := one.against_sweet) is not None:
        compared = [
            f"<b>{minus(percent(against.difference, signed=True))}</b> {_interval(_difference_bounds(against.ci))}",
            _interval(_difference_bounds(against.seeds_ci)),
            line(p_in_words(against.p_value)),
        ]
    name = f'<b>{line(one.method)}</b><br><span class="note">{line(METHODS.get(one.method, ""))}</span>'
    return [name, *map(_rate_cell, rates), *compared, _number(one.generated_tokens), duration(one.seconds)]


def _rate_cell(rate: Rate) -> str:
    return f"{minus(percent(rate.mean))} {_interval(percent_bounds(rate.low, rate.high))}"


def _advantage_cell(rate: Rate) -> str:
    return f"{minus(f'{rate.mean:+.3f}')} {_interval(plain_bounds(rate.low, rate.high))}"


def _interval(bounds: str) -> str:
    return f'<span class="ci">{minus(bounds)}</span>' if bounds else ""


def _difference_bounds(ci: Bounds | None) -> str:
    return percent_bounds(*(ci or (None, None)), signed=True)


def _by_seed(results: StudyResults) -> str:
    rows = [
        [line(one.method), *map(percent, one.success_by_seed)]
        for one in study_series.methods(results)
        if len(one.success_by_seed) == len(results.seeds)
    ]
    return table(["", *map(str, results.seeds)], rows, "l" + "r" * len(results.seeds))


def _learning(results: StudyResults, plots: Mapping[str, bytes]) -> str:
    curves = {one.method: one for one in study_series.methods(results) if one.curve}
    if not curves:
        return ""
    points = [
        [line(name) if first else "", _number(at.tokens), duration(at.seconds), _rate_cell(rate)]
        for name, one in curves.items()
        for first, at in zip([True] + [False] * len(one.curve), one.curve, strict=False)
        for rate in [study_series.rate("", at.success, at.success_ci)]
    ]
    read = [
        [
            line(name),
            _rate_cell(study_series.rate("", at.success, at.success_ci)),
            f"{minus(percent(at.sweet_minus, signed=True))} {_interval(_difference_bounds(at.sweet_minus_ci))}",
            _number(at.tokens),
        ]
        for name, one in curves.items()
        if (at := one.at_equal_seconds) is not None
    ]
    return (
        _plot("learning", plots)
        + _paragraph(LEARNING)
        + folded("the points of the curves", table(["", "generated tokens", "time", "success"], points, "lrrr"))
        + (_paragraph(EQUAL_SECONDS) if read else "")
        + table(["", "success", "sweet minus it", "generated tokens"], read, "lrrr")
    )


def _number(tokens: float | None) -> str:
    return "" if tokens is None else f"{tokens:,.0f}"


def _verdict(results: StudyResults) -> str:
    return "".join(map(_paragraph, study_series.verdict_in_words(results)))


def _paragraph(content: str) -> str:
    return f'<p class="about">{line(content)}</p>\n'


def _curves(name: str, plots: Mapping[str, bytes], series: Sequence[Series], over: str) -> str:
    cells = [
        {point.x: _rate_cell(Rate(name="", mean=point.y, low=point.low, high=point.high)) for point in one.points}
        for one in series
    ]
    numbers = sorted({number for curve in cells for number in curve})
    rows = [[short(number), *(curve.get(number, "") for curve in cells)] for number in numbers]
    return _plot(name, plots) + table([over, *(one.name for one in series)], rows, "r" * (1 + len(series)))


def _credit(results: StudyResults, plots: Mapping[str, bytes]) -> str:
    agreed = [[line(rate.name), _rate_cell(rate)] for rate in study_series.agreement(results)]
    return (
        _plot("credit", plots)
        + _by_judge("mean advantage", study_series.credit(results), _advantage_cell)
        + table(["agreement with the true order", ""], agreed, "lr")
        + folded(
            "agreement by the kinds of the two replies",
            _by_judge("", study_series.agreement_by_kind(results), _rate_cell),
        )
    )


def _by_judge(title: str, judges: Mapping[str, Sequence[Rate]], cell: Callable[[Rate], str]) -> str:
    """Return a table with a column for each judge and a row for each name of a rate."""
    names = dict.fromkeys(rate.name for rates in judges.values() for rate in rates)
    found = [{rate.name: cell(rate) for rate in rates} for rates in judges.values()]
    rows = [[line(name), *(cells.get(name, "") for cells in found)] for name in names]
    return table([title, *judges], rows, "l" + "r" * len(judges))


def _settings(results: StudyResults) -> str:
    content = _pairs(results.settings)
    for one in results.methods:
        content += folded(one.method, _pairs(one.settings)) if one.settings else ""
    return content


def _pairs(found: Mapping[str, JsonValue]) -> str:
    return table(["option", "value"], [[line(name), f"<code>{line(value(one))}</code>"] for name, one in found.items()])


def _plot(name: str, plots: Mapping[str, bytes]) -> str:
    if name not in plots:
        return ""
    png = plots[name]
    width, height = (round(pixels / DPI * SHOWN_AT) for pixels in struct.unpack(">II", png[16:24]))
    address = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return (
        f'<figure class="plot"><img alt="{ALTERNATIVES[name]}" width="{width}" height="{height}" src="{address}"/>'
        "</figure>\n"
    )
