"""Cite a run: one paragraph, and BibTeX entries."""

from __future__ import annotations

import re
from collections.abc import Callable

from sweet import units
from sweet.installation import VERSION
from sweet.results.facts import ComparisonFact, Rate, Report, ScoresFact
from sweet.scoring.results.statistics import TESTS, p_in_words
from sweet.scoring.results.trained_on import in_words

SHORT = 12
"""Hex digits of a sha256 in running text."""

PAPER = """@article{zhou2025sweetrl,
  title   = {SWEET-RL: Training Multi-Turn LLM Agents on Collaborative Reasoning Tasks},
  author  = {Zhou, Yifei and Jiang, Song and Tian, Yuandong and Weston, Jason and Levine, Sergey and
             Sukhbaatar, Sainbayar and Li, Xian},
  journal = {arXiv preprint arXiv:2503.15478},
  year    = {2025}
}"""


def p_value_text(p_value: float) -> str:
    """Return `p = 0.15` or `p < 0.001`."""
    shown = p_in_words(p_value)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def paragraph(report: Report, quoted: Callable[[str], str] = str) -> str:
    """Describe the result of the run and what identifies the run; empty if nothing was scored.

    Args:
        quoted: applied to every text that comes from the run.
    """
    headline = report.headline
    result = None if headline is None else report.result(headline.scores)
    if headline is None or result is None:
        return ""
    before = next((one for one in report.comparisons if one.after == result.id), None)
    sentences = [_result(result, report.task, headline.rate, quoted), trained_on(result)]
    if before is not None:
        sentences.append(_difference(before, report, quoted))
    if report.method:
        sentences.append(f"Trained in this run: {quoted(report.method)}.")
    sentences.append(_made(result, report, quoted))
    return " ".join(sentences)


def trained_on(result: ScoresFact) -> str:
    """Say on how many of the tasks of an evaluation its agent was trained."""
    return in_words(result.trained_on_tasks, result.tasks or 0)


def _result(result: ScoresFact, task: str, rate: Rate, quoted: Callable[[str], str]) -> str:
    size = f"{_counted(result.trajectories, 'dialogue')} on {_counted(result.tasks, 'task')}"
    turns = f" and at most {units.count(result.max_turns, 'turn')}" if result.max_turns else ""
    human = f" with the simulated human {quoted(result.sim)}{turns}" if result.sim else ""
    where = f" in the sandbox {quoted(result.sandbox)}" if result.sandbox else ""
    return (
        f"In {size} of {quoted(result.dataset or task)} ({quoted(task)}){human}, the agent "
        f"{quoted(result.agent or 'of an import')} reaches a {quoted(units.metric_name(rate.name))} of {rate.text} "
        "(mean and 95 % bootstrap interval over tasks), "
        f"scored by {quoted(result.scorer or 'an unnamed scorer')}{where}."
    )


def _counted(number: int | None, noun: str) -> str:
    return f"an unknown number of {noun}s" if number is None else units.count(number, noun)


def _difference(found: ComparisonFact, report: Report, quoted: Callable[[str], str]) -> str:
    measure = found.measures[0]
    former = report.result(found.before)
    agent = former.agent if former else found.before
    return (
        f"On the same {units.count(found.tasks, 'task')} {quoted(agent)}, from which it was trained, reaches "
        f"{measure.before_text}: "
        f"a paired difference in {quoted(units.metric_name(measure.name))} of {measure.difference_text} "
        f"{measure.bounds_text}, {p_value_text(measure.p_value)} "
        f"({TESTS[measure.test]}; {units.count(measure.wins, 'win')}, "
        f"{units.count(measure.losses, 'loss')}, {units.count(measure.ties, 'tie')})."
    )


def _made(result: ScoresFact, report: Report, quoted: Callable[[str], str]) -> str:
    day = (report.ended or report.created).date().isoformat()
    digest = f"; scores sha256 {result.sha256}" if result.sha256 else ""
    return f"Made with sweet {quoted(' and '.join(report.versions))} on {day}{digest}."


def bibtex(report: Report) -> str:
    """Return the BibTeX entries of the paper and of the run."""
    headline = report.headline
    result = None if headline is None else report.result(headline.scores)
    day = (report.ended or report.created).date()
    key = result.sha256[:SHORT] if result is not None and result.sha256 else f"{report.created:%Y%m%d%H%M}"
    note = f"sweet {' and '.join(report.versions)}"
    if headline is not None and result is not None:
        note += f"; {units.metric_name(headline.rate.name)} {headline.rate.text}"
        if result.trained_on_tasks:
            note += f"; trained on {result.trained_on_tasks} of the {result.tasks} tasks"
        note += f"; scores sha256 {result.sha256}"
    run = (
        f"@misc{{sweet-run-{key},\n"
        f"  title = {{The sweet run {_plain(report.run)} on {_plain(report.task)} tasks}},\n"
        f"  year  = {{{day.year}}},\n"
        f"  month = {{{day.month}}},\n"
        f"  note  = {{{_plain(note)}}}\n}}"
    )
    return f"{PAPER}\n\n{run}"


def _plain(text: str) -> str:
    """Escape a text for TeX: it contains no commands or braces."""
    return re.sub(r"[^\w\s.,;:/()\[\]+%-]", "-", text).replace("_", r"\_").replace("%", r"\%")


def versions(found: list[str]) -> list[str]:
    """Return the distinct versions that made the run, else the version of this program."""
    return sorted(dict.fromkeys(filter(None, found))) or [VERSION]
