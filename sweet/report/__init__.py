"""`sweet report`: its configuration.

`sweet.report.collect` (a run as facts) and `sweet.view.report` (facts as a page) are imported when they are needed.
"""

from __future__ import annotations

from pathlib import Path

from sweet.stages.base import StageConfig

FILE = "report.html"
"""The page's name in the run."""


class ReportConfig(StageConfig):
    out: Path | None = None
    """Write the page to this file; default: report.html in the run, unless --markdown or --json is given."""
    markdown: bool = False
    """Print a short report for a pull request."""
    dialogues: bool = True
    """Include some dialogues in the page."""
