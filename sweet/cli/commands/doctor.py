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
            _look_at_nodes(call, call.config.ray)
            return
        call.reporter.say("Looking at this machine.")
        checks = run_doctor(call.config)
        if call.common.json:
            console.print_json({"run": None, "metrics": {}, "artifacts": [], **as_json(checks)})
        else:
            console.show_table("sweet doctor", ["", "", "found"], map(_row, checks))
        _judge(checks)


def _look_at_nodes(call: Call[DoctorConfig], address: str) -> None:
    from sweet.inspection.cluster_doctor import nodes_as_json, run_cluster_doctor

    call.reporter.say("Looking at the nodes of the cluster.")
    nodes = run_cluster_doctor(address, call.config, call.reporter.say)
    if call.common.json:
        console.print_json({"run": None, "metrics": {}, "artifacts": [], **nodes_as_json(nodes)})
    else:
        for name, checks in nodes.items():
            console.show_table(f"sweet doctor · {name}", ["", "", "found"], map(_row, checks))
    for name, checks in nodes.items():
        _judge(checks, name)


def _judge(checks: list[Check], node: str = "") -> None:
    """Raise SweetError where something required is not there."""
    broken = next((check for check in checks if check.required and check.status != "ok"), None)
    if broken is not None:
        where = ": ".join(filter(None, (node, broken.name, broken.found)))
        raise SweetError("Something the pipeline needs is missing.", where=where, fix=broken.fix)


def _row(check: Check) -> list[object]:
    status = Text(check.status, STYLES[check.status])
    found = console.inert(check.found)
    if check.status != "ok":
        found = found.append(f"\nfor {printable(check.why)}", "dim").append(f"\n{printable(check.fix)}", "bold")
    return [check.name, status, found]


COMMANDS = (
    Doctor(
        name="doctor",
        config=DoctorConfig,
        summary="What this machine has and lacks, and the command that mends it.",
        text="Exits with 1 where something is missing that the pipeline on the packaged agent and tasks needs.",
        examples=(
            ("sweet doctor", "look at everything"),
            ("sweet doctor --ray auto", "at every node of the Ray cluster that this machine belongs to"),
            ("sweet doctor --json", "the same for a program"),
        ),
    ),
)
