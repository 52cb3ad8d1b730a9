"""`sweet report`."""

from __future__ import annotations

import sys

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.cli.declaration import ArgumentSpec
from sweet.cli.stage_command import newest_run, newest_run_argument
from sweet.results import FILE, ReportConfig


class ReportCommand(Command[ReportConfig]):
    def arguments(self) -> list[ArgumentSpec]:
        return [newest_run_argument()]

    def work(self, call: Call[ReportConfig]) -> None:
        from sweet.files import check_target
        from sweet.results.collect import collect
        from sweet.results.report_page import markdown, write_report

        config = call.config
        run = newest_run(call.arguments["run"], call.reporter)
        text_only = config.markdown or call.common.json
        out = config.out if config.out is not None or text_only else run.path / FILE
        if out is not None:
            check_target(out)
        report = collect(run)
        for problem in report.problems:
            call.reporter.warn(problem)
        if out is not None:
            write_report(out, run, report, dialogues=config.examples)
        if call.common.json:
            console.print_json({**report.as_json(), "run": str(run.path)})
        elif config.markdown:
            sys.stdout.write(markdown(report))
        elif out is not None:
            console.show(console.safe_text(out))


COMMANDS = (
    ReportCommand(
        name="report",
        config=ReportConfig,
        summary="One self-contained page about a run: results, curves, dialogues, lineage.",
        examples=(
            ("sweet report", "report.html in the newest run"),
            ("sweet report RUN --out results.html", "to another file"),
            ("sweet report RUN --markdown", "a short report for a pull request, on stdout"),
        ),
    ),
)
