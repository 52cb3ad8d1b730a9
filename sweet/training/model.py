"""The model that a training starts from, with what encodes dialogues for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sweet.device import free_memory
from sweet.errors import UsageError
from sweet.hf import resolve_device
from sweet.hints import option
from sweet.learn.batches import GPU_TOKENS
from sweet.learn.estimate import Shape, activations, forward_memory, model_states
from sweet.learn.lora import LoraSettings, check_peft
from sweet.learn.sequences import VisionModel
from sweet.learn.tokens import ChatEncoder
from sweet.learn.trainee import Start, Trainee
from sweet.learn.upstream import UpstreamEncoder
from sweet.learn.vision_processor import vision_processor
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import context_length, load_config, load_tokenizer
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.stages.meta import RolloutsMeta
from sweet.stages.screenshots import CriticScreenshots, page_encoder, shows_pages
from sweet.tasks.registry import task_kind
from sweet.training.config import LoraConfig, TrainConfig, TrainCriticConfig, TrainingConfig
from sweet.units import format_bytes

CPU_TOKENS, CPU_BYTES = range(256, 2049), 1 << 30
"""Tokens of a forward pass of a training on a CPU by default: as many as save this much for the backward pass. A model
of 135M parameters took 5.7 GB in all with 2,048 tokens, and 2.8 GB with 512 in 5 % more processor time."""
FEWEST_TOKENS = 512
"""Where fewer save so much, layers are recomputed by default: the two sides of a preference together have more."""


@dataclass(frozen=True)
class StartingModel:
    """A model that is going to be trained.

    Attributes:
        base: its name: a directory or a hub id.
        trainee: with weights where this process trains it, otherwise with shapes only.
        on_gpu: whether it is trained on GPUs.
        sees_pages: whether the encoder shows screenshots.
        max_length: tokens of a sequence at most; None where the model has no limit.
        token_budget: tokens of one forward pass of its training.
    """

    base: str
    trainee: Trainee
    encoder: ChatEncoder
    on_gpu: bool
    sees_pages: bool
    max_length: int | None
    token_budget: int


def start_of(base: str, lora: LoraConfig) -> Start:
    """Return the start of a training from `base`.

    Raises:
        UsageError: options do not go together, or peft is not installed.
    """
    if lora.lora is None:
        options = {
            "--lora-alpha": lora.lora_alpha,
            "--lora-target": lora.lora_target or None,
            f"--lora-output {lora.lora_output}": lora.lora_output,
        }
        given_options = [name for name, value in options.items() if value is not None]
        if given_options:
            raise UsageError("An adapter needs a rank.", where=", ".join(given_options), fix="--lora 16")
        return Start(base)
    check_peft()
    base_adapter = find_adapter(base)
    if lora.lora_output == "adapter" and base_adapter is not None and not base_adapter.is_plain:
        raise UsageError(
            "An adapter can only be added to one of LoRA's matrices alone: this one has DoRA, biases or whole layers.",
            where=f"--lora-output adapter {option('model', base)}",
            fix="--lora-output merged",
        )
    settings = LoraSettings(lora.lora, lora.lora_alpha or 2 * lora.lora, tuple(lora.lora_target), lora.seed)
    return Start(base, settings, lora.lora_output)


def starting_model(
    config: TrainingConfig,
    base: str,
    encoder: ChatEncoder,
    load: Callable[..., Trainee],
    *,
    head: bool = False,
    head_seed: int | None = None,
    sees_pages: bool = False,
) -> StartingModel:
    """Return the model to train.

    Args:
        load: takes the start, and the tokenizer as `tokenizer`.
        head, head_seed, sees_pages: see `Start` and `StartingModel`.
    """
    on_gpu = resolve_device(config.device).type == "cuda"
    recompute = {"on": True, "off": False}.get(config.gradient_checkpointing)
    if recompute is None and not on_gpu:
        recompute = tokens_on_cpu(load_config(base)) < FEWEST_TOKENS
    start = replace(start_of(base, config), recompute=recompute, head=head, head_seed=head_seed)
    trainee = load(start, tokenizer=encoder.tokenizer)
    length = config.max_length or context_length(trainee.model.config)
    budget = config.micro_batch_tokens or (
        GPU_TOKENS if on_gpu else tokens_on_cpu(trainee.model.config, recomputed=trainee.recomputed)
    )
    return StartingModel(base, trainee, encoder, on_gpu, sees_pages, length, budget)


def tokens_on_cpu(config: Any, *, recomputed: bool = False) -> int:
    """Return how many tokens one forward pass of a training on a CPU has."""
    bytes_per_token = activations(Shape.of(config), 1, mixed=False, checkpointing=recomputed)
    return min(max(int(CPU_BYTES / bytes_per_token), CPU_TOKENS[0]), CPU_TOKENS[-1])


def warn_if_too_large(model: StartingModel, longest: int, warn: Callable[[str], None]) -> None:
    """Warn of a training in this process on a CPU that needs more memory than is free, so that it may be killed.

    Args:
        longest: tokens of the largest example.
    """
    if model.on_gpu:
        return
    trainee, tokens = model.trainee, max(longest, model.token_budget)
    states, shape = model_states(trainee.parameters, trainee.trained), Shape.of(trainee.model.config)
    pass_bytes = forward_memory(shape, tokens, tokens, mixed=False, checkpointing=trainee.recomputed)
    weights = states.weights if trainee.model.device.type == "meta" else 0.0  # else they are loaded
    needed = weights + states.gradients + states.optimizer + sum(pass_bytes.values())
    if needed > (free := free_memory() << 20):
        warning = f"This training needs about {format_bytes(needed)} of memory, and {format_bytes(free)} are free."
        warn(f"{warning} --lora 16 and --gradient-checkpointing on need less.")


def recorded_model(
    run: Run,
    config: TrainConfig,
    base: str,
    learner: str,
    rollouts: Artifact,
    reporter: Reporter,
    *,
    renders: bool,
    weights: bool,
) -> StartingModel:
    """Return the model to train on recorded dialogues, with what encodes them for it.

    Args:
        learner: critic, regression, or the name of a credit rule.
        renders: whether missing screenshots are rendered.
        weights: False for the shapes of the model alone.
    """
    tokenizer = load_tokenizer(base)
    upstream_critic = config.protocol == "upstream" and learner in ("critic", "regression")
    effort = RolloutsMeta.of(rollouts).effort
    encoder = UpstreamEncoder(tokenizer) if upstream_critic else ChatEncoder(tokenizer, config.supervised, effort)
    head = learner == "regression"
    sees_pages = head and shows_pages(run, base)
    if sees_pages:
        pixels = config.image_pixels if isinstance(config, TrainCriticConfig) else None
        shots = CriticScreenshots(run, rollouts, reporter, renders=renders)
        encoder = page_encoder(run, rollouts, tokenizer, vision_processor(VisionModel(base, pixels)), shots)
        reporter.say(
            "The critic sees the screenshots of the reference and of each turn. Such dialogues are computed one by "
            "one or in padded batches: prefix trees hold no pictures."
        )
    elif head and task_kind(run.manifest().task).visual:
        reporter.say(f"The critic reads pages as HTML: {base} does not see pictures.")
    return starting_model(
        config,
        base,
        encoder,
        partial(Trainee.load, device=config.device) if weights else Trainee.on_meta,
        head=head,
        head_seed=config.seed if head and upstream_critic else None,
        sees_pages=sees_pages,
    )
