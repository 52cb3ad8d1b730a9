"""What our pages have in common: each is one file that asks nothing of the network and says so.

The Content-Security-Policy of a page allows the one style sheet and the one script that stand in it, by their hashes,
pictures that stand in it, where there are some, and nothing else, so that markup which slipped out of a model's text
could neither run nor load anything. It cannot slip out either: every text that is not ours passes through `text` or
`line`.
"""

from __future__ import annotations

import base64
import errno
import hashlib
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path

from sweet.errors import UsageError
from sweet.files import replacing
from sweet.view.text import printable, printable_line

PICTURES = "img-src data:; "
"""What the policy of a page with pictures says besides."""


def text(content: str) -> str:
    """Any text as HTML, its lines kept."""
    return escape(printable(content))


def line(content: str) -> str:
    """Any text as HTML on one line; fit for an attribute in double quotes too."""
    return escape(printable_line(content))


def resource(*names: str) -> str:
    """Our style sheets or scripts, one after the other."""
    return "".join(files("sweet.view").joinpath(name).read_text(encoding="utf-8") for name in names)


def head(title: str, style: str, *, script: str = "", pictures: bool = False) -> str:
    """The page up to its body, which is open.

    Args:
        title: any text.
        script: what will stand in the page's one script element.
    """
    scripts = f"script-src '{_hash(script)}'; " if script else ""
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; {scripts}"
        f"{PICTURES if pictures else ''}base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{line(title)}</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n"
    )


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def check_target(path: Path, option: str) -> None:
    """UsageError where no page can be written to a path, before any work is done for it."""
    if not path.parent.is_dir():
        raise UsageError("The folder of the file is not there.", where=path.parent, fix=f"mkdir -p {path.parent}")
    if path.is_dir():
        raise UsageError("This is a folder, not a file.", where=path, fix=f"{option} FILE")


def write(path: Path, parts: Iterable[str]) -> None:
    """Write a page to `path`, which is replaced only once all of it is written.

    Raises:
        UsageError: nothing may be written there.
    """
    try:
        with replacing(path) as file:
            for part in parts:
                file.write(part.encode())
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise UsageError(
            f"The page cannot be written: {error.strerror}.", where=path, fix="name a file elsewhere"
        ) from error
