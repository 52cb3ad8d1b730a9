"""The report of a run as a short Markdown text, for a pull request.

Whatever is not ours stands in code spans, in which nobody is mentioned, nothing is linked and no markup is read; a bar
is written so that a table's cell does not end at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sweet.report.quote import paragraph, rate_name, told
from sweet.report.schema import Report
from sweet.scoring.results.statistics import p_in_words
from sweet.view import safe_markdown
from sweet.view.report.html_parts import cut
from sweet.view.report.scales import short
from sweet.view.terminal import count
from sweet.view.text import printable_line

METRICS = ("loss", "accuracy", "heldout_accuracy", "tokens_per_second")
"""Of a training."""


def markdown(report: Report) -> str:
    """The whole text, with a line feed at its end."""
    return "\n\n".join(_parts(report)) + "\n"


def code(content: str) -> str:
    """Any text as a code span, in a table as well; a dash where there is none."""
    shown = printable_line(content)
    return safe_markdown.code(cut(shown)) if shown.strip() else "–"


def _parts(report: Report) -> Iterator[str]:
    yield f"### sweet run {code(report.run)}"
    if report.problems:
        yield "\n".join(["Not all of the run could be read:", *(f"- {code(problem)}" for problem in report.problems)])
    if not report.results:
        told_of = [
            f"- {code(one.rollouts)}: {count(one.count, 'dialogue')} of {code(one.agent)}" for one in report.dialogues
        ]
        yield "\n".join(["Nothing in this run has been scored yet.", "", *told_of]).rstrip()
    rows = [
        [code(result.id), code(result.agent), code(result.dataset), str(result.trajectories or "–"), *figures]
        for result in report.results
        for figures in [[code(rate_name(rate.name)), told(rate)] for rate in result.rates] or [["–", "–"]]
    ]
    yield from _table(["scores", "agent", "dataset", "n", "rate", "mean [95%]"], rows, "---r-r")
    rows = [
        [
            f"{code(found.before)} → {code(found.after)}",
            code(rate_name(measure.name)),
            f"{measure.before:.3f} → {measure.after:.3f}",
            f"{measure.difference:+.3f} {measure.bounds}",
            p_in_words(measure.p_value),
            f"{measure.wins} / {measure.ties} / {measure.losses}",
        ]
        for found in report.comparisons
        for measure in found.measures
    ]
    yield from _table(["paired", "of", "means", "difference [95%]", "p", "wins / ties / losses"], rows, "--rrrr")
    rows = [
        [code(found.artifact), f"{found.steps:,}", *(_metric(found.metrics, name) for name in METRICS)]
        for found in report.training
    ]
    yield from _table(["trained", "steps", *map(rate_name, METRICS)], rows, "-r" + "r" * len(METRICS))
    if report.citation:
        yield paragraph(report, code)


def _metric(metrics: dict[str, float], name: str) -> str:
    return short(metrics[name]) if name in metrics else "–"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> Iterator[str]:
    """One text, or none where there is no row."""
    if rows:
        yield safe_markdown.table(header, rows, align)
