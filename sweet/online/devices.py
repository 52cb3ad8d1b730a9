"""The devices of a training on several ranks, and those that it leaves to the sampler.

The ranks get the last of the GPUs that no server uses. The first ones are left to the process of the command, which
samples by the embedded engine, and to a vLLM that it starts. Where there are no more GPUs than ranks, the sampler
shares those of the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweet.errors import UsageError
from sweet.hf import resolve_device
from sweet.hints import option
from sweet.learn.distributed import Layout, check_deepspeed
from sweet.learn.zero import ZeroSettings
from sweet.llm.gpus import Gpu, free_gpus, restricted_to
from sweet.online.config import TrainOnlineConfig
from sweet.training.config import TrainConfig
from sweet.training.layout import layout_of
from sweet.units import count


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

    @property
    def layout(self) -> Layout:
        return Layout(self.number)

    @property
    def variables(self) -> dict[str, str]:
        """Of the environment of the ranks: the GPUs that they see."""
        return restricted_to(self.gpus) if self.gpus else {}

    def __str__(self) -> str:
        return f"{count(self.number, 'device')} with ZeRO {self.zero.stage}"


def devices_of(config: TrainOnlineConfig) -> Devices | None:
    """Return where the ranks train; None for a training in the process of the command.

    Raises:
        UsageError: options do not go together, DeepSpeed is missing, or there are fewer GPUs.
    """
    if config.devices is None:
        given = [] if config.zero is None else [option("zero", config.zero)]
        given += [] if config.offload == "none" else [option("offload", config.offload)]
        if given:
            what = "Without a number of devices the training is not DeepSpeed's."
            raise UsageError(what, where=", ".join(given), fix="--devices 2")
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
