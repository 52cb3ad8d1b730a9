"""`sweet status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from sweet.cli import console
from sweet.cli.command import OptionalRun, command
from sweet.cli.spec import Call
from sweet.errors import UsageError
from sweet.units import format_bytes, format_duration, format_metric, format_moment, metric_name

if TYPE_CHECKING:
    from sweet.inspection.status import StatusConfig
    from sweet.inspection.status_report import ArtifactStatus, AttemptStatus, ResultStatus, StatusReport

ATTEMPTS = ["attempt", "", "time", "of", "metrics"]
STYLES = {"done": "green", "running": "cyan", "failed": "red"}


@command(
    "status",
    "sweet.inspection.status:StatusConfig",
    examples=(
        ("sweet status", "the newest run"),
        ("sweet status --follow", "the progress of what runs, until it ends"),
        ("sweet status --schema", "the JSON Schema of manifest.json"),
    ),
    text="Also shows its size on the disk, and how far the attempts are that run.",
)
def status(call: Call[StatusConfig], run: OptionalRun = None) -> None:
    from sweet.cli.follow import follow, raise_unless_done
    from sweet.cli.stage import newest_run
    from sweet.inspection.status import report
    from sweet.runs.manifest import json_schema

    if call.config.follow and call.config.schema_:
        raise UsageError("--schema shows nothing that can be followed.", where="--follow --schema", fix="give one")
    if call.config.schema_:
        console.print_json(json_schema())
    else:
        opened = newest_run(run, call.reporter)
        ended = follow(opened, quiet=call.common.json) if call.config.follow else None
        run_status = report(opened)
        if call.common.json:
            console.print_json(run_status.as_json())
        elif ended is None:
            _show(run_status)
        else:
            console.show_rows(ATTEMPTS, [_attempt(ended)], right=["time"])
            _show_result(run_status.result)
            _show_next(run_status)
        if ended is not None:
            raise_unless_done(ended)


def _show(report: StatusReport) -> None:
    created = f"created {format_moment(report.created)} by sweet {report.sweet_version}"
    console.heading(f"{report.run} · task {report.task} · {created}")
    console.show_rows(ATTEMPTS, map(_attempt, report.attempts), right=["time"])
    header = ["artifact", "rows", "size", "of", "made from", "path", ""]
    console.show_rows(header, map(_artifact, report.artifacts), right=["rows", "size"])
    if report.unknown:
        console.show(f"not in the manifest: {', '.join(report.unknown)}")
    _show_result(report.result)
    if report.problem is not None:
        console.show(Text("tokens are not known: ", "yellow").append_text(console.safe_text(report.problem)))
    elif report.spent is not None and report.spent.text:
        console.show(f"tokens: {report.spent.text}")
    console.show(f"size on the disk: {format_bytes(report.bytes)}")
    _show_next(report)


def _show_result(result: ResultStatus | None) -> None:
    from sweet.view.comparison import paired_in_words

    if result is not None:
        name = next(iter(result.rate), "")
        rate = f"{metric_name(name)} {format_metric(name, result.rate[name], result.rate)}" if name else ""
        text = f"{rate} by {result.of}"
        if result.paired is not None and result.first is not None:
            text = paired_in_words(name, result.paired.as_json(), result.of, result.first)
        console.show(f"result ({result.scores}): {text}")


def _show_next(report: StatusReport) -> None:
    from sweet.inspection.next_commands import to_fill_in

    if report.advice is not None:
        console.show(report.advice)
    for line in report.next:
        console.show_command(Text("next: ").append_text(console.safe_text(line, "bold")))
    console.show(*to_fill_in(report.next))


def _attempt(attempt: AttemptStatus) -> list[object]:
    seconds = "" if attempt.seconds is None else format_duration(attempt.seconds)
    metrics = ", ".join(f"{metric_name(name)} {format_metric(name, value)}" for name, value in attempt.metrics.items())
    from sweet.cli.follow import progress_text

    details: object = attempt.error.splitlines()[0] if attempt.error else metrics
    if attempt.progress is not None:
        details = progress_text(attempt.progress)
    where = "" if attempt.host is None else f" on {attempt.host}"
    status = console.safe_text(f"{attempt.status}{where}", STYLES.get(attempt.status, "yellow"))
    return [attempt.id, status, seconds, attempt.of, details]


def _artifact(artifact: ArtifactStatus) -> list[object]:
    if artifact.status == "partial":
        state = Text("partial", "yellow")
    elif artifact.stale is not None:
        state = Text("stale: ", "yellow").append_text(console.safe_text(artifact.stale))
    else:
        state = Text("")
    return [
        artifact.id,
        "" if artifact.rows is None else f"{artifact.rows:,}",
        format_bytes(artifact.bytes),
        artifact.of,
        ", ".join(artifact.inputs),
        artifact.path,
        state,
    ]
