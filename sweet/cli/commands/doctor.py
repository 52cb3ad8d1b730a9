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
    examples=(
        ("sweet doctor", "check everything"),
        ("sweet doctor --ray auto", "check every node of this machine's Ray cluster"),
        ("sweet doctor --json", "the same as JSON"),
    ),
    text="Exits with 1 if a requirement of the pipeline on the packaged agent and tasks is missing.",
)
def doctor(call: Call[DoctorConfig]) -> None:
    from sweet.inspection.doctor import as_json, nodes_as_json, run_cluster_doctor, run_doctor

    if call.config.ray is None:
        call.reporter.say("Checking this machine.")
        nodes = {"": run_doctor(call.config)}
        found = as_json(nodes[""])
    else:
        call.reporter.say("Checking the nodes of the cluster.")
        nodes = run_cluster_doctor(call.config.ray, call.config, call.reporter.say)
        found = nodes_as_json(nodes)
    found = {"run": None, "metrics": {}, "artifacts": [], **found}
    if not call.common.json:
        for name, checks in nodes.items():
            _show(" · ".join(filter(None, ("sweet doctor", name))), checks)
    for name, checks in nodes.items():
        for check in checks:
            if check.required and check.status != "ok":
                where = ": ".join(filter(None, (name, check.name, check.found)))
                error = SweetError("A requirement of the pipeline is missing.", where=where, fix=check.fix)
                error.found = found
                raise error
    if call.common.json:
        console.print_json(found)


def _show(title: str, checks: list[Check]) -> None:
    console.heading(title)
    console.show_rows(["", "", "found"], map(_row, checks))


def _row(check: Check) -> list[object]:
    status = Text(check.status, STYLES[check.status])
    found = console.safe_text(check.found)
    if check.status != "ok":
        found = found.append(f"\nfor {printable(check.why)}", "dim").append(f"\n{printable(check.fix)}", "bold")
    return [check.name, status, found]
