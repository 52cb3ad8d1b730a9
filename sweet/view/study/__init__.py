"""Write the results of a study: the self-contained page `report.html` (see `sweet.view.html`) and its plots.

study_series    the results as series and rates
plots           these as PNG files, if matplotlib is installed
study_page      the page: the plots, and all numbers as tables
display_names   the names of methods, judges and kinds of turn
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sweet.files import write_whole
from sweet.study.results import StudyResults
from sweet.view import html
from sweet.view.study import plots, study_page

FILE = "report.html"
"""The page's name in the study's folder."""


@dataclass(frozen=True)
class Written:
    """The files that were written.

    Attributes:
        plots: PNG files.
        remark: a sentence about what is missing; empty if nothing is.
    """

    page: Path
    plots: list[Path]
    remark: str


def write_report(folder: Path, results: StudyResults) -> Written:
    """Write the page and its plots into the study's folder, replacing existing ones."""
    drawn = plots.plots(results) if plots.available() else {}
    remark = (
        ""
        if plots.available()
        else f"There are tables but no plots, because matplotlib is not installed: {plots.INSTALL}"
    )
    files = []
    for name, content in drawn.items():
        files.append(folder / f"{name}.png")
        write_whole(files[-1], content)
    html.write(folder / FILE, study_page.page(results, drawn, remark))
    return Written(folder / FILE, files, remark)
