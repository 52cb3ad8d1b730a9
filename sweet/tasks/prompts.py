"""The texts by which a kind of task addresses its agent and the model that plays its human.

They are files, `agent.txt` and `human.txt` in the folder `texts` of the kind's package; a folder of one's own may hold
others in their place. The human's prompt has places (`{request}`, …) where a part of the task or of the dialogue goes
(see `sweet.tasks.prompt_text`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import ClassVar, Self

from sweet.errors import InputError
from sweet.tasks.prompt_text import check_places, read_prompt


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
        texts = {known[name]: read_prompt(folder / name) for name in names}
        if "human" in texts:
            fix = "they stand for what the human is told: the request, the reference solution, the dialogue so far"
            check_places(texts["human"], cls.places, folder / "human.txt", whose="human's", fix=fix)
        return replace(cls.packaged(), **texts)


@cache
def _packaged(package: str) -> dict[str, str]:
    folder = resources.files(package) / "texts"
    return {field.name: (folder / f"{field.name}.txt").read_text("utf-8").strip() for field in fields(Prompts)}
