"""Learns on several ranks: a learner whose methods are calls of child processes.

The command keeps the loop, the sampler, the human, the scorer and the manifest, and is no rank: it waits for ranks in a
way that can be interrupted, also if one of them dies in the middle of an exchange. Each rank is a `sweet.online.rank`,
started as those of the other trainings (`sweet.learn.distributed`), and runs a `sweet.online.learner.Learner` on the
same dialogues; only what they compute is divided among them.

A call is a file that all ranks read, and rank 0 reports the answer as its progress when all of them have done it. The
ranks wait for the next call without a collective operation, which would end with an error while dialogues are played
for an hour. They start while the first dialogues are played.

The ranks get the last of the GPUs that no server uses. The first ones are left to the process of the command, which
samples by the embedded engine, and to a vLLM that it starts. Where there are no more GPUs than ranks, the sampler
shares those of the ranks.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

from torch import Tensor

from sweet.credit.base import Hyperparameters
from sweet.errors import UsageError
from sweet.files import write_whole
from sweet.gpus import Gpu, free_gpus, restricted_to
from sweet.hf import resolve_device
from sweet.hints import option
from sweet.learn.distributed import Launchers, Layout, check_deepspeed
from sweet.learn.estimate import ZeroSettings
from sweet.learn.job import StoredJob
from sweet.learn.launcher import error_of
from sweet.learn.metrics import Record
from sweet.online.config import TrainOnlineConfig
from sweet.stages.base import Reporter
from sweet.tasks.trajectory import Trajectory, dump
from sweet.training.config import TrainConfig
from sweet.training.layout import layout_of
from sweet.units import count

PROGRAM = "sweet.online.rank"
FOLDER = "start-"
"""Beginning of the name of the folder of one start of the ranks."""
POLL_INTERVAL = 0.02
"""Seconds between two looks for a call or its answer."""


@dataclass(frozen=True)
class Devices:
    """Attributes:
    number: of the ranks.
    gpus: those of the ranks, and `left` those that no rank has; empty on CPUs, and where nvidia-smi lists none.
    """

    number: int
    zero: ZeroSettings
    gpus: Sequence[Gpu] = ()
    left: Sequence[Gpu] = ()


def devices_of(config: TrainOnlineConfig) -> Devices | None:
    """Return where the ranks train; None for a training in the process of the command.

    Raises:
        UsageError: options do not go together, DeepSpeed is missing, or there are fewer GPUs.
    """
    if config.devices is None:
        given_options = [] if config.zero is None else [option("zero", config.zero)]
        given_options += [] if config.offload == "none" else [option("offload", config.offload)]
        if given_options:
            what = "Without a number of devices the training is not DeepSpeed's."
            raise UsageError(what, where=", ".join(given_options), fix="--devices 2")
        return None
    where = option("devices", config.devices)
    check_deepspeed(where)
    shared = {"device", "devices", "zero", "offload"}
    layout_of(TrainConfig(engine="deepspeed", **config.model_dump(include=shared)))  # checks them
    zero = ZeroSettings(config.zero_stage, config.offload)
    gpus = free_gpus() if resolve_device(config.device).type == "cuda" else []
    if gpus and len(gpus) < config.devices:
        what = f"{count(len(gpus), 'GPU')} of this machine run no server."
        raise UsageError(what, where=where, fix=option("devices", len(gpus)))
    return Devices(config.devices, zero, gpus[-config.devices :], gpus[: -config.devices])


@dataclass(frozen=True)
class RankJob(StoredJob):
    """What a rank needs to learn.

    Attributes:
        run: the path of the run.
        config: the options of the training.
        base: the model to train.
        used: the hyperparameters.
        critic: id of the critic that the rule asks; None for a rule that asks none.
        source: id of the rollouts.
    """

    run: Path
    config: TrainOnlineConfig
    base: str
    used: Hyperparameters
    critic: str | None
    source: str
    device: Literal["cpu", "cuda"]
    zero: ZeroSettings


def call_path(folder: Path, number: int) -> Path:
    """Return the file of a call: the name of a method of `sweet.online.learner.Learner`, and its arguments."""
    return folder / f"call-{number}.json"


def weights_path(folder: Path) -> Path:
    """Return the file in which rank 0 leaves weights, in safetensors format."""
    return folder / "weights.safetensors"


class Ranks:
    """The ranks of a training, called as a `sweet.online.learner.Learner` is, until they are closed.

    Args:
        folder: for what they exchange; created if missing.
        log: a file for the output of launcher and ranks.
        reporter: gets what they say.
    """

    rank = 0

    def __init__(self, job: RankJob, devices: Devices, folder: Path, log: Path, reporter: Reporter) -> None:
        self.updates = 0
        self._log, self._reporter, self._calls = log, reporter, 0
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{FOLDER}*"):
            shutil.rmtree(old, ignore_errors=True)
        self._folder = Path(mkdtemp(prefix=FOLDER, dir=folder)).absolute()
        job.write(self._folder)
        variables = restricted_to(devices.gpus) if devices.gpus else {}
        self._launchers = Launchers(Layout(devices.number), self._folder, log, PROGRAM, variables)

    def close_on_error(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave an inner context: close it if there was an error, so that no thread waits for the ranks."""
        if kind is not None:
            self.close()

    def close(self) -> None:
        """End the ranks. A call that another thread is waiting for fails."""
        self._launchers.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def check(self) -> None:
        """Raise the error of a rank that has failed.

        Raises:
            SweetError: its own error, or the last lines of the log.
        """
        if not self._launchers.are_running():
            raise error_of(self._folder, self._log, 0)

    def learn(self, step: int, dialogues: Sequence[Trajectory], rewards: Mapping[str, float]) -> Record:
        """See `Learner.learn`."""
        rows = [dump(dialogue) for dialogue in dialogues]
        return self._call("learn", step=step, dialogues=rows, rewards=dict(rewards)) or {}

    def sampled_weights(self) -> dict[str, Tensor]:
        """See `Learner.sampled_weights`."""
        return self._weights("sampled_weights")

    def weights(self) -> dict[str, Tensor]:
        """See `Learner.weights`."""
        return self._weights("weights")

    def save(self, path: Path, state: dict[str, Any]) -> None:
        """See `Learner.save`."""
        self._call("save", path=str(path.absolute()), state=state)

    def load(self, path: Path, digest: str) -> dict[str, Any]:
        """See `Learner.load`."""
        return self._call("load", path=str(path.absolute()), digest=digest) or {}

    def _weights(self, method: str) -> dict[str, Tensor]:
        from safetensors.torch import load_file

        self._call(method)
        path = weights_path(self._folder)
        weights: dict[str, Tensor] = load_file(path)
        path.unlink()
        return weights

    def _call(self, method: str, **arguments: Any) -> Record | None:
        """Have all ranks call a method of their learners, and return the result of rank 0.

        Raises:
            SweetError: see `check`.
        """
        path = call_path(self._folder, self._calls)
        self._calls += 1
        write_whole(path, json.dumps([method, arguments]).encode())
        while not (answers := self._launchers.progress()):
            self.check()
            time.sleep(POLL_INTERVAL)
        path.unlink()
        [answer] = answers
        for text in answer["said"]:
            self._reporter.say(text)
        for text in answer["warned"]:
            self._reporter.warn(text)
        self.updates = answer["updates"]
        result: Record | None = answer["result"]
        return result
