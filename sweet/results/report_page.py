"""The report of a run as a page without scripts (`report.html.j2`), and as a short Markdown text (`report.md.j2`).

`sweet.results.collect` computes their content.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from markupsafe import Markup

from sweet.results import charts, pages
from sweet.results.facts import OnlineFact, Report, ScoresFact, Series, TrainingFact
from sweet.results.training_facts import TRAINED
from sweet.units import metric_name
from sweet.view.comparison import Section, humans, rounds, samples

SHOWN_METRICS = ("epochs", "batch", "examples", "heldout", "parameters", "loss", "accuracy", "heldout_accuracy")
MARKDOWN_METRICS = ("loss", "accuracy", "heldout_accuracy", "tokens_per_second")
"""The metrics of a training in the page's text, and in the table of the Markdown text."""


def report_page(report: Report) -> Iterator[str]:
    """Yield the page in parts."""
    headline = report.headline
    return pages.page(
        "report.html.j2",
        styles=("dialogue.css", "charts.css", "report.css"),
        title=f"{report.run} · report",
        report=report,
        result=report.result(headline.scores) if headline else None,
        rounds=_rounds(report),
        tables=tables,
        environment=environment(report),
        shown_metrics=SHOWN_METRICS,
        charts=charts,
        training_charts=training_charts,
        online_charts=online_charts,
    )


def markdown(report: Report) -> str:
    """Return the Markdown text, with a line feed at its end."""
    return pages.markdown(
        "report.md.j2",
        report=report,
        result=report.result(report.headline.scores) if report.headline else None,
        rounds=[Markup(section.markdown()) for section in _rounds(report)],
        metrics=MARKDOWN_METRICS,
    )


def _rounds(report: Report) -> list[Section]:
    """Return the table of the rounds of `sweet train`; none where it has not written one."""
    with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return rounds(report.rounds)
    return []


def tables(result: ScoresFact) -> list[Section]:
    """Return the tables that `sweet eval` prints: by human, pass@k, pass^k, best of k, best of N by the critic; none of
    metrics that it has not written."""
    with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return [*humans(result.metrics), *samples(result.metrics)]
    return []


def training_charts(found: TrainingFact) -> Iterator[charts.Drawing]:
    for title, names, share in TRAINED:
        series = [Series(name=metric_name(name), points=found.series[name]) for name in names if name in found.series]
        if series:
            yield charts.lines(title, "step", series, share=share)


def online_charts(found: OnlineFact) -> Iterator[charts.Drawing]:
    """Yield the learning curve over generated tokens."""
    shares = ("success", "validation") if "success" in found.curve else ()  # without it validation is the mean reward
    for title, share in (("mean reward", False), ("solved tasks", True)):
        series = [
            Series(name=metric_name(name), points=points)
            for name, points in found.curve.items()
            if (name in shares) == share
        ]
        if series:
            yield charts.lines(f"{title} over generated tokens", "tokens", series, share=share)


def environment(report: Report) -> list[tuple[str, str, str]]:
    """Return the installed versions and the servers, each value with the attempts that recorded it."""
    by_value: dict[tuple[str, str], list[str]] = {}
    for attempt in report.attempts:
        for pair in attempt.environment.items():
            by_value.setdefault(pair, []).append(attempt.id)
    names = list(dict.fromkeys(name for name, _ in by_value))
    return [
        (name, value, "all" if len(attempts) == len(report.attempts) else ", ".join(attempts))
        for (name, value), attempts in sorted(by_value.items(), key=lambda item: names.index(item[0][0]))
    ]
