"""The results of a study as a page (`study.html.j2`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sweet.results import charts, pages, study_facts
from sweet.results.facts import Rate, Series
from sweet.results.study_facts import SWEET, about, rate
from sweet.study.results import StudyResults
from sweet.units import count

FILE = "report.html"
"""The page's name in the study's folder."""


def write_study(folder: Path, results: StudyResults) -> Path:
    """Write the page into the study's folder, and return its path."""
    pages.write(folder / FILE, study_page(results))
    return folder / FILE


def study_page(results: StudyResults) -> Iterator[str]:
    """Yield the page in parts."""
    return pages.page(
        "study.html.j2",
        styles=("dialogue.css", "charts.css", "report.css", "study.css"),
        title=f"{results.family} · study",
        results=results,
        about=about(results.family, results.model),
        tables=study_facts.tables(results),
        charts=drawings(results),
        verdict=study_facts.verdict_in_words(results),
    )


def drawings(results: StudyResults) -> dict[str, charts.Drawing]:
    """Return the chart of each section that has results."""
    curves: dict[str, tuple[str, str, list[Series]]] = {
        "learning": ("Success on validation tasks by generated tokens", "tokens", study_facts.learning(results)),
        "best-of-turns": ("Best of N replies at each turn", "N", study_facts.best_of(results.best_of_turns)),
        "best-of": ("Best of N finished dialogues", "N", study_facts.best_of(results.best_of)),
    }
    found = {}
    if results.methods:
        found["success"] = _success(results)
    for section, (title, over, series) in curves.items():
        if series:
            found[section] = charts.lines(title, over, series, share=True, doubling=over == "N")
    judges = study_facts.credit(results)
    if judges:
        by_kind = {judge: {one.name: one for one in rates} for judge, rates in judges.items()}
        kinds = list(dict.fromkeys(name for rates in by_kind.values() for name in rates))
        found["credit"] = charts.rows("Mean advantage by kind of turn, nats a token", {"": kinds}, by_kind)
    return found


def _success(results: StudyResults) -> charts.Drawing:
    groups = {title: [one.method for one in methods] for title, methods in study_facts.groups(results).items()}
    rates: Mapping[str, Mapping[str, Rate]] = {
        "temperature 1, 95 % over seeds": {one.method: rate(one.method, one.success) for one in results.methods},
        "greedy": {one.method: rate(one.method, one.greedy_success.alone) for one in results.methods},
    }
    title = f"Success on {count(results.test_tasks, 'unseen task')}"
    return charts.rows(title, groups, rates, share=True, strong=SWEET)
