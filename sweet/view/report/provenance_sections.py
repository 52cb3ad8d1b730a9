"""The parts of the report about where everything came from: lineage, settings, environment, commands, citation."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from sweet.report.quote import SHORT
from sweet.report.schema import ArtifactFact, AttemptFact, Report
from sweet.view.html import line
from sweet.view.report.html_parts import cut, duration, folded, moment, note, preformatted, section, table, value
from sweet.view.report.lineage_graph import drawing
from sweet.view.units import format_bytes


def lineage(report: Report) -> str:
    rows = [_artifact(artifact) for artifact in report.artifacts]
    told = table(["artifact", "rows", "size", "sha256", "made by", "from"], rows, "lrrlll")
    drawn = drawing(report.artifacts, report.links)
    both = f'<div class="beside"><div class="wide">{drawn}</div>{told}</div>' if drawn else told
    dotted = "Dotted: the actor spoke in these dialogues. " if any(link.played for link in report.links) else ""
    return section(
        "lineage", "Lineage", both + note(f"{dotted}Links that follow from others are not drawn.") * bool(drawn)
    )


def _artifact(artifact: ArtifactFact) -> list[str]:
    state = "unfinished" if artifact.status == "partial" else f"stale: {artifact.stale}" if artifact.stale else ""
    mark = f'<br><span class="state">{line(state)}</span>' if state else ""
    return [
        f"{line(artifact.id)}{mark}",
        "–" if artifact.rows is None else f"{artifact.rows:,}",
        format_bytes(artifact.bytes),
        f'<code class="sum">{line((artifact.sha256 or "–")[:SHORT])}</code>',
        line(artifact.attempt),
        line(", ".join(artifact.inputs)) or "–",
    ]


def settings(report: Report) -> str:
    """Every attempt that an artifact came from, all folded; those that came to nothing apart."""
    made = {artifact.attempt for artifact in report.artifacts}
    told = [one for one in report.attempts if one.outputs or one.id in made]
    lost = [one for one in report.attempts if one.status in ("failed", "interrupted")]
    content = "".join(folded(_title(one), _settings(one)) for one in told)
    if lost:
        rows = [[line(one.id), line(one.status), line(moment(one.started)), line(cut(one.error or ""))] for one in lost]
        content += "<h3>Attempts that did not end well</h3>\n" + table(["attempt", "", "began", "error"], rows)
    return section("settings", "Settings", content)


def _title(attempt: AttemptFact) -> str:
    changed = f"{len(attempt.changed)} changed" if attempt.changed else "all defaults"
    took = duration(attempt.seconds) if attempt.status == "done" else attempt.status
    return f"{attempt.id} · {changed} · {moment(attempt.started)} · {took}"


def _settings(attempt: AttemptFact) -> str:
    command = preformatted(attempt.command) if attempt.command else ""
    return command + _pairs(attempt.changed) + folded("defaults", _pairs(attempt.defaults))


def _pairs(found: Mapping[str, JsonValue]) -> str:
    return table(["option", "value"], [[line(name), f"<code>{line(value(one))}</code>"] for name, one in found.items()])


def environment(report: Report) -> str:
    """What was installed and who served, each value with the attempts that tell it."""
    tellers: dict[str, dict[str, list[str]]] = {}
    for attempt in report.attempts:
        for name, found in attempt.environment.items():
            tellers.setdefault(name, {}).setdefault(found, []).append(attempt.id)
    rows = [
        [line(name), f"<code>{line(cut(found))}</code>", _who(attempts, len(report.attempts))]
        for name, values in tellers.items()
        for found, attempts in values.items()
    ]
    told = folded("versions, scorers, sandboxes, models", table(["", "", "in"], rows))
    return section("environment", "Environment", told)


def _who(attempts: list[str], all: int) -> str:
    return "all" if len(attempts) == all else line(", ".join(attempts))


def again(report: Report) -> str:
    commands = [one.command for one in report.attempts if one.command and one.status == "done"]
    content = note("In the order in which they were done; RUN is a new run.") + preformatted("\n".join(commands))
    return section("again", "To make it again", content if commands else "")


def quote(report: Report) -> str:
    told = f"<blockquote>{line(report.citation)}</blockquote>\n" if report.citation else ""
    return section("quote", "To quote it", told + preformatted(report.bibtex))
