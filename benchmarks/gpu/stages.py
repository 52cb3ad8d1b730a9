"""The table of stages, in the order in which they are run. It imports nothing heavy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module

from benchmarks.gpu.results import Part, Settings

LIMIT = 540.0
"""Seconds of a stage."""


@dataclass(frozen=True)
class Stage:
    """A list of parts.

    Attributes:
        shows: what the stage measures, for --list and docs/gpu.md.
        function: MODULE:NAME of the function that lists the parts.
        arguments: its arguments after the settings.
    """

    name: str
    shows: str
    function: str
    arguments: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> str:
        """Return the stage as `from_json` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Stage:
        return cls(**json.loads(text))

    def parts(self, settings: Settings) -> Sequence[Part]:
        module, _, name = self.function.partition(":")
        function: Callable[..., Sequence[Part]] = getattr(import_module(module), name)
        return function(settings, **self.arguments)


def _training(name: str, parameters: str) -> Stage:
    shows = (
        f"training at {parameters} parameters: tokens/s, MFU, memory and losses of prefix trees with FlexAttention and "
        "block by block, plain batches, packed FlashAttention, TRL"
    )
    return Stage(f"train-{name}", shows, "benchmarks.gpu.learning:train", {"name": name})


STAGES = {
    stage.name: stage
    for stage in (
        Stage(
            "machine",
            "the device, its libraries, and the rates it reaches: bf16 products, copies",
            "benchmarks.gpu.machine:parts",
        ),
        Stage(
            "exact",
            "prefix trees with FlexAttention: log-probabilities and gradients against plain sequences, in fp32, in "
            "bf16, and in bf16 over fp32 weights",
            "benchmarks.gpu.exact:parts",
        ),
        Stage(
            "rank",
            "scoring 16 candidates a turn at 135M, 1B and 4B parameters: tokens/s, MFU, memory; and by layers that are "
            "divided between the GPU and the host",
            "benchmarks.gpu.learning:rank",
        ),
        _training("135m", "135M"),
        _training("1b", "1B"),
        _training("4b", "4B"),
        Stage("lora", "training an adapter at 1B and 4B parameters", "benchmarks.gpu.learning:lora"),
        Stage(
            "zero", "DeepSpeed's ZeRO stages on one device, against the engine without it", "benchmarks.gpu.zero:parts"
        ),
        Stage("engine", "sampled tokens/s of the embedded engine", "benchmarks.gpu.sampling:embedded"),
        Stage("vllm", "sampled tokens/s of vllm, started and asked by sweet", "benchmarks.gpu.sampling:vllm"),
        Stage(
            "served",
            "vllm asked by the package openai, by an agent with tools, and by a program through the gateway",
            "benchmarks.gpu.served:parts",
        ),
        Stage("demo", "`sweet demo`, the whole pipeline with the packaged agent", "benchmarks.gpu.studies:demo"),
        Stage("micro", "one seed of the study of `micro`, every method", "benchmarks.gpu.studies:micro"),
        Stage(
            "smollm2",
            "SmolLM2-135M-Instruct: warm-up, zero-shot, RFT, multi-turn DPO and SWEET on `orders`",
            "benchmarks.gpu.studies:smollm",
        ),
    )
}
