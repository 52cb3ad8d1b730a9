"""Personas: how a simulated human speaks.

A persona is a text that is added below the prompt of the model that plays the human, after a line of its own (`HEAD`).
The packaged ones are in `personas.toml`; a file of the user has the same form, one `name = "text"` each, and its names
come before the packaged ones. `plain` is the human without a persona. The scripted human plays some of the packaged
ones without a model (`sweet.humans.scripted`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from sweet.errors import InputError, UsageError
from sweet.hints import option
from sweet.suggestions import did_you_mean
from sweet.toml_file import parse_toml, read_text

HEAD = "HOW YOU SPEAK"
"""The line above a persona's text in a prompt. Texts of tasks and dialogues are indented there."""

LONGEST_NAME, LONGEST_TEXT = 40, 4000
"""Characters of a persona's name and text at most."""


@dataclass(frozen=True)
class Persona:
    """A name and the text that is added to the human's prompt; empty for `PLAIN`."""

    name: str
    text: str

    def added_to(self, prompt: str) -> str:
        """Return the prompt of the human with this persona."""
        return f"{prompt}\n\n{HEAD}\n{self.text}" if self.text else prompt

    def of(self, human: str) -> str:
        """Return the name of a human with this persona: `scripted:terse`."""
        return f"{human}:{self.name}" if self.text else human


PLAIN = Persona("plain", "")
"""The human without a persona."""


def text_in(prompt: str) -> str:
    """Return the text of the persona in a prompt; empty if it has none."""
    _, separator, text = prompt.rpartition(f"\n\n{HEAD}\n")
    return text if separator else ""


@cache
def packaged() -> Mapping[str, Persona]:
    """Return the packaged personas by name, `PLAIN` first."""
    text = (resources.files("sweet.humans") / "personas.toml").read_text("utf-8")
    return {PLAIN.name: PLAIN} | _checked(parse_toml(text, Path("personas.toml")), Path("personas.toml"))


def read_personas(path: Path) -> dict[str, Persona]:
    """Return the personas of a file by name, in its order.

    Raises:
        InputError: the file cannot be read, or a persona in it is invalid; names the key.
    """
    text = read_text(path, "file of personas")
    personas = _checked(parse_toml(text, path), path)
    if not personas:
        raise InputError("The file has no personas.", path=path, fix='one line for each: name = "text"')
    return personas


def choose_personas(names: Sequence[str], file: Path | None) -> list[Persona]:
    """Return the personas that are named, those of a file before the packaged ones.

    Without names it is every persona of the file, and without a file `PLAIN` alone.

    Raises:
        UsageError: there is no such persona.
        InputError: the file is invalid.
    """
    from_file = {} if file is None else read_personas(file)
    if not names:
        return list(from_file.values()) or [PLAIN]
    personas = {**packaged(), **from_file}
    for name in names:
        if name not in personas:
            raise UsageError(
                f"There is no persona {name}.{did_you_mean(name, personas)}",
                where=option("persona", name),
                fix=f"one of {', '.join(personas)}; or a file with it: --persona-file FILE.toml",
            )
    return [personas[name] for name in dict.fromkeys(names)]


def _checked(values: Mapping[str, object], path: Path) -> dict[str, Persona]:
    personas = {}
    for name, text in values.items():
        plain = name.replace("-", "").replace("_", "")
        if not (plain.isascii() and plain.isalnum()) or len(name) > LONGEST_NAME or name == PLAIN.name:
            what = f"{name[:LONGEST_NAME]!r} cannot be the name of a persona."
            fix = f"letters, digits, - and _, at most {LONGEST_NAME} characters, and not {PLAIN.name}"
            raise InputError(what, path=path, fix=fix)
        if not isinstance(text, str) or not text.strip() or len(text) > LONGEST_TEXT:
            what = f"The persona {name} has no text, or one of more than {LONGEST_TEXT:,} characters."
            raise InputError(what, path=path, fix=f'{name} = "how this human speaks"')
        personas[name] = Persona(name, "\n".join(line.strip() for line in text.strip().splitlines()))
    return personas
