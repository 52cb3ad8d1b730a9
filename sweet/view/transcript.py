"""Render a trajectory as HTML, for the page of dialogues and the report of a run.

Every text is escaped. The style sheet is `transcript.css`.
"""

from __future__ import annotations

from sweet.tasks.trajectory import Turn
from sweet.units import count, format_duration
from sweet.view.code import Fragment, fragments, tokens
from sweet.view.credit_view import TAKEN, Distinct, choice_note, distinct_candidates, pairs_title, sides_of
from sweet.view.dialogue_view import DisplayOptions, hidden_texts
from sweet.view.html import line, text
from sweet.view.html_screenshots import HtmlScreenshots
from sweet.view.records import Record, Summary
from sweet.view.terminal import VERDICTS, format_number, signed, tests_passed
from sweet.view.text import printable
from sweet.view.unit_tests import failure_reason, unit_tests

BAR_WIDTH = 120
COLOURED = 5_000
"""Longer code, in characters, has no colours, as a page may have thousands of dialogues."""


def trajectory(
    summary: Summary,
    record: Record,
    options: DisplayOptions,
    *,
    pictures: HtmlScreenshots | None = None,
    title: str = "",
) -> str:
    """Return one trajectory as a collapsed element: a line of facts, and below it the whole dialogue.

    Args:
        pictures: the pictures of the HTML page, if the dialogue is about pages.
        title: shown before its id.
    """
    outcome = summary.outcome or summary.ended
    facts = [
        f'<span class="outcome {_outcome_class(outcome)}">{line(outcome)}</span>',
        f"reward {format_number(summary.reward)}",
        f"tests {tests_passed(summary.passed, summary.total)}",
        count(summary.turns, "turn"),
        "– tokens" if summary.tokens is None else count(summary.tokens, "token"),
        "– s" if summary.seconds is None else format_duration(summary.seconds),
    ]
    if summary.fault:
        facts.append(f'<span class="outcome other">{line(summary.fault)}</span>')
    named = f'<span class="why">{line(title)}</span> ' if title else ""
    reward = "" if summary.reward is None else repr(summary.reward)
    human = "" if record.trajectory.human is None else f" · human {line(record.trajectory.human)}"
    body = [f'<p class="task">task {line(summary.task_id)}{human}</p>']
    for index, turn in enumerate(record.trajectory.dialogue_history):
        body.append(_turn(record, index, turn, options, pictures))
    answer = _prose(record.trajectory.answer, options.language, whole=True)
    if pictures is not None:
        answer = f"<details><summary>the page's HTML</summary>{answer}</details>"
    body.append(_section("answer", "answer", answer))
    body.append(_tests(record))
    if why := failure_reason(record):
        body.append(_section("why", "why", f"<pre>{text(why)}</pre>"))
    if record.trajectory.error:
        body.append(_section("fault", "fault", f"<pre>{text(record.trajectory.error)}</pre>"))
    for name, content in hidden_texts(record.trajectory.task) if options.hidden else ():
        body.append(_section("hidden", name, f"<pre>{text(content)}</pre>"))
    if pictures is not None:
        reference = pictures.reference(record.trajectory.task.ground_truth)
        body = ['<div class="pictured">\n<div>', *body, f"</div>\n<aside>{reference}</aside>\n</div>\n"]
    return (
        f'<details class="trajectory" data-outcome="{line(outcome)}" data-reward="{reward}">\n'
        f"<summary>{named}<b>{line(summary.id)}</b> {' · '.join(facts)}</summary>\n" + "".join(body) + "</details>\n"
    )


def _outcome_class(outcome: str) -> str:
    return outcome if outcome in ("passed", "failed") else "other"


def _section(kind: str, title: str, content: str, note: str = "") -> str:
    """Return a section. `title` and `content` are HTML already."""
    return f'<section class="{kind}"><h3>{title}{note}</h3>{content}</section>\n'


