"""Shared parts of the HTML pages: each page is one self-contained file that loads nothing from the network.

The Content-Security-Policy of a page allows its inline style sheet and script by their hashes, embedded pictures if it
has any, and nothing else, so that markup which escaped from a model's text could neither run nor load anything. As a
first defence every text from models and files is escaped by `text` or `line`.
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
"""The additional policy of a page with pictures."""


def text(content: str) -> str:
    """Escape any text as HTML; line breaks are kept."""
    return escape(printable(content))


def line(content: str) -> str:
    """Escape any text as HTML on one line; also safe in a double-quoted attribute."""
    return escape(printable_line(content))


def resource(*names: str) -> str:
    """Return the concatenated style sheets or scripts of this package."""
    return "".join(files("sweet.view").joinpath(name).read_text(encoding="utf-8") for name in names)


def head(title: str, style: str, *, script: str = "", pictures: bool = False) -> str:
    """Return the page up to the opening tag of its body.

    Args:
        title: any text.
        script: the content of the page's only script element.
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


def write(path: Path, parts: Iterable[str]) -> None:
    """Write a page to `path`, which is replaced only after the page is complete.

    Raises:
        UsageError: the file cannot be written because of its permissions.
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
