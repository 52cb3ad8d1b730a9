"""`sweet doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from sweet.cli import console
from sweet.cli.command import command
from sweet.cli.spec import Call
from sweet.errors import SweetError
from sweet.view.text import printable

if TYPE_CHECKING:
    from sweet.inspection.doctor import Check, DoctorConfig

STYLES = {"ok": "green", "missing": "yellow", "problem": "red"}


@command(
    "doctor",
    "sweet.inspection.doctor:DoctorConfig",
    examples=(("sweet doctor", "check everything"), ("sweet doctor --json", "the same as JSON")),
    text="Exits with 1 if a requirement of the pipeline on the packaged agent and tasks is missing.",
)
def doctor(call: Call[DoctorConfig]) -> None:
    from sweet.inspection.doctor import as_json, run_doctor

    call.reporter.say("Checking this machine.")
    checks = run_doctor(call.config)
    report = {"run": None, "metrics": {}, "artifacts": [], **as_json(checks)}
    if not call.common.json:
        console.heading("sweet doctor")
        console.show_rows(["", "", "found"], map(_row, checks))
    for check in checks:
        if check.required and check.status != "ok":
            where = f"{check.name}: {check.found}"
            error = SweetError("A requirement of the pipeline is missing.", where=where, fix=check.fix)
            error.found = report
            raise error
    if call.common.json:
        console.print_json(report)


def _row(check: Check) -> list[object]:
    status = Text(check.status, STYLES[check.status])
    details = console.safe_text(check.found)
    if check.status != "ok":
        details = details.append(f"\nfor {printable(check.why)}", "dim").append(f"\n{printable(check.fix)}", "bold")
    return [check.name, status, details]
