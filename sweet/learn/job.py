"""A training job as one file, which the command writes for the ranks (`sweet.learn.distributed`, `sweet.learn.worker`).

The ranks do not know about runs. They get token sequences, settings and folders; rank 0 writes progress lines and the
model there, and each rank its error. Images are passed as the paths of their files, which every rank reads itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch

from sweet.learn.components import Distillation, Example, Objective, PolicyGradient, TokenTerms
from sweet.learn.loop import LoopSettings
from sweet.learn.lora import LoraSettings
from sweet.learn.tokens import Span, TokenSequence
from sweet.learn.trainee import Start
from sweet.learn.vision_processor import Picture, VisionProcessor
from sweet.learn.zero import CHECKPOINT_FILE, ZeroSettings

FILE = "job.pt"
PROGRESS = "progress.jsonl"


_NOWHERE = -1
"""Stored for a span without `reach` or `split`."""


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

    def write(self, path: Path) -> None:
        spans = [
            (s.start, s.stop, s.turn, *(_NOWHERE if place is None else place for place in (s.reach, s.split)))
            for sequence in self.pool
            for s in sequence.spans
        ]
        pictures = {picture: number for number, picture in enumerate(_distinct_pictures(self.pool))}
        fields = {
            "start": asdict(self.start),
            "output": str(self.output),
            "device": self.device,
            "zero": asdict(self.zero),
            "settings": asdict(self.settings),
            "objective": asdict(self.objective),
            "digest": self.digest,
            "resume": self.resume,
            "examples": [asdict(example) for example in self.examples],
            "heldout": [asdict(example) for example in self.heldout],
            "vision": None if self.vision is None else (self.vision.name, self.vision.max_pixels),
            "pictures": [(str(picture.path.absolute()), picture.tokens) for picture in pictures],
        }
        numbers = {
            "ids": torch.tensor(list(chain.from_iterable(s.ids for s in self.pool)), dtype=torch.int32),
            "lengths": torch.tensor([len(s.ids) for s in self.pool]),
            "spans": torch.tensor(spans).reshape(-1, 5),
            "counts": torch.tensor([len(s.spans) for s in self.pool]),
            "images": torch.tensor([pictures[picture] for s in self.pool for picture in s.images], dtype=torch.int32),
            "image_counts": torch.tensor([len(s.images) for s in self.pool]),
        }
        with path.open("wb") as file:  # to a path, torch hides the error of the system
            torch.save({"words": json.dumps(fields), **numbers}, file)

    @classmethod
    def read(cls, path: Path) -> Job:
        content: dict[str, Any] = torch.load(path, weights_only=True)
        fields = json.loads(content["words"])
        ids = content["ids"].split(content["lengths"].tolist())
        spans = content["spans"].split(content["counts"].tolist())
        images = content["images"].split(content["image_counts"].tolist())
        vision = None if fields["vision"] is None else VisionProcessor(*fields["vision"])
        pictures = [Picture(Path(file), tokens, vision) for file, tokens in fields["pictures"] if vision is not None]
        return cls(
            start=_start(fields["start"]),
            output=Path(fields["output"]),
            device=fields["device"],
            zero=ZeroSettings(**fields["zero"]),
            settings=LoopSettings(**fields["settings"]),
            objective=_objective(fields["objective"]),
            digest=fields["digest"],
            resume=fields["resume"],
            pool=[
                TokenSequence(
                    tuple(row.tolist()),
                    tuple(_span(*span) for span in its.tolist()),
                    tuple(pictures[number] for number in shown.tolist()),
                )
                for row, its, shown in zip(ids, spans, images, strict=True)
            ],
            examples=read_examples(fields["examples"]),
            heldout=read_examples(fields["heldout"]),
            vision=vision,
        )


def read_examples(rows: list[dict[str, Any]]) -> list[Example]:
    """Return examples from what JSON stores of `asdict` of them, in which tuples are lists."""
    return [Example(**_tuples(row | {"terms": [TokenTerms(**_tuples(term)) for term in row["terms"]]})) for row in rows]


def checkpoint_path(folder: Path) -> Path:
    """The checkpoint file of ranks that work in `folder`."""
    return folder / "checkpoint" / CHECKPOINT_FILE


def _distinct_pictures(pool: Sequence[TokenSequence]) -> list[Picture]:
    return list(dict.fromkeys(picture for sequence in pool for picture in sequence.images))


def _span(start: int, stop: int, turn: int, *places: int) -> Span:
    return Span(start, stop, turn, *(None if place == _NOWHERE else place for place in places))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    def converted(value: Any) -> Any:
        return tuple(map(converted, value)) if isinstance(value, list) else value

    return {name: converted(value) for name, value in fields.items()}


def _objective(fields: dict[str, Any]) -> Objective:
    policy, distil = fields["policy"], fields["distil"]
    components = {
        "policy": None if policy is None else PolicyGradient(**policy),
        "distil": None if distil is None else Distillation(**distil),
    }
    return Objective(**fields | components)


def _start(fields: dict[str, Any]) -> Start:
    lora = fields.pop("lora")
    if lora is not None:
        lora = LoraSettings(**lora | {"targets": tuple(lora["targets"])})
    return Start(lora=lora, **fields)
