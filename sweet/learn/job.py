"""A training job as one file, which the command writes for the ranks (`sweet.learn.distributed`, `sweet.learn.worker`).

The ranks do not know about runs. They get token sequences, settings and folders; rank 0 writes progress lines and the
model there, and each rank its error. Images are passed as the paths of their files, which every rank reads itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from sweet.files import write_whole
from sweet.learn.components import Example, Objective
from sweet.learn.loop import LoopSettings
from sweet.learn.tokens import Span, TokenSequence
from sweet.learn.trainee import Start
from sweet.learn.vision_processor import Picture, VisionProcessor
from sweet.learn.zero import CHECKPOINT_FILE, ZeroSettings

FILE = "job.json"


@dataclass(frozen=True)
class Job:
    """One training on several ranks.

    Attributes:
        start: the model to start from.
        output: the folder of the trained model.
        digest: identifies the training, as for `Loop`.
        vision: prepares the images of a critic that sees pages, and is saved with the model; None for other models.
    """

    start: Start
    output: Path
    device: Literal["cpu", "cuda"]
    zero: ZeroSettings
    settings: LoopSettings
    objective: Objective
    digest: str
    resume: bool
    pool: Sequence[TokenSequence]
    examples: Sequence[Example]
    heldout: Sequence[Example]
    vision: VisionProcessor | None = field(default=None, compare=False)

    def write(self, folder: Path) -> None:
        pictures = list(dict.fromkeys(picture for sequence in self.pool for picture in sequence.images))
        numbers = {picture: number for number, picture in enumerate(pictures)}
        content = {name: kind.dump_python(getattr(self, name), mode="json") for name, kind in _FIELDS.items()}
        content |= {
            "vision": None if self.vision is None else (self.vision.name, self.vision.max_pixels),
            "pictures": [(str(picture.path.absolute()), picture.tokens) for picture in pictures],
            "pool": [
                (sequence.ids, [astuple(span) for span in sequence.spans], [numbers[one] for one in sequence.images])
                for sequence in self.pool
            ],
        }
        write_whole(folder / FILE, json.dumps(content).encode())

    @classmethod
    def read(cls, folder: Path) -> Job:
        content: dict[str, Any] = json.loads((folder / FILE).read_bytes())
        vision = None if content["vision"] is None else VisionProcessor(*content["vision"])
        pictures = [Picture(Path(file), tokens, vision) for file, tokens in content["pictures"] if vision is not None]
        pool = [
            TokenSequence(
                tuple(ids), tuple(Span(*span) for span in spans), tuple(pictures[number] for number in numbers)
            )
            for ids, spans, numbers in content["pool"]
        ]
        fields = {name: kind.validate_python(content[name]) for name, kind in _FIELDS.items()}
        return cls(**fields, pool=pool, vision=vision)


EXAMPLES = TypeAdapter(list[Example])
"""Reads and writes examples as JSON."""

_FIELDS: dict[str, TypeAdapter[Any]] = {
    "start": TypeAdapter(Start),
    "output": TypeAdapter(Path),
    "device": TypeAdapter(str),
    "zero": TypeAdapter(ZeroSettings),
    "settings": TypeAdapter(LoopSettings),
    "objective": TypeAdapter(Objective),
    "digest": TypeAdapter(str),
    "resume": TypeAdapter(bool),
    "examples": EXAMPLES,
    "heldout": EXAMPLES,
}
"""The fields that are stored as they are."""


def checkpoint_path(folder: Path) -> Path:
    """The checkpoint file of ranks that work in `folder`."""
    return folder / "checkpoint" / CHECKPOINT_FILE
