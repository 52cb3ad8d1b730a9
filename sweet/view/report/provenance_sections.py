"""The sections of the report about provenance: lineage, settings, environment, commands, citation."""

from __future__ import annotations

from collections.abc import Mapping

from sweet.json_value import JsonValue
from sweet.report.quote import SHORT
from sweet.report.schema import ArtifactFact, AttemptFact, Report
from sweet.units import format_bytes
from sweet.view.html import line
from sweet.view.report.html_parts import cut, duration, folded, moment, note, preformatted, section, table, value
from sweet.view.report.lineage_graph import drawing


def lineage(report: Report) -> str:
    rows = [_artifact(artifact) for artifact in report.artifacts]
    listed = table(["artifact", "rows", "size", "sha256", "made by", "from"], rows, "lrrlll")
    drawn = drawing(report.artifacts, report.links)
    both = f'<div class="beside"><div class="wide">{drawn}</div>{listed}</div>' if drawn else listed
    dotted = "Dotted: the actor played these dialogues. " if any(link.played for link in report.links) else ""
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
    """Return the attempts that made artifacts, collapsed; and a table of failed or interrupted attempts."""
    makers = {artifact.attempt for artifact in report.artifacts}
    successful = [one for one in report.attempts if one.outputs or one.id in makers]
    failed = [one for one in report.attempts if one.status in ("failed", "interrupted")]
    content = "".join(folded(_title(one), _settings(one)) for one in successful)
    if failed:
        rows = [
            [line(one.id), line(one.status), line(moment(one.started)), line(cut(one.error or ""))] for one in failed
        ]
        content += "<h3>Failed and interrupted attempts</h3>\n" + table(["attempt", "", "began", "error"], rows)
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
    """Return the installed versions and the servers, each value with the attempts that recorded it."""
    by_value: dict[str, dict[str, list[str]]] = {}
    for attempt in report.attempts:
        for name, found in attempt.environment.items():
            by_value.setdefault(name, {}).setdefault(found, []).append(attempt.id)
    rows = [
        [line(name), f"<code>{line(cut(found))}</code>", _attempts(attempts, len(report.attempts))]
        for name, values in by_value.items()
        for found, attempts in values.items()
    ]
    listed = folded("versions, scorers, sandboxes, models", table(["", "", "in"], rows))
    return section("environment", "Environment", listed)


def _attempts(attempts: list[str], all: int) -> str:
    return "all" if len(attempts) == all else line(", ".join(attempts))


def again(report: Report) -> str:
    commands = [one.command for one in report.attempts if one.command and one.status == "done"]
    content = note("In the order of execution; RUN is a new run.") + preformatted("\n".join(commands))
    return section("again", "To reproduce it", content if commands else "")


def quote(report: Report) -> str:
    citation = f"<blockquote>{line(report.citation)}</blockquote>\n" if report.citation else ""
    return section("quote", "To cite it", citation + preformatted(report.bibtex))
