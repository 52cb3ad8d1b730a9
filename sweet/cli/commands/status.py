"""`sweet status`."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.cli.declaration import ArgumentSpec
from sweet.cli.stage_command import newest_run, newest_run_argument
from sweet.stages.status import ArtifactStatus, AttemptStatus, StatusConfig, StatusReport, json_schema, report

STYLES = {"done": "green", "running": "cyan", "failed": "red"}


class Status(Command[StatusConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [newest_run_argument()]

    def work(self, call: Call[StatusConfig]) -> None:
        if call.config.schema_:
            console.print_json(json_schema())
            return
        found = report(newest_run(call.arguments["run"], call.reporter))
        if call.common.json:
            stale = sum(artifact.stale is not None for artifact in found.artifacts)
            metrics = {"attempts": len(found.attempts), "artifacts": len(found.artifacts), "stale": stale}
            console.print_json({**found.as_json(), "metrics": metrics})
        else:
            _show(found)


def _show(found: StatusReport) -> None:
    made = f"{found.created:%Y-%m-%d %H:%M}"
    console.heading(f"{found.run} · task {found.task} · made {made} by sweet {found.sweet_version}")
    attempts = Table("attempt", "", "seconds", "figures")
    attempts.columns[2].justify = "right"
    for attempt in found.attempts:
        attempts.add_row(*_attempt(attempt))
    console.show(attempts)
    if found.artifacts:
        artifacts = Table("artifact", "rows", "MB", "made of", "path", "")
        for column in artifacts.columns[1:3]:
            column.justify = "right"
        for artifact in found.artifacts:
            artifacts.add_row(*_artifact(artifact))
        console.show(artifacts)
    if found.unknown:
        console.show(console.inert(f"not in the manifest: {', '.join(found.unknown)}"))
    for command in found.next:
        console.show(Text("next: ").append_text(console.inert(command, "bold")))


def _attempt(attempt: AttemptStatus) -> list[Text]:
    seconds = "" if attempt.seconds is None else f"{attempt.seconds:,.1f}"
    figures = ", ".join(f"{name.replace('_', ' ')} {console.figure(value)}" for name, value in attempt.metrics.items())
    return [
        console.inert(attempt.id),
        Text(attempt.status, STYLES.get(attempt.status, "yellow")),
        Text(seconds),
        console.inert(attempt.error.splitlines()[0] if attempt.error else figures),
    ]


def _artifact(artifact: ArtifactStatus) -> list[Text]:
    rows = "" if artifact.rows is None else f"{artifact.rows:,}"
    if artifact.status == "partial":
        state = Text("partial", "yellow")
    elif artifact.stale is not None:
        state = Text("stale: ", "yellow").append_text(console.inert(artifact.stale))
    else:
        state = Text("")
    return [
        console.inert(artifact.id),
        Text(rows),
        Text(f"{artifact.bytes / 1e6:,.1f}"),
        console.inert(", ".join(artifact.inputs)),
        console.inert(artifact.path),
        state,
    ]


COMMANDS = (
    Status(
        name="status",
        config=StatusConfig,
        summary="What a run holds, what is stale, and what to do next.",
        examples=(
            ("sweet status", "the newest run"),
            ("sweet status --schema", "the JSON Schema of manifest.json"),
        ),
    ),
)
