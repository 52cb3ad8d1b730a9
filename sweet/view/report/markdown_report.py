"""The report of a run as a short Markdown text for a pull request.

All text that comes from the run is in code spans, in which mentions, links and markup have no effect; a bar is escaped
so that it does not end a table cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sweet.report.quote import paragraph, rate_name, rate_text, trained_on
from sweet.report.schema import OnlineFact, Report
from sweet.scoring.results.statistics import p_in_words
from sweet.units import count, format_duration, format_metric, percent
from sweet.view import safe_markdown
from sweet.view.report.html_parts import cut
from sweet.view.text import printable_line

METRICS = ("loss", "accuracy", "heldout_accuracy", "tokens_per_second")
"""The metrics of a training."""
ONLINE = ["trained online", "by", "steps", "tokens", "reward", "success", "play / train / update", "ended by"]
"""The columns of an online training; reward and success are those of the first and of the last five steps."""


def markdown(report: Report) -> str:
    """Return the whole text, with a line feed at its end."""
    return "\n\n".join(_parts(report)) + "\n"


def code(content: str) -> str:
    """Return any text as a code span, also for tables; a dash for an empty text."""
    shown = printable_line(content)
    return safe_markdown.code(cut(shown)) if shown.strip() else "–"


def _parts(report: Report) -> Iterator[str]:
    yield f"### sweet run {code(report.run)}"
    result = report.result(report.headline.scores) if report.headline else None
    if result is not None:
        yield f"{code(result.id)}: {trained_on(result)}"
    if report.spent is not None and report.spent.text:
        yield f"Tokens: {code(report.spent.text)}"
    if report.problems:
        yield "\n".join(["Parts of the run could not be read:", *(f"- {code(problem)}" for problem in report.problems)])
    if not report.results:
        rollouts = [
            f"- {code(one.rollouts)}: {count(one.count, 'dialogue')} of {code(one.agent)}" for one in report.dialogues
        ]
        yield "\n".join(["Nothing in this run has been scored yet.", "", *rollouts]).rstrip()
    rows = [
        [code(result.id), code(result.agent), code(result.dataset), str(result.trajectories or "–"), *cells]
        for result in report.results
        for cells in [[code(rate_name(rate.name)), rate_text(rate)] for rate in result.rates] or [["–", "–"]]
    ]
    yield from _table(["scores", "agent", "dataset", "n", "rate", "mean [95 %]"], rows, "---r-r")
    rows = [
        [code(result.id), code(human.human), str(human.dialogues or "–"), code(rate_name(rate.name)), rate_text(rate)]
        for result in report.results
        for human in result.humans
        for rate in human.rates
    ]
    yield from _table(["scores", "human", "n", "rate", "mean [95 %]"], rows, "--r-r")
    rows = [
        [
            f"{code(found.before)} → {code(found.after)}",
            code(rate_name(measure.name)),
            f"{measure.before_text} → {measure.after_text}",
            f"{measure.difference_text} {measure.bounds_text}",
            p_in_words(measure.p_value),
            f"{measure.wins} / {measure.ties} / {measure.losses}",
        ]
        for found in report.comparisons
        for measure in found.measures
    ]
    yield from _table(["paired", "of", "means", "difference [95 %]", "p", "wins / ties / losses"], rows, "--rrrr")
    rows = [
        [code(found.artifact), f"{found.steps:,}", *(_metric(found.metrics, name) for name in METRICS)]
        for found in report.training
        if found.online is None
    ]
    yield from _table(["trained", "steps", *map(rate_name, METRICS)], rows, "-r" + "r" * len(METRICS))
    yield from _table(ONLINE, [_online(one.artifact, one.online) for one in report.training if one.online], "--rrrrrl")
    if report.citation:
        yield paragraph(report, code)


def _online(actor: str, found: OnlineFact) -> list[str]:
    spent = (found.play_seconds, found.train_seconds, found.update_seconds)
    ended = found.ended or "unfinished"
    return [
        code(actor),
        code(found.algorithm),
        f"{found.steps:,}",
        f"{found.tokens:,}",
        " → ".join("–" if value is None else f"{value:.3f}" for value in found.reward),
        " → ".join("–" if value is None else percent(value) for value in found.success),
        " / ".join(map(format_duration, spent)),
        f"{ended}, {code(found.collapse)}" if found.collapse else ended,
    ]


def _metric(metrics: dict[str, float], name: str) -> str:
    return format_metric(name, metrics[name]) if name in metrics else "–"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> Iterator[str]:
    """Yield the table if it has rows."""
    if rows:
        yield safe_markdown.table(header, rows, align)
