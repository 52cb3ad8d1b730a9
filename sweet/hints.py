"""Texts that name an option or a stage, worded for the command line and for Python.

A stage can be called in two ways: `sweet eval RUN --scorer strict`, or `sweet.evaluate(run, config)` with
`config = sweet.EvalConfig(scorer="strict")`. An error that names the option should say `--scorer strict` to the user of
the first and `scorer='strict'` to the user of the second. So errors name options and stages by `option` and `stage`,
and join them with other text by `Hint`:

    Hint("a smaller ", option("lr"), ", then ", option("resume", True))

A `Hint` is a string, the wording of the command line, and has the other wording in its attribute `python`. Code that
does not care treats it as any other text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Self

_PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*")
"""A value that the user must replace, such as MODEL: it is not quoted in Python."""

_FUNCTIONS = {"eval": "evaluate"}
"""Functions of the package whose name differs from that of their command: `eval` is a built-in of Python."""


class Hint(str):
    """A text in two wordings.

    Attributes:
        python: the wording for Python. The string itself is the wording for the command line.
    """

    __slots__ = ("python",)
    python: str

    def __new__(cls, *parts: str) -> Self:
        self = super().__new__(cls, "".join(parts))
        self.python = "".join(map(in_python, parts))
        return self

    @classmethod
    def of(cls, command_line: str, python: str) -> Self:
        """A text of which both wordings are given."""
        self = cls(command_line)
        self.python = python
        return self


def listed(parts: Iterable[str]) -> Hint:
    """Return the parts with commas between them."""
    first, *others = parts
    return Hint(first, *(part for other in others for part in (", ", other)))


def hint_to_json(text: str | None) -> str | dict[str, str] | None:
    """Return a text as a JSON value that keeps both wordings."""
    return {"command_line": str(text), "python": text.python} if isinstance(text, Hint) else text


def hint_from_json(value: str | dict[str, str] | None) -> str | None:
    """Return the text of `hint_to_json`."""
    return Hint.of(value["command_line"], value["python"]) if isinstance(value, dict) else value


def in_python(text: str) -> str:
    """Return the wording of a text for Python; a plain text has only one."""
    return text.python if isinstance(text, Hint) else text


def option(field: str, value: object = None) -> Hint:
    """Name an option of a stage, with a value or alone.

    Args:
        field: the field of the stage's configuration, such as `fail_on_error` or `from_`.
        value: its value, or a placeholder in capitals such as MODEL; several values to choose from as a tuple.
            True is a flag without a value, False the opposite one (`--no-verify`).
    """
    key = field.rstrip("_").replace("_", "-")
    flag = f"--no-{key}" if value is False else f"--{key}"
    if value is None:
        return Hint.of(flag, field)
    choices = value if isinstance(value, tuple) else (value,)
    python = f"{field}={' or '.join(map(_literal, choices))}"
    return Hint.of(flag if isinstance(value, bool) else f"{flag} {'|'.join(map(_written, choices))}", python)


def stage(name: str, run: Path | None = None, **options: object) -> Hint:
    """Name a call of a stage.

    Args:
        name: the stage's command, such as `train-critic`.
        run: the run's directory, where it is known.
        options: the options to call it with, by their fields.
    """
    words = ["sweet", name, *([] if run is None else [str(run)])]
    given = [option(field, value) for field, value in options.items()]
    for hint in given:
        flag, _, value = hint.partition(" ")
        words += [flag, value] if value else [flag]
    config = "".join(part.capitalize() for part in name.split("-")) + "Config"
    arguments = f"run, sweet.{config}({', '.join(hint.python for hint in given)})" if given else "run"
    return Hint.of(shlex.join(words), f"sweet.{_FUNCTIONS.get(name, name.replace('-', '_'))}({arguments})")


def _written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _literal(value: object) -> str:
    if isinstance(value, str) and _PLACEHOLDER.fullmatch(value):
        return value
    return repr(str(value) if isinstance(value, Path) else value)
