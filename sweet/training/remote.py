"""A service trains an adapter (`sweet.learn.remote`), by `--engine tinker`, or online by `--local-engine tinker`.

What it cannot train, and what it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TypeVar

from sweet.errors import UsageError
from sweet.hints import option
from sweet.installation import install_command
from sweet.learn.batches import epoch_order
from sweet.learn.components import Example, Objective
from sweet.learn.loop import LoopSettings
from sweet.learn.remote import sent_tokens
from sweet.learn.sequences import TokenSequence
from sweet.llm.tinker import RANK
from sweet.training.config import TrainCriticConfig, TrainingConfig

ENGINE = "tinker"
C = TypeVar("C", bound=TrainingConfig)


def by_service(config: TrainingConfig) -> bool:
    """Return whether a service trains."""
    return ENGINE in (getattr(config, "engine", None), getattr(config, "local_engine", None))


def for_service(config: C) -> C:
    """Return the options by which the model of a training is made: with the adapter that a service trains.

    Raises:
        UsageError: a service would train, and cannot with these options, or its client is not installed.
    """
    if not by_service(config):
        return config
    engine_option = option("local_engine" if hasattr(config, "local_engine") else "engine", ENGINE)

    def refuse(wrong: object, where: str, what: str, fix: str) -> None:
        if wrong:
            raise UsageError(what, where=f"{where} {engine_option}", fix=fix)

    head = isinstance(config, TrainCriticConfig) and config.variant == "regression"
    what = "A service has no regression head."
    refuse(head, option("variant", "regression"), what, "--variant advantage, or --engine torch")
    what = "The service chooses the weight of its adapter and the layers that it adapts."
    refuse(config.lora_alpha, option("lora_alpha", config.lora_alpha), what, "omit it")
    refuse(config.lora_target, option("lora_target", *config.lora_target[:1]), what, "omit it")
    what = "The weights that come from a service are those of the adapter."
    refuse(config.lora_output == "merged", option("lora_output", "merged"), what, "omit it")
    for name in ("devices", "deterministic", "agent_url"):
        value = getattr(config, name, None)
        refuse(value, option(name, value if name == "devices" else None), "The model is at the service.", "omit it")
    refuse(find_spec("tinker") is None, "", "The client tinker is not installed.", install_command("tinker"))
    return config.model_copy(update={"lora": config.lora or RANK, "lora_output": "adapter"})


def billed_tokens(
    pool: Sequence[TokenSequence],
    examples: Sequence[Example],
    heldout: Sequence[Example],
    objective: Objective,
    settings: LoopSettings,
) -> int:
    """Return the number of tokens that a whole training sends: two passes over the sequences of each step, one over
    the held-out ones after each epoch, and one over all of them where there is a reference."""
    sizes = [sent_tokens(sequence.with_whole() if objective.whole_nll else sequence) for sequence in pool]

    def once(items: Sequence[Example]) -> int:
        return sum(sizes[i] for i in {i for example in items for i in example.sides})

    total = sum(map(sent_tokens, pool)) if objective.needs_reference else 0
    for epoch in range(settings.epochs):
        order = epoch_order(examples, settings.seed, epoch, together=settings.together)
        for start in range(0, len(order), settings.batch):
            total += 2 * once([examples[i] for i in order[start : start + settings.batch]])
        total += once(heldout)
    return total
