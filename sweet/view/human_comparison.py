"""Render a comparison of two humans (sweet.scoring.humans) as tables, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sweet.scoring.results.statistics import p_in_words
from sweet.units import count, metric_name
from sweet.view.comparison import SIDES, Section, UntrustedText, interval, known_interval

Metrics = Mapping[str, Any]

_REPLIES = {
    "words": "words a reply",
    "facts": "new facts a reply",
    "unknown": "says it does not know",
    "negates": "negations",
    "leak": "leaks",
    "fault": "other faults",
}
_SAME = {
    "facts": ("facts of either that both state", "facts_of"),
    "numbers": ("numbers of either that both state", "numbers_of"),
    "polarity": ("same yes or no", "polarity_of"),
    "unknown": ("both know it, or neither", "questions"),
    "negates": ("both negate, or neither", "questions"),
    "words_difference": ("words, B - A", "questions"),
}


def as_markdown(metrics: Metrics) -> str:
    """Return the report as Markdown."""
    return "\n\n".join(section.markdown() for section in sections(metrics)) + "\n"


def sections(metrics: Metrics) -> list[Section]:
    """Return the sections of the report in reading order."""
    result = [_sides(metrics)]
    if metrics["warnings"]:
        result.append(Section("Differences between both sides", remarks=tuple(metrics["warnings"])))
    result.append(_replies(metrics))
    if metrics["same"]["questions"]:
        result.append(_same(metrics))
    if "outcomes" in metrics:
        result.append(_outcomes(metrics["outcomes"]))
    return [*result, *_different(metrics)]


def _sides(metrics: Metrics) -> Section:
    rows = []
    for side in SIDES:
        own = metrics[side]
        source = "asked the questions of A" if own["run"] is None else f"{own['run']}:{own['rollouts']}"
        counts = (f"{own[name]:,}" for name in ("replies", "dialogues", "tasks"))
        rows.append((side.upper(), UntrustedText(own["human"]), UntrustedText(source), *counts))
    remarks = (f"{count(metrics['failed'], 'question')} could not be asked.",) if metrics["failed"] else ()
    return Section("Humans", ("", "human", "dialogues of", "replies", "dialogues", "tasks"), tuple(rows), remarks)


def _replies(metrics: Metrics) -> Section:
    rows = tuple((words, *(_shown(metrics[side], name) for side in SIDES)) for name, words in _REPLIES.items())
    return Section("All replies of each, with 95 % intervals", ("", "A", "B"), rows)


def _same(metrics: Metrics) -> Section:
    same = metrics["same"]
    rows = tuple((words, f"{same[number]:,}", _shown(same, name)) for name, (words, number) in _SAME.items())
    title = f"Replies to the same {count(same['questions'], 'question')} on {count(same['tasks'], 'task')}"
    other = same["questions"] - same["same_context"]
    remarks = (f"Before {count(other, 'question')} the two dialogues differed.",) if other else ()
    return Section(title, ("", "questions", "both"), rows, remarks)


def _outcomes(outcomes: Metrics) -> Section:
    named = {"turns": "turns", "answered": "answered", "rate": metric_name(outcomes.get("figure", "rate"))}
    rows = tuple(
        (
            words,
            f"{outcomes[name]['tasks']:,}",
            *(_compared(outcomes[name], name, side) for side in (*SIDES, "difference")),
            p_in_words(outcomes[name]["p_value"]),
        )
        for name, words in named.items()
        if name in outcomes
    )
    return Section("Dialogues with each, on the tasks that both have", ("", "tasks", "A", "B", "B - A", "p"), rows)


def _shown(row: Metrics, name: str) -> str:
    """Return a share in per cent, a number as it is, with its interval."""
    if name not in ("words", "facts", "words_difference") or (name == "facts" and "facts_of" in row):
        return known_interval(row, name)
    return _number(row, name, "+" if name == "words_difference" else "")


def _compared(row: Metrics, name: str, column: str) -> str:
    sign = column == "difference"
    if name == "turns":
        return _number(row, column, "+" if sign else "")
    return interval(row, column, beside=SIDES, sign=sign)


def _number(row: Metrics, name: str, sign: str = "") -> str:
    value, low, high = row[name], row[f"{name}_ci_low"], row[f"{name}_ci_high"]
    return "–" if value is None else f"{value:{sign}.2f}\n[{low:{sign}.2f}, {high:{sign}.2f}]"


def _different(metrics: Metrics) -> Iterator[Section]:
    rows = tuple(
        tuple(UntrustedText(row[name]) for name in ("task", "question", "a", "b")) for row in metrics["different"]
    )
    if rows:
        yield Section("Most different replies", ("task", "question", "A", "B"), rows, folded=True)
