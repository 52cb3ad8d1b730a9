"""`sweet doctor`."""

from __future__ import annotations

from rich.text import Text

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.errors import SweetError
from sweet.inspection.doctor import Check, DoctorConfig, as_json, run_doctor
from sweet.view.text import printable

STYLES = {"ok": "green", "missing": "yellow", "problem": "red"}


class Doctor(Command[DoctorConfig]):
    def work(self, call: Call[DoctorConfig]) -> None:
        if call.config.ray is not None:
            _check_nodes(call, call.config.ray)
            return
        call.reporter.say("Checking this machine.")
        checks = run_doctor(call.config)
        if call.common.json:
            console.print_json({"run": None, "metrics": {}, "artifacts": [], **as_json(checks)})
        else:
            console.show_table("sweet doctor", ["", "", "found"], map(_row, checks))
        _raise_if_missing(checks)


def _check_nodes(call: Call[DoctorConfig], address: str) -> None:
    from sweet.inspection.cluster_doctor import nodes_as_json, run_cluster_doctor

    call.reporter.say("Checking the nodes of the cluster.")
    nodes = run_cluster_doctor(address, call.config, call.reporter.say)
    if call.common.json:
        console.print_json({"run": None, "metrics": {}, "artifacts": [], **nodes_as_json(nodes)})
    else:
        for name, checks in nodes.items():
            console.show_table(f"sweet doctor · {name}", ["", "", "found"], map(_row, checks))
    for name, checks in nodes.items():
        _raise_if_missing(checks, name)


def _raise_if_missing(checks: list[Check], node: str = "") -> None:
    """Raise SweetError if a required item is missing."""
    broken = next((check for check in checks if check.required and check.status != "ok"), None)
    if broken is not None:
        where = ": ".join(filter(None, (node, broken.name, broken.found)))
        raise SweetError("A requirement of the pipeline is missing.", where=where, fix=broken.fix)


def _row(check: Check) -> list[object]:
    status = Text(check.status, STYLES[check.status])
    found = console.safe_text(check.found)
    if check.status != "ok":
        found = found.append(f"\nfor {printable(check.why)}", "dim").append(f"\n{printable(check.fix)}", "bold")
    return [check.name, status, found]


COMMANDS = (
    Doctor(
        name="doctor",
        config=DoctorConfig,
        summary="Check this machine and show the commands that install what is missing.",
        text="Exits with 1 if a requirement of the pipeline on the packaged agent and tasks is missing.",
        examples=(
            ("sweet doctor", "check everything"),
            ("sweet doctor --ray auto", "check every node of this machine's Ray cluster"),
            ("sweet doctor --json", "the same as JSON"),
        ),
    ),
)
