"""Prompts that are files: where a line of its own says `{name}`, a text is put in its place.

Every line of such a text is indented by four spaces while the prompt's own lines start at the margin, so whatever a
text contains, it cannot be taken for the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sweet.errors import InputError

INDENT = "    "
_LONGEST = 100_000


def indented(text: str) -> str:
    """The text with every line indented."""
    return "\n".join(INDENT + line for line in text.split("\n"))


def place_of(line: str) -> str | None:
    """The name in a line that is nothing but a place."""
    bare = line.strip()
    return bare[1:-1] if bare.startswith("{") and bare.endswith("}") and bare[1:-1].isidentifier() else None


def fill(prompt: str, held: Mapping[str, Sequence[str]]) -> str:
    """The prompt with these lines in its places; a place that nothing is held for stays as it is."""
    lines: list[str] = []
    for line in prompt.split("\n"):
        name = place_of(line)
        lines += [line] if name is None or name not in held else held[name]
    return "\n".join(lines)


def read_prompt(file: Path) -> str:
    """The text of a prompt's file.

    Raises:
        InputError: it cannot be read, is empty, or longer than any prompt is.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(4 * _LONGEST).decode("utf-8").replace("\r\n", "\n").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The prompt cannot be read as UTF-8 text: {error}.", path=file) from error
    if not text or len(text) > _LONGEST:
        raise InputError("The prompt is empty." if not text else "The prompt is too long.", path=file)
    return text


def check_places(prompt: str, places: Sequence[str], file: Path, *, whose: str, fix: str) -> None:
    """Raise InputError where one of the places is not there exactly once."""
    found = [place_of(line) for line in prompt.split("\n")]
    if any(found.count(place) != 1 for place in places):
        missing = ", ".join(f"{{{place}}}" for place in places if found.count(place) != 1)
        raise InputError(f"The {whose} prompt must have {missing} once, each on a line of its own.", path=file, fix=fix)