def _turn(record: Record, index: int, turn: Turn, options: DisplayOptions, pictures: HtmlScreenshots | None) -> str:
    scale = record.scale
    if turn.role == "user":
        return _section("human", "human", f"<pre>{text(turn.content)}</pre>")
    advantage = record.advantage(index)
    if pictures is None:
        content = _prose(turn.content, options.language, whole=False)
    else:
        content = pictures.turn(turn) + f"<pre>{text(pictures.screenshots.abbreviate(turn.content))}</pre>"
    if pictures is not None or turn.said != turn.content:
        content += f"<details><summary>whole reply</summary><pre>{text(turn.said)}</pre></details>"
    if turn.thought:
        size = "" if turn.thought_tokens is None else f", {count(turn.thought_tokens, 'token')}"
        content += f'<details class="thought"><summary>thought{size}</summary><pre>{text(turn.thought)}</pre></details>'
    if turn.choice is not None:
        content += f"<p>{text(choice_note(turn.choice))}</p>"
    content += _candidates(record, index, scale) + _pairs(record, index)
    return _section("agent", "agent", content, "" if advantage is None else " " + _bar(advantage, scale))


def _candidates(record: Record, index: int, scale: float) -> str:
    """Return the candidates of a turn as one collapsed element, equal ones as one row; the given reply is marked."""
    found = distinct_candidates(record, index)
    if not found:
        return ""
    rows = "".join(
        f"<tr><td>{TAKEN if one.taken else ''}</td><td>{_bar(one.candidate.advantage, scale)}</td>"
        f'<td class="times">{f"{one.times}×" if one.times > 1 else ""}</td>'
        f"<td><pre>{text(one.candidate.text)}</pre>{_notes(one)}</td></tr>"
        for one in found
    )
    number, different = len(record.ranked[index].candidates), sum(one.times > 0 for one in found)
    title = count(number, "candidate") + (f", {different} different" if different < number else "")
    return f"<details><summary>{title}</summary><table>{rows}</table></details>"


def _notes(found: Distinct) -> str:
    return f'<span class="times">{found.notes}</span>' if found.notes else ""


def _pairs(record: Record, index: int) -> str:
    pairs = record.pairs.get(index, [])
    if not pairs:
        return ""
    rows = "".join(
        f'<tr class="{name}"><td>{name}</td><td>{signed(advantage)}</td><td><pre>{text(reply)}</pre></td></tr>'
        for pair in pairs
        for name, advantage, reply in sides_of(pair)
    )
    return f"<details><summary>{pairs_title(pairs)}</summary><table>{rows}</table></details>"


def _tests(record: Record) -> str:
    tests = unit_tests(record)
    if not tests:
        return ""
    rows = []
    for test in tests:
        cells = "".join(f"<td><pre>{text(cell)}</pre></td>" for cell in (test.call, test.failure))
        kind = {True: "passed", False: "failed", None: "other"}[test.passed]
        rows.append(f'<tr><td class="{kind}">{VERDICTS[test.passed][0]}</td>{cells}</tr>')
    return _section("tests", "unit tests", f"<table>{''.join(rows)}</table>")


def _prose(content: str, language: str, *, whole: bool) -> str:
    return "".join(
        f'<pre class="code">{coloured(fragment)}</pre>' if fragment.language else f"<pre>{text(fragment.text)}</pre>"
        for fragment in fragments(content, language, whole=whole)
    )


def coloured(fragment: Fragment) -> str:
    """Return code as HTML with a span for each coloured token."""
    if len(fragment.text) > COLOURED:
        return text(fragment.text)
    return "".join(
        f'<span class="{kind}">{text(part)}</span>' if kind else text(part)
        for kind, part in tokens(printable(fragment.text), fragment.language)
    )


def _bar(value: float, scale: float) -> str:
    """Return a bar as SVG, because the page's policy forbids style attributes."""
    half = BAR_WIDTH // 2
    length = round(half * min(abs(value) / scale, 1.0), 1) if scale > 0 else 0
    start = half - length if value < 0 else half
    kind = "negative" if value < 0 else "positive"
    return (
        f'<span class="advantage">{signed(value)} <svg width="{BAR_WIDTH}" height="10" aria-hidden="true">'
        f'<rect class="{kind}" x="{start}" y="1" width="{length}" height="8"/>'
        f'<rect class="zero" x="{half}" y="0" width="1" height="10"/></svg></span>'
    )
