"""`sweet doctor`."""

from __future__ import annotations

from rich.text import Text

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.errors import SweetError
from sweet.stages.doctor import Check, DoctorConfig, as_json, healthy, run_doctor
from sweet.view.text import printable

STYLES = {"ok": "green", "missing": "yellow", "problem": "red"}


class Doctor(Command[DoctorConfig]):
    def work(self, call: Call[DoctorConfig]) -> None:
        call.reporter.say("Looking at this machine.")
        checks = run_doctor(call.config)
        if call.common.json:
            console.print_json({"run": None, "metrics": {}, "artifacts": [], **as_json(checks)})
        else:
            console.show_table("sweet doctor", ["", "", "found"], map(_row, checks))
        if not healthy(checks):
            broken = next(check for check in checks if check.required and check.status != "ok")
            raise SweetError(
                "Something the pipeline needs is missing.", where=f"{broken.name}: {broken.found}", fix=broken.fix
            )


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
        examples=(("sweet doctor", "look at everything"), ("sweet doctor --json", "the same for a program")),
    ),
)
