"""The files of an unfinished training, in the folder of its artifact: when it is done, that has only the model."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from sweet.credit.base import Hyperparameters
from sweet.errors import UsageError
from sweet.files import write_whole
from sweet.learn.components import Example
from sweet.learn.job import checkpoint_path
from sweet.learn.metrics import Record
from sweet.learn.weights import best_files
from sweet.regular import open_regular
from sweet.stages.base import StageConfig, digest_of
from sweet.training.model import StartingModel

CHECKPOINT = "checkpoint.pt"
RANKS = "ranks"
"""The folder in which several ranks work."""
EXAMPLES = "examples.json"
"""The examples as the first attempt built them."""


@dataclass(frozen=True)
class Checkpoints:
    """Where a training stores what it needs to be resumed.

    Attributes:
        folder: of the artifact.
        by_ranks: whether several ranks train.
    """

    folder: Path
    by_ranks: bool

    @property
    def ranks(self) -> Path:
        return self.folder / RANKS

    @property
    def file(self) -> Path:
        return checkpoint_path(self.ranks) if self.by_ranks else self.folder / CHECKPOINT

    def check(self, *, one: str, several: str) -> None:
        """Check that no earlier attempt left a checkpoint of ranks where none train now, or the other way round.

        Args:
            one, several: the options of a training by one process, and of one by ranks.

        Raises:
            UsageError: it left one.
        """
        if Checkpoints(self.folder, not self.by_ranks).file.exists():
            processes, options = ("one process", one) if self.by_ranks else ("several ranks", several)
            what = f"The training was started by {processes}, and its checkpoint can only be read so."
            raise UsageError(what, where=self.folder, fix=f"{options}, or train without --resume")

    def examples(
        self, examples: list[Example], figures: Record, digest: str, *, resume: bool
    ) -> tuple[list[Example], Record]:
        """Return the examples that the first attempt built; where it recorded none, record these.

        What a credit rule weighs by is computed: probabilities by a teacher, advantages by a critic, rewards by a model
        that was trained for it. Several threads add in an order of their own, so a second computation differs in the
        last bits. A training that is resumed therefore learns from the recorded weights, and ends with the weights of
        an uninterrupted one. Examples without weights of tokens are computed exactly, and are not recorded.

        Args:
            figures: metrics of what the credit rule did; recorded with the examples that it led to.
            digest: identifies the training.
            resume: whether an earlier attempt is continued; otherwise what it recorded is replaced.

        Raises:
            UsageError: the file cannot be read, or is of other examples.
        """
        if not any(example.terms for example in examples):
            return examples, figures
        path, fix = self.folder / EXAMPLES, "train without --resume"
        if not resume or not path.exists():
            content = _RECORD.dump_python(_Recorded(digest, examples, figures), mode="json")
            write_whole(path, json.dumps(content).encode())  # `dump_json` writes null for what is infinite
            return examples, figures
        try:
            with open_regular(path) as file:
                recorded = _RECORD.validate_json(file.read())
        except ValueError as error:
            raise UsageError(f"The examples of the training cannot be read: {error}", where=path, fix=fix) from error
        if recorded.digest != digest or list(map(_identity, recorded.examples)) != list(map(_identity, examples)):
            what = "The training was started with other examples, or with other settings."
            raise UsageError(what, where=path, fix=fix)
        return recorded.examples, recorded.figures

    def remove(self) -> None:
        """Remove all files but the model."""
        for path in (self.file, *best_files(self.file), self.folder / EXAMPLES):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.ranks, ignore_errors=True)


@dataclass(frozen=True)
class _Recorded:
    """What the first attempt of a training learned from."""

    digest: str
    examples: list[Example]
    figures: Record


_RECORD = TypeAdapter(_Recorded)


def _identity(example: Example) -> tuple[object, ...]:
    """Return what an example is made of, without its weights."""
    sizes = [(len(term.sampled), len(term.advantages), len(term.teacher), len(term.top_ids)) for term in example.terms]
    return example.name, example.chosen, example.rejected, example.group, example.goals, sizes


def training_digest(config: StageConfig, model: StartingModel, used: Hyperparameters, *inputs: str | None) -> str:
    """Return what identifies a training in its checkpoints.

    Args:
        inputs: the sha256 of what it reads.
    """
    encoding = [model.encoder.version] if model.encoder.version else []
    return digest_of([config.digest(), vars(used), model.base, [*inputs], *encoding])


def adapter_meta(model: StartingModel) -> dict[str, object]:
    """Return what the meta of an artifact says of the adapter that was trained; null where none was."""
    start = model.trainee.start
    return {
        "lora": None if start.lora is None else start.lora.rank,
        "lora_alpha": None if start.lora is None else start.lora.alpha,
        "lora_output": model.trainee.output,
    }
