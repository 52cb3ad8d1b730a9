"""`sweet report`: its configuration.

The facts and the pages are imported when they are needed:

    facts           the types of the facts about a run, which `--json` prints; collect makes them, from
                    evaluation_facts and training_facts
    pages           pages and Markdown texts from the templates in `templates/`
    charts          charts as SVG; scales
    report_page     a run's report
    dialogues_page  the page of dialogues; dialogue draws one, with its pictures
    study_page      a study's results; study_facts has their tables, series and words
"""

from __future__ import annotations

from pathlib import Path

from sweet.stages.base import MarkdownConfig

FILE = "report.html"
"""The page's name in the run."""


class ReportConfig(MarkdownConfig):
    out: Path | None = None
    """Write the page to this file; default: report.html in the run, unless --markdown or --json is given."""
