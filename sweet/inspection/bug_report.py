"""`sweet doctor --report`: what a bug report needs to say about a machine, as Markdown to paste.

It has the versions of this program, of Python, of the system and of the libraries that this program uses, the names of
the variables that set its options, and the results of the checks. It has no keys, no value of a variable, no name of
the machine or the user, and no name of a run, a model or a data set.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from sweet.inspection.doctor import Check
from sweet.installation import DISTRIBUTION, VERSION, installed_versions
from sweet.redaction import redacted
from sweet.units import format_bytes

SHORTEST = 4
"""Shorter names of machines stay: they are parts of words."""


def bug_report(checks: Sequence[Check], environment: Mapping[str, str] = os.environ) -> str:
    """Return the report.

    Args:
        environment: the variables, of which names are reported.
    """
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    names = sorted(name for name in environment if name.startswith("SWEET_"))
    lines = [
        f"### {DISTRIBUTION} {VERSION}",
        "",
        f"- Python {platform.python_version()} ({platform.python_implementation()})",
        f"- {system}, {os.cpu_count()} cores, {format_bytes(memory)}",
        f"- libraries: {', '.join(f'{name} {version}' for name, version in libraries().items())}",
        f"- set variables: {', '.join(names) or 'none'}",
        "",
        "| check | status | found |",
        "|---|---|---|",
    ]
    lines += [f"| {_cell(check.name)} | {check.status} | {_cell(check.found)} |" for check in checks]
    return "\n".join(lines) + "\n"


def libraries() -> dict[str, str]:
    """Return the versions of the installed libraries that this program requires, extras included, by name."""
    lines = importlib.metadata.requires(DISTRIBUTION) or ()
    names = sorted({"".join(takewhile(lambda letter: letter.isalnum() or letter in "._-", line)) for line in lines})
    return installed_versions(names)


def _cell(text: str) -> str:
    """Return a text as a cell of a Markdown table, on one line and without what is private."""
    for private, instead in ((str(Path.home()), "~"), (platform.node(), "HOST")):
        if len(private) >= SHORTEST:
            text = text.replace(private, instead)
    return " ".join(redacted(text).split()).replace("|", "\\|")
