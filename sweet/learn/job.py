"""A training job as one file, which the command writes for the ranks (`sweet.learn.distributed`, `sweet.learn.worker`).

The ranks do not know about runs. They get token sequences, settings and folders; rank 0 writes progress lines and the
model there, and each rank its error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch

from sweet.learn.data import Example, Objective
from sweet.learn.loop import LoopSettings
from sweet.learn.lora import LoraSettings
from sweet.learn.tokens import Span, TokenSequence
from sweet.learn.trainee import Start
from sweet.learn.zero import CHECKPOINT_FILE, ZeroSettings

FILE = "job.pt"
PROGRESS = "progress.jsonl"


_Row = tuple[str, tuple[int, ...], tuple[int, ...], str, tuple[float, ...]]
"""An example as JSON stores it; tuples are read back as lists."""


@dataclass(frozen=True)
class Job:
    """One training on several ranks.

    Attributes:
        start: the model to start from.
        output: the folder of the trained model.
        digest: identifies the training, as for `Loop`.
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

    def write(self, path: Path) -> None:
        spans = [(s.start, s.stop, s.turn) for sequence in self.pool for s in sequence.spans]
        fields = {
            "start": asdict(self.start),
            "output": str(self.output),
            "device": self.device,
            "zero": asdict(self.zero),
            "settings": asdict(self.settings),
            "objective": asdict(self.objective),
            "digest": self.digest,
            "resume": self.resume,
            "examples": _rows(self.examples),
            "heldout": _rows(self.heldout),
        }
        numbers = {
            "ids": torch.tensor(list(chain.from_iterable(s.ids for s in self.pool)), dtype=torch.int32),
            "lengths": torch.tensor([len(s.ids) for s in self.pool]),
            "spans": torch.tensor(spans).reshape(-1, 3),
            "counts": torch.tensor([len(s.spans) for s in self.pool]),
        }
        torch.save({"words": json.dumps(fields), **numbers}, path)

    @classmethod
    def read(cls, path: Path) -> Job:
        content: dict[str, Any] = torch.load(path, weights_only=True)
        fields = json.loads(content["words"])
        ids = content["ids"].split(content["lengths"].tolist())
        spans = content["spans"].split(content["counts"].tolist())
        return cls(
            start=_start(fields["start"]),
            output=Path(fields["output"]),
            device=fields["device"],
            zero=ZeroSettings(**fields["zero"]),
            settings=LoopSettings(**fields["settings"]),
            objective=Objective(**fields["objective"]),
            digest=fields["digest"],
            resume=fields["resume"],
            pool=[
                TokenSequence(tuple(row.tolist()), tuple(Span(*span) for span in its.tolist()))
                for row, its in zip(ids, spans, strict=True)
            ],
            examples=_examples(fields["examples"]),
            heldout=_examples(fields["heldout"]),
        )


def checkpoint_path(folder: Path) -> Path:
    """The checkpoint file of ranks that work in `folder`."""
    return folder / "checkpoint" / CHECKPOINT_FILE


def _rows(examples: Sequence[Example]) -> list[_Row]:
    return [(e.name, e.chosen, e.rejected, e.group, e.goals) for e in examples]


def _examples(rows: list[_Row]) -> list[Example]:
    return [
        Example(name, tuple(chosen), tuple(rejected), group=group, goals=tuple(goals))
        for name, chosen, rejected, group, goals in rows
    ]


def _start(fields: dict[str, Any]) -> Start:
    lora = fields.pop("lora")
    if lora is not None:
        lora = LoraSettings(**lora | {"targets": tuple(lora["targets"])})
    return Start(lora=lora, **fields)
