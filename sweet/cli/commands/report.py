"""`sweet report`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sweet.cli import console
from sweet.cli.command import OptionalRun, command
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.results import ReportConfig


@command(
    "report",
    "sweet.results:ReportConfig",
    examples=(
        ("sweet report", "report.html in the newest run"),
        ("sweet report RUN --out results.html", "to another file"),
        ("sweet report RUN --markdown", "a short report for a pull request, on stdout"),
    ),
)
def report(call: Call[ReportConfig], run: OptionalRun = None) -> None:
    from sweet.cli.stage import newest_run
    from sweet.files import check_target
    from sweet.results import FILE, pages
    from sweet.results.collect import collect
    from sweet.results.report_page import markdown, report_page

    config = call.config
    opened = newest_run(run, call.reporter)
    text_only = config.markdown or call.common.json
    out = config.out if config.out is not None or text_only else opened.path / FILE
    if out is not None:
        check_target(out)
    collected = collect(opened)
    for problem in collected.problems:
        call.reporter.warn(problem)
    if out is not None:
        pages.write(out, report_page(collected))
    if call.common.json:
        console.print_json({**collected.as_json(), "run": str(opened.path)})
    elif config.markdown:
        sys.stdout.write(markdown(collected))
    elif out is not None:
        console.show(str(out))
