"""What the command and its ranks tell each other, as files in a folder: the job, calls by number, and their answers.

All ranks read a call, and rank 0 answers when all of them have done it. They wait for the next call without a
collective operation, which would end with an error while dialogues are played for an hour.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sweet.files import write_whole
from sweet.learn.metrics import Record

POLL_INTERVAL = 0.02
"""Seconds between two looks for a file."""


@dataclass(frozen=True)
class RankJob:
    """What a rank needs to learn.

    Attributes:
        run: the path of the run.
        config: the options of the training.
        base: the model to train.
        used: the hyperparameters.
        critic: id of the critic that the rule asks; None for a rule that asks none.
        source: id of the rollouts.
        zero: the fields of `sweet.learn.zero.ZeroSettings`.
    """

    run: str
    config: dict[str, Any]
    base: str
    used: dict[str, Any]
    critic: str | None
    source: str
    device: Literal["cpu", "cuda"]
    zero: dict[str, Any]

    def write(self, folder: Path) -> None:
        _write(folder / "job.json", asdict(self))

    @classmethod
    def read(cls, folder: Path) -> RankJob:
        return cls(**_read(folder / "job.json"))


@dataclass(frozen=True)
class Call:
    """A call of a method of `sweet.online.learner.Learns`, whose weights are written to a file."""

    method: str
    arguments: dict[str, Any]

    def write(self, folder: Path, number: int) -> None:
        _write(folder / f"call-{number}.json", asdict(self))

    @classmethod
    def read(cls, folder: Path, number: int) -> Call | None:
        """Return a call; None if it has not been made."""
        path = folder / f"call-{number}.json"
        return cls(**_read(path)) if path.exists() else None


@dataclass(frozen=True)
class Answer:
    """The answer to a call.

    Attributes:
        result: what the method returned, if that is JSON.
        updates: of the weights so far.
        said, warned: messages for the user.
    """

    result: Record | None
    updates: int
    said: list[str]
    warned: list[str]

    def write(self, folder: Path, number: int) -> None:
        _write(folder / f"answer-{number}.json", asdict(self))

    @classmethod
    def take(cls, folder: Path, number: int) -> Answer | None:
        """Return the answer and remove it with its call; None if there is none yet."""
        path = folder / f"answer-{number}.json"
        if not path.exists():
            return None
        answer = cls(**_read(path))
        path.unlink()
        (folder / f"call-{number}.json").unlink()
        return answer


def weights_path(folder: Path) -> Path:
    """Return the file in which rank 0 leaves weights, in safetensors format."""
    return folder / "weights.safetensors"


def _write(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, json.dumps(content).encode())


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content
