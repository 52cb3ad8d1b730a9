"""The texts by which a kind of task addresses its agent and the model that plays its human.

They are files, `agent.txt` and `human.txt` in the folder `texts` of the kind's package; a folder of one's own may hold
others in their place. The human's prompt has places (`{request}`, …), each on a line of its own, where a part of the
task or of the dialogue goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import ClassVar, Self

from sweet.errors import InputError

_LONGEST = 100_000


@dataclass(frozen=True)
class Prompts:
    """The two texts. A kind derives its own, with the package that holds them and the places of the human's."""

    agent: str
    human: str

    package: ClassVar[str]
    places: ClassVar[tuple[str, ...]]

    @classmethod
    def packaged(cls) -> Self:
        return cls(**_packaged(cls.package))

    @classmethod
    def of(cls, folder: Path) -> Self:
        """The packaged texts with those of a folder in their place.

        Raises:
            InputError: the folder is none, holds neither text or something else, or a text cannot be used.
        """
        try:
            names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
        except OSError as error:
            raise InputError(f"The folder of prompts cannot be read: {error.strerror}.", path=folder) from error
        known = {f"{field.name}.txt": field.name for field in fields(Prompts)}
        if not names or set(names) - set(known):
            other = ", ".join(name for name in names if name not in known) or "nothing"
            raise InputError(
                f"A folder of prompts holds {' and '.join(known)} or one of them; this one holds {other}.", path=folder
            )
        texts = {known[name]: _read(folder / name) for name in names}
        if "human" in texts:
            cls._check_places(texts["human"], folder / "human.txt")
        return replace(cls.packaged(), **texts)

    def filled(self, parts: Mapping[str, str]) -> str:
        """The human's text with each part, by the name of its place, in place of that line."""
        lines: list[str] = []
        for line in self.human.split("\n"):
            place = line.strip()
            if place not in self.places:
                lines.append(line)
            elif part := parts[place[1:-1]]:
                lines.append(part)
        return "\n".join(lines)

    @classmethod
    def _check_places(cls, text: str, file: Path) -> None:
        lines = [line.strip() for line in text.split("\n")]
        missing = [place for place in cls.places if lines.count(place) != 1]
        if missing:
            raise InputError(
                f"The human's prompt must have {', '.join(missing)} once, each on a line of its own.",
                path=file,
                fix="they stand for what the human is told: the request, the reference solution, the dialogue so far",
            )


@cache
def _packaged(package: str) -> dict[str, str]:
    folder = resources.files(package) / "texts"
    return {field.name: (folder / f"{field.name}.txt").read_text("utf-8").strip() for field in fields(Prompts)}


def _read(file: Path) -> str:
    try:
        text = file.read_bytes()[: _LONGEST + 1].decode("utf-8").replace("\r\n", "\n").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The prompt cannot be read as UTF-8 text: {error}.", path=file) from error
    if not text or len(text) > _LONGEST:
        raise InputError("The prompt is empty." if not text else "The prompt is too long.", path=file)
    return text
