"""TOML files of the user: how they are read, and the errors of what is in them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sweet.errors import InputError, UsageError
from sweet.regular import read_regular
from sweet.suggestions import nearest

LARGEST = 1 << 20
"""Bytes of a regular file at most."""


def read_text(path: Path, what: str, *, regular: bool = True) -> str:
    """Return the text of a file.

    Args:
        what: the name of such a file, for errors.
        regular: refuse what is none or has more than `LARGEST` bytes; otherwise it may also be a pipe (`<(…)`).

    Raises:
        InputError: there is no such file, or it cannot be read as text.
    """
    try:
        return (read_regular(path, LARGEST) if regular else path.read_bytes()).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"There is no such {what}.", path=path) from None
    except OSError as error:
        raise InputError(f"The {what} cannot be read: {error.strerror}.", path=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"The {what} is not UTF-8 text.", path=path, fix="save it as UTF-8") from error


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return the document of a text.

    Args:
        path: the file, for errors.

    Raises:
        InputError: it is not TOML; names the line.
    """
    try:
        document = tomllib.loads(text)
        repr(document)  # a hexadecimal number is read with more digits than Python writes
    except RecursionError:
        raise InputError("The tables and lists of this file are nested too deeply.", path=path) from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise InputError(f"This is not TOML: {error}.", path=path, line=int(line[1]) if line else None) from error
    except ValueError:
        raise InputError("A number of this file has too many digits.", path=path) from None
    return document


def parse_options(text: str, path: Path) -> dict[str, Any]:
    """Return the document of a text whose keys are options, none of them twice; see `parse_toml`."""
    document = parse_toml(text, path)
    _check_spelling(document, "", path)
    return document


def _check_spelling(table: dict[str, Any], prefix: str, path: Path) -> None:
    """Raise UsageError for a key that is spelled in two ways in a table, or in one of its tables."""
    keys = [prefix + spelled(key) for key in table]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise UsageError("This key is spelled in two ways.", where=f"{path}, key {twice[0]}", fix="omit one")
    for key, value in zip(keys, table.values(), strict=True):
        if isinstance(value, dict):
            _check_spelling(value, f"{key}.", path)


def spelled(key: str) -> str:
    """Return a key as options spell it: with dashes, which a file may write as underscores."""
    return key.replace("_", "-").rstrip("-")


def unknown_name(
    what: str,
    name: str,
    known: Iterable[str],
    where: str,
    kind: str = "key ",
    alike: str | None = None,
    others: Iterable[str] = (),
) -> UsageError:
    """Return the error for a name that a file must not have; suggests the most similar one.

    Args:
        what: the file, such as "recipe".
        where: the file, or the option that has the name instead.
        kind: what is named, followed by a blank.
        alike: what to look for among the known names; the name itself where not given.
        others: what is a table where a key is meant, or a key where a table is.
    """
    if name in others:
        what, fix = (f"{name} is no table", f"{name} = …") if kind == "table " else (f"{name} is a table", f"[{name}]")
        return UsageError(f"{what}.", where=f"{where}, {kind}{name}", fix=f"write {fix}")
    names = sorted(known)
    meant = nearest(alike or name, names)
    return UsageError(
        f"The {what} has an unknown {kind}{name!r}." + (f" Did you mean {meant}?" if meant else ""),
        where=f"{where}, {kind}{name}",
        fix=f"write {meant}" if meant else f"known here: {', '.join(names)}",
    )
