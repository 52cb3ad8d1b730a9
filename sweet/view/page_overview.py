"""The head of the page of dialogues: what was played, how much of it succeeded with its intervals, how it ended.

The rates are those of `sweet eval`, computed from the scores of the dialogues that are on the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from sweet.errors import UsageError
from sweet.report.schema import Rate
from sweet.runs.jsonl import read_jsonl
from sweet.scoring.results.evaluation import Values, distinct
from sweet.stages.intervals import Interval
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score
from sweet.units import count, metric_name, rate_bounds, rate_value
from sweet.view.html import line
from sweet.view.records import Records, Summary
from sweet.view.report.charts import interval


def overview(records: Records, shown: Sequence[Summary], settings: Sequence[str]) -> str:
    """Return the head as HTML.

    Args:
        shown: the dialogues on the page.
        settings: the settings of the rollout, in words.

    Raises:
        InputError: a score is damaged.
    """
    facts = [count(len(shown), "dialogue"), f"{count(len({summary.task_id for summary in shown}), 'task')}"]
    total = len(records.summaries())
    if len(shown) < total:
        facts[0] += f" of {total:,}"
    if shown:
        facts.append(f"{fmean(summary.turns for summary in shown):.1f} turns on average")
    if tokens := [summary.tokens for summary in shown if summary.tokens is not None]:
        facts.append(f"{fmean(tokens):,.0f} tokens on average")
    ends = Counter(summary.outcome or summary.ended for summary in shown)
    facts += [f"{number:,} {name}" for name, number in ends.most_common()]
    lines = [" · ".join(line(fact) for fact in some) for some in (facts, settings) if some]
    paragraphs = "".join(f'<p class="facts">{shown_line}</p>\n' for shown_line in lines)
    return f'<section id="overview">\n{_rates(records, shown)}{paragraphs}</section>\n'


def _rates(records: Records, shown: Sequence[Summary]) -> str:
    """Return the means of the scores with their intervals as a table; a note without scores."""
    if records.scores is None:
        return '<p class="facts">These dialogues have no scores.</p>\n'
    try:
        figures = task_kind(records.run.manifest().task).metrics
    except UsageError:  # of a plug-in that is not installed here
        figures = {}
    values, chosen = Values(figures), {summary.id for summary in shown}
    for score in read_jsonl(records.run.file(records.scores), Score):
        if score.id in chosen:
            values.add(score)
    rows = "".join(_row(name, found) for name, found in distinct(values.rates()).items() if found is not None)
    if not rows:
        return ""
    note = "Means over dialogues; 95 % intervals by bootstrap over tasks."
    return f'<table class="rates"><tbody>\n{rows}</tbody></table>\n<p class="facts">{note}</p>\n'


def _row(name: str, found: Interval) -> str:
    numbers = found.mean, found.low, found.high
    drawn = interval(Rate(name=name, mean=found.mean, low=found.low, high=found.high), min(0.0, found.low))
    value, bounds = rate_value(*numbers), rate_bounds(*numbers)
    return (
        f'<tr><th scope="row">{line(metric_name(name))}</th><td><b>{value}</b> <span class="ci">{bounds}</span></td>'
        f"<td>{drawn}</td></tr>\n"
    )
