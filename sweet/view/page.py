"""One HTML page of a run's trajectories, complete in itself.

The page asks nothing of the network and says so: its Content-Security-Policy allows the one style sheet and the one
script that stand in it, by their hashes, pictures that stand in it, where there are some, and nothing else, so that
markup which slipped out of a model's text could neither run nor load anything. It cannot slip out either: every text is
escaped. The page is written a trajectory at a
time; without the script it is still readable, only the filters do nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path

from sweet.files import replacing
from sweet.tasks.trajectory import Turn
from sweet.view.code import pieces
from sweet.view.figures import POLICY, Figures
from sweet.view.records import Record, Summary
from sweet.view.terminal import VERDICTS, count, figure, signed, tests_passed
from sweet.view.text import printable, printable_line
from sweet.view.unit_tests import unit_tests, why_not

BAR_WIDTH = 120


def write_page(
    path: Path,
    title: str,
    records: Iterable[tuple[Summary, Record]],
    *,
    hidden: bool,
    figures: Figures | None = None,
) -> None:
    """Write the page to `path`, which is replaced only once all of it is written."""
    with replacing(path) as file:
        for part in page(title, records, hidden=hidden, figures=figures):
            file.write(part.encode())


def page(
    title: str, records: Iterable[tuple[Summary, Record]], *, hidden: bool, figures: Figures | None = None
) -> Iterator[str]:
    """The page in parts. With `figures` the dialogues are about pages, whose screenshots stand in it."""
    style = files("sweet.view").joinpath("page.css").read_text(encoding="utf-8")
    script = files("sweet.view").joinpath("page.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        f"{POLICY if figures else ''}base-uri 'none'; form-action 'none'"
    )
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{_line(title)}</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<header>\n<h1>{_line(title)}</h1>\n"
        '<form id="filters" role="search">\n'
        '<label>Search <input id="search" type="search" autocomplete="off"></label>\n'
        '<label>Outcome <select id="outcome"><option value="">any</option></select></label>\n'
        '<label>Reward below <input id="below" type="number" step="any"></label>\n'
        '<label>Reward above <input id="above" type="number" step="any"></label>\n'
        '<output id="count" for="search outcome below above"></output>\n</form>\n</header>\n<main>\n'
    )
    for summary, record in records:
        yield _trajectory(summary, record, hidden=hidden, figures=figures)
    yield f"</main>\n<script>{script}</script>\n</body>\n</html>\n"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(text: str) -> str:
    return escape(printable(text))


def _line(text: str) -> str:
    return escape(printable_line(text))


def _trajectory(summary: Summary, record: Record, *, hidden: bool, figures: Figures | None) -> str:
    outcome = summary.outcome or summary.ended
    facts = [
        f'<span class="outcome {_outcome_class(outcome)}">{_line(outcome)}</span>',
        f"reward {figure(summary.reward)}",
        f"tests {tests_passed(summary.passed, summary.total)}",
        count(summary.turns, "turn"),
        "– tokens" if summary.tokens is None else count(summary.tokens, "token"),
        f"{figure(summary.seconds, 1)} s",
    ]
    if summary.fault:
        facts.append(f'<span class="outcome other">{_line(summary.fault)}</span>')
    reward = "" if summary.reward is None else repr(summary.reward)
    scale = record.scale
    body = [f'<p class="task">task {_line(summary.task_id)}</p>']
    for index, turn in enumerate(record.trajectory.dialogue_history):
        body.append(_turn(record, index, turn, scale, figures))
    body.append(_section("answer", "answer", _prose(record.trajectory.answer, whole=True)))
    body.append(_tests(record))
    if why := why_not(record):
        body.append(_section("why", "why", f"<pre>{_text(why)}</pre>"))
    if record.trajectory.error:
        body.append(_section("fault", "fault", f"<pre>{_text(record.trajectory.error)}</pre>"))
    if hidden:
        body.append(_section("hidden", "hidden from the agent", f"<pre>{_text(record.trajectory.task.hidden)}</pre>"))
    if figures is not None:
        reference = figures.reference(record.trajectory.task.ground_truth)
        body = ['<div class="pictured">\n<div>', *body, f"</div>\n<aside>{reference}</aside>\n</div>\n"]
    return (
        f'<details class="trajectory" data-outcome="{_line(outcome)}" data-reward="{reward}">\n'
        f"<summary><b>{_line(summary.id)}</b> {' · '.join(facts)}</summary>\n" + "".join(body) + "</details>\n"
    )


def _outcome_class(outcome: str) -> str:
    return outcome if outcome in ("passed", "failed") else "other"


def _section(kind: str, title: str, content: str, note: str = "") -> str:
    """`title` and `content` are HTML already."""
    return f'<section class="{kind}"><h2>{title}{note}</h2>{content}</section>\n'


def _turn(record: Record, index: int, turn: Turn, scale: float, figures: Figures | None) -> str:
    if turn.role == "user":
        return _section("human", "human", f"<pre>{_text(turn.content)}</pre>")
    advantage = record.advantage(index)
    content = ("" if figures is None else figures.turn(turn)) + _prose(turn.content, whole=False)
    if turn.said != turn.content:
        content += f"<details><summary>whole reply</summary><pre>{_text(turn.said)}</pre></details>"
    content += _candidates(record, index, scale) + _pairs(record, index)
    return _section("agent", "agent", content, "" if advantage is None else " " + _bar(advantage, scale))


def _candidates(record: Record, index: int, scale: float) -> str:
    candidates = record.best_first(index)
    if not candidates:
        return ""
    rows = "".join(
        f"<tr><td>{_bar(candidate.advantage, scale)}</td><td><pre>{_text(candidate.text)}</pre></td></tr>"
        for candidate in candidates
    )
    return f"<details><summary>{count(len(candidates), 'candidate')}</summary><table>{rows}</table></details>"


def _pairs(record: Record, index: int) -> str:
    pairs = record.pairs.get(index, [])
    if not pairs:
        return ""
    rows = "".join(
        f'<tr class="{name}"><td>{name}</td><td>{signed(advantage)}</td><td><pre>{_text(text)}</pre></td></tr>'
        for pair in pairs
        for name, advantage, text in (
            ("chosen", pair.chosen_advantage, pair.chosen),
            ("rejected", pair.rejected_advantage, pair.rejected),
        )
    )
    return f"<details><summary>{count(len(pairs), 'pair')}</summary><table>{rows}</table></details>"


def _tests(record: Record) -> str:
    tests = unit_tests(record)
    if not tests:
        return ""
    rows = []
    for test in tests:
        cells = "".join(f"<td><pre>{_text(text)}</pre></td>" for text in (test.call, test.told))
        kind = {True: "passed", False: "failed", None: "other"}[test.passed]
        rows.append(f'<tr><td class="{kind}">{VERDICTS[test.passed][0]}</td>{cells}</tr>')
    return _section("tests", "unit tests", f"<table>{''.join(rows)}</table>")


def _prose(text: str, *, whole: bool) -> str:
    return "".join(
        f'<pre class="code">{_text(piece.text)}</pre>' if piece.language else f"<pre>{_text(piece.text)}</pre>"
        for piece in pieces(text, "python", whole=whole)
    )


def _bar(value: float, scale: float) -> str:
    """A drawing rather than a styled element: the policy forbids style attributes."""
    half = BAR_WIDTH // 2
    length = round(half * min(abs(value) / scale, 1.0), 1) if scale > 0 else 0
    start = half - length if value < 0 else half
    kind = "negative" if value < 0 else "positive"
    return (
        f'<span class="advantage">{signed(value)} <svg width="{BAR_WIDTH}" height="10" aria-hidden="true">'
        f'<rect class="{kind}" x="{start}" y="1" width="{length}" height="8"/>'
        f'<rect class="zero" x="{half}" y="0" width="1" height="10"/></svg></span>'
    )
