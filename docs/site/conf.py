"""The documentation as a site: `sphinx-build -W --keep-going -c docs/site . DIRECTORY` writes it.

The pages are the Markdown files as they stand in the repository, with README.md as the first; this file has only their
order. MyST reads them by the parser that `tests/docs` uses, and makes the anchors of headings that code hosts make, so
that a link holds in both places. `-W` makes an error of a link or anchor without a target, and of a page that is in no
list below. The theme loads nothing from elsewhere, neither while the site is built nor while it is read.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pygments.lexers.data import JsonLexer

from sweet.installation import VERSION

NAVIGATION = {
    "Start": {
        "Overview": "README",
        "Installing": "docs/installing",
        "Tutorials": "docs/tutorials",
        "Questions": "docs/faq",
        "Your tasks, your model": "docs/train",
        "Tasks of your own": "docs/tasks",
        "Examples": "examples/README",
    },
    "Method": {
        "Critics": "docs/critic",
        "Credit rules": "docs/credit",
        "Results": "docs/results",
        "The paper's rows": "docs/paper",
    },
    "Stages": {
        "Stage by stage": "docs/stages",
        "Rollouts": "docs/rollouts",
        "Training": "docs/training",
        "Training by a service": "docs/tinker",
        "Online training": "docs/online",
        "Web pages": "docs/html",
        "Models that call tools": "docs/tools",
        "Environments of others": "docs/environments",
    },
    "Results in use": {
        "Looking at dialogues": "docs/viewing",
        "Playing": "docs/play",
        "Your own agent": "docs/gateway",
        "Other programs": "docs/export",
    },
    "Machines": {
        "The sandbox": "docs/sandbox",
        "Containers": "docs/containers",
        "Planning": "docs/planning",
        "Many machines": "docs/cluster",
        "On a GPU": "docs/gpu",
        "Small models on a CPU": "docs/small-models",
    },
    "Reference": {
        "Commands": "docs/commands",
        "For scripts": "docs/scripts",
        "Python": "docs/api",
        "Architecture": "docs/architecture",
        "Contributing": "CONTRIBUTING",
        "For coding agents": "AGENTS",
        "Changes": "CHANGELOG",
    },
}
"""Each page in the navigation: heading, title, file without `.md`."""

project = "sweet"
author = "The sweet authors"
version = release = VERSION
html_title = "sweet"
html_theme = "furo"
html_show_copyright = html_show_sphinx = html_copy_source = False
extensions = ["myst_parser"]
myst_heading_anchors = 4
include_patterns = ["*.md", "docs/*.md", "examples/*.md"]
exclude_patterns = [".*", "benchmarks", "completions", "dist", "runs", "sweet", "tests"]
root_doc = "README"


def add_navigation(_app: Any, docname: str, source: list[str]) -> None:
    """Append the navigation to the first page, as hidden lists of pages."""
    if docname == root_doc:
        for caption, pages in NAVIGATION.items():
            lines = [f"{title} <{'self' if page == root_doc else page}>" for title, page in pages.items()]
            source[0] += "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```\n"])


def add_index(app: Any, error: Exception | None) -> None:
    """Copy the first page to `index.html`, which servers answer with."""
    if error is None and app.builder.name == "html":
        shutil.copyfile(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Any) -> None:
    app.add_lexer("jsonl", JsonLexer)
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
