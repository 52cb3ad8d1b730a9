"""Prompt templates in files: a line that consists of `{name}` is a placeholder for a text.

Every line of an inserted text is indented by four spaces, and the template's own lines are not, so that an inserted
text cannot be mistaken for the template.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sweet.errors import InputError

INDENT = "    "
_LONGEST = 100_000


def indented(text: str) -> str:
    """Return the text with every line indented."""
    return "\n".join(INDENT + line for line in text.split("\n"))


def placeholder_in(line: str) -> str | None:
    """Return the name in a line that consists of a placeholder, else None."""
    bare = line.strip()
    return bare[1:-1] if bare.startswith("{") and bare.endswith("}") and bare[1:-1].isidentifier() else None


def fill(prompt: str, held: Mapping[str, Sequence[str]]) -> str:
    """Return the prompt with its placeholders replaced by lines; those without lines are left unchanged."""
    lines: list[str] = []
    for line in prompt.split("\n"):
        name = placeholder_in(line)
        lines += [line] if name is None or name not in held else held[name]
    return "\n".join(lines)


def without(prompt: str, places: Collection[str]) -> str:
    """Return the prompt without the paragraphs that contain one of these placeholders."""
    paragraphs = (text.split("\n") for text in prompt.split("\n\n"))
    return "\n\n".join("\n".join(lines) for lines in paragraphs if set(places).isdisjoint(map(placeholder_in, lines)))


def read_prompt(file: Path) -> str:
    """Read the file of a prompt.

    Raises:
        InputError: it cannot be read, is empty, or is too long.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(4 * _LONGEST).decode("utf-8").replace("\r\n", "\n").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The prompt cannot be read as UTF-8 text: {error}.", path=file) from error
    if not text or len(text) > _LONGEST:
        raise InputError("The prompt is empty." if not text else "The prompt is too long.", path=file)
    return text


def check_placeholders(
    prompt: str, places: Sequence[str], file: Path, *, whose: str, fix: str, optional: Sequence[str] = ()
) -> None:
    """Check that the prompt has each placeholder exactly once, and each optional one at most once.

    Raises:
        InputError: it does not.
    """
    found = [placeholder_in(line) for line in prompt.split("\n")]
    if wrong := [place for place in places if found.count(place) != 1]:
        names = ", ".join(f"{{{place}}}" for place in wrong)
        raise InputError(f"The {whose} prompt must have {names} once, each on a line of its own.", path=file, fix=fix)
    if repeated := [place for place in optional if found.count(place) > 1]:
        names = ", ".join(f"{{{place}}}" for place in repeated)
        raise InputError(f"The {whose} prompt may have {names} only once.", path=file, fix=fix)
