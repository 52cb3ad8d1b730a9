"""DeepSpeed's ZeRO stages on one device: the ranks that `--engine deepspeed` starts, against the engine without it.

Both train step-level DPO over the same pairs, block by block, from the same model on the disk. `difference` is the
greatest difference of step losses, `tokens_per_s` what the training reports, without its start, and `device_mib` the
memory of the whole device that is used at most between two steps.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.learning import training_of
from benchmarks.gpu.machine import device
from benchmarks.gpu.models import SIZES, Training, random_model
from benchmarks.gpu.results import Figures, Part, Settings, Skipped
from sweet.errors import UsageError
from sweet.learn.distributed import Layout, check_deepspeed
from sweet.learn.engine import Engine
from sweet.learn.estimate import ZeroSettings
from sweet.learn.job import Job, train_in_ranks
from sweet.learn.logprobs import Scorer
from sweet.learn.loop import Loop
from sweet.learn.metrics import Record
from sweet.learn.trainee import Start, Trainee, save_model
from sweet.training.config import Offload
from tests.learn.builders import TEMPLATES, build_tokenizer

STAGES: tuple[tuple[int, Offload], ...] = ((0, "none"), (2, "none"), (3, "none"), (3, "all"))
BASELINE = "without DeepSpeed"


def parts(settings: Settings) -> Sequence[Part]:
    name = "tiny" if settings.tiny else "1b"
    stages = ((0, "none"), (3, "none")) if settings.tiny else STAGES
    folder = settings.work / "zero"
    return [
        Part(BASELINE, partial(alone, folder, name, settings.tiny)),
        *(
            Part(f"stage {stage}" + (", offload" * (offload != "none")), partial(ranks, folder, name, zero))
            for stage, offload in stages
            for zero in [ZeroSettings(stage, offload)]
        ),
    ]


def stored_model(folder: Path, name: str) -> Path:
    """Return the folder of the model, which is written once."""
    path = folder / "model"
    if not (path / "config.json").exists():
        save_model(random_model(SIZES[name], torch.float32), build_tokenizer(TEMPLATES["chatml"]), path)
        gc.collect()
        torch.cuda.empty_cache()
    return path


class _Blocks(Engine):
    """The engine without DeepSpeed, with the attention that several ranks use."""

    def __init__(self, model: Any, clip: float) -> None:
        super().__init__(model, clip)
        self.scorer = Scorer(model, attention="blocks")


def alone(folder: Path, name: str, tiny: bool) -> Figures:
    """Train in this process."""
    training = training_of(name, "actor", tiny=tiny)
    watch = _Watch()
    start = Start(str(stored_model(folder, name)), recompute=training.recompute)
    trainee = Trainee.load(start, device().type)  # type: ignore[arg-type]
    loop = Loop(
        trainee.model,
        training.pool,
        training.examples,
        training.objective,
        training.settings(training.lr),
        on_step=watch,
        make_engine=_Blocks,
    )
    return watch.figures(loop.run())


def ranks(folder: Path, name: str, zero: ZeroSettings) -> Figures:
    """Train in one rank that torch's launcher starts."""
    try:
        check_deepspeed()
    except UsageError as error:
        raise Skipped(error.what) from error
    training: Training = training_of(name, "actor", tiny=name == "tiny")
    own = folder / f"stage-{zero.stage}-{zero.offload}"
    shutil.rmtree(own, ignore_errors=True)
    watch = _Watch()
    job = Job(
        start=Start(str(stored_model(folder, name).absolute()), recompute=training.recompute),
        output=(own / "trained").absolute(),
        device=device().type,  # type: ignore[arg-type]
        zero=zero,
        settings=training.settings(training.lr),
        objective=training.objective,
        digest="",
        resume=False,
        pool=training.pool,
        examples=training.examples,
        heldout=[],
    )
    own.mkdir(parents=True)
    summary = train_in_ranks(job, Layout(1), own / "job", own / "log", watch)
    shutil.rmtree(own / "trained")
    shutil.rmtree(own / "job")  # with a checkpoint of all states
    return watch.figures(summary)


class _Watch:
    """Collects the losses of steps, and the memory that the device has in use."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.used: float | None = None

    def __call__(self, record: Record) -> None:
        self.losses.append(float(record["loss"]))
        if torch.cuda.is_available():
            free, total = torch.cuda.mem_get_info()
            self.used = max(self.used or 0.0, (total - free) / 2**20)

    def figures(self, summary: Record) -> Figures:
        return {
            "seconds": summary["seconds"],
            "tokens_per_s": summary["tokens_per_second"],
            "computed_per_s": summary["tokens_computed_per_second"],
            "loop_mfu": summary["mfu_computed"],
            "device_mib": self.used,
            "against": BASELINE,
            "values": self.losses,
        }
