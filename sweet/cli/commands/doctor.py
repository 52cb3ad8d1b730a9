"""`sweet doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from sweet.inspection.doctor import as_json, run_doctor

    if call.config.ray is not None:
        _check_nodes(call, call.config.ray)
        return
    call.reporter.say("Checking this machine.")
    checks = run_doctor(call.config)
    if not call.common.json:
        _show("sweet doctor", checks)
    _end(call, as_json(checks), _missing(checks))


def _check_nodes(call: Call[DoctorConfig], address: str) -> None:
    from sweet.inspection.cluster_doctor import nodes_as_json, run_cluster_doctor

    call.reporter.say("Checking the nodes of the cluster.")
    nodes = run_cluster_doctor(address, call.config, call.reporter.say)
    if not call.common.json:
        for name, checks in nodes.items():
            _show(f"sweet doctor · {name}", checks)
    errors = (_missing(checks, name) for name, checks in nodes.items())
    _end(call, nodes_as_json(nodes), next(filter(None, errors), None))


def _end(call: Call[DoctorConfig], found: dict[str, Any], error: SweetError | None) -> None:
    """Print what was found as JSON if that is asked for, and raise the error if there is one."""
    shown = {"run": None, "metrics": {}, "artifacts": [], **found}
    if error is not None:
        error.found = shown
        raise error
    if call.common.json:
        console.print_json(shown)


def _missing(checks: list[Check], node: str = "") -> SweetError | None:
    """Return the error for a required item that is missing; None if there is none."""
    broken = next((check for check in checks if check.required and check.status != "ok"), None)
    if broken is None:
        return None
    where = ": ".join(filter(None, (node, broken.name, broken.found)))
    return SweetError("A requirement of the pipeline is missing.", where=where, fix=broken.fix)


def _show(title: str, checks: list[Check]) -> None:
    console.heading(title)
    console.show_rows(["", "", "found"], map(_row, checks))


def _row(check: Check) -> list[object]:
    status = Text(check.status, STYLES[check.status])
    found = console.safe_text(check.found)
    if check.status != "ok":
        found = found.append(f"\nfor {printable(check.why)}", "dim").append(f"\n{printable(check.fix)}", "bold")
    return [check.name, status, found]
