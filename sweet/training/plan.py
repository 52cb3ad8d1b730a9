"""`--dry-run` of train-critic and train-actor: what a training would take, without doing it.

The data are read and encoded as for the training, and the first epoch's steps are split into micro-batches as the loop
would split them, so counts are exact. Weights are not loaded: the shapes of the model are enough, and nothing in the
run is changed. Memory is estimated from the shapes (`sweet.learn.estimate`).
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

from sweet.learn.attention import SUPPORTED
from sweet.learn.batches import epoch_order, step_groups, token_count
from sweet.learn.distributed import world_size
from sweet.learn.estimate import Shape, buffers, casts, forward_memory, image_activations, model_states
from sweet.learn.logprobs import pack_bundles
from sweet.learn.openrlhf import steps
from sweet.learn.tree import Forest, Work, computed_work, longest_shared, uses_tree
from sweet.stages.base import Reporter
from sweet.stages.plans import Plan
from sweet.training.basis import Training
from sweet.training.metrics import TrainWork
from sweet.training.model import StartingModel
from sweet.training.remote import billed_tokens, by_service


def plan_training(training: Training, reporter: Reporter) -> Plan[TrainWork]:
    """Return the plan of a prepared training.

    `tokens` and `tokens_computed` are of one epoch, before and after prefix sharing. Whether a model can be computed as
    a tree is tested when it is loaded; here its kind of attention decides.

    Raises:
        SweetError: as `Training.check`.
    """
    training.check(reporter)
    config, used, settings = training.config, training.hyperparameters, training.settings
    parameters, trainable = training.model.trainee.parameters, training.model.trainee.trained
    world = world_size(training.layout)
    work: dict[str, Any] = {
        "base": training.model.base,
        "parameters": parameters,
        "trainable": trainable,
        "examples": len(training.examples),
        "heldout": len(training.heldout),
        "dropped_turns": training.pool.dropped,
        "left_out": training.left_out,
        "epochs": used.epochs,
        "batch": used.batch,
        "lr": used.lr,
        "nll": used.nll,
        "shuffle": training.shuffle,
        "steps": settings.steps(len(training.examples)),
        "engine": config.engine,
        "devices": world,
        "tokens": token_count(training.pool.sequences, training.examples),
    }
    if config.engine == "openrlhf":  # it shuffles and splits into micro-batches itself, by default on every GPU
        devices = world if config.devices or config.hostfile else None
        work |= {"steps": steps(len(training.examples), used.batch, used.epochs), "devices": devices, "shuffle": None}
        return Plan(work=TrainWork.model_validate(work), assumed=[])
    if by_service(config):
        sent = billed_tokens(training.pool.sequences, training.examples, training.heldout, training.objective, settings)
        work |= {"devices": None, "tokens_computed": work["tokens"], "tokens_billed": sent}
        what = "The service gets a prefix once for each sequence, and each sequence of a step twice; it may bill less."
        return Plan(work=TrainWork.model_validate(work), assumed=[what])
    shape = Shape.of(training.model.trainee.model.config)
    computed, micro_batches, activations = _first_epoch(training, shape, world)
    zero = training.zero if training.layout is not None else None
    states = model_states(parameters, trainable, zero, world)
    on_gpu, recomputed = training.model.on_gpu, training.model.trainee.recomputed
    memory = {
        "weights": states.weights,
        "gradients": states.gradients,
        "optimizer": states.optimizer,
        "casts": casts(shape, parameters, mixed=on_gpu, checkpointing=recomputed),
        "buffers": buffers(shape, parameters, zero),
        **activations,
    }
    work |= {
        "tokens_computed": computed.tokens,
        "sharing": round(work["tokens"] / computed.tokens, 4),
        "padding": round(computed.padding / computed.positions, 4),
        "micro_batches": micro_batches,
        "zero": None if zero is None else zero.stage,
        "offload": config.offload,
        "memory": {name: round(size) for name, size in memory.items()}
        | {"total": round(sum(memory.values())), "host": round(states.host * world)},
    }
    assumed = []
    if training.trains_reward:
        assumed.append("The reward model is not counted: a second model of this size, trained before the policy.")
    return Plan(work=TrainWork.model_validate(work), assumed=assumed)


def _first_epoch(training: Training, shape: Shape, world: int) -> tuple[Work, int, dict[str, float]]:
    """Return what the first epoch computes, its number of micro-batches, and the bytes that the largest of them keeps
    in memory, by purpose."""
    model, objective, settings, examples = training.model, training.objective, training.settings, training.examples
    lora = model.trainee.start.lora
    trains_tower = model.sees_pages and (lora is None or bool(lora.targets))  # an adapter is of the language model
    several_ranks_see_pages = training.layout is not None and model.sees_pages  # `Scorer.require_images`
    max_shared_length = _max_shared_length(model, settings.share and not several_ranks_see_pages)
    pool = [s.with_whole() if objective.whole_nll else s for s in training.pool.sequences]
    order = epoch_order(examples, settings.seed, 0, together=settings.together)
    work, count = Work(), 0
    largest: dict[str, float] = {}

    def split(items: Any, budget: int) -> list[list[int]]:
        return pack_bundles(items, budget, max_shared_length)

    for start in range(0, len(order), settings.batch):
        step = [examples[i] for i in order[start : start + settings.batch]]
        for group in chain.from_iterable(step_groups(pool, step, split, settings.token_budget, world)):
            group_examples = [step[i] for i in group]
            sequences = [pool[i] for i in dict.fromkeys(i for example in group_examples for i in example.sides)]
            forest = Forest()
            forest.add(sequence.ids for sequence in sequences)
            lengths = [len(sequence.ids) for sequence in sequences]
            shared = longest_shared(sequences, max_shared_length)
            pass_work = computed_work(lengths, forest.slots, shared)
            as_tree = uses_tree(lengths, forest.slots, shared)
            spans = [span for sequence in sequences for span in sequence.spans] if objective.needs_tokens else []
            pass_memory = forward_memory(
                shape,
                pass_work.positions,
                sum(span.stop - span.start for span in spans),
                mixed=model.on_gpu,
                longest=max(lengths) if as_tree else 0,
                checkpointing=model.trainee.recomputed,
            )
            if trains_tower:
                pass_memory["activations"] += image_activations(
                    model.trainee.model.config,
                    sum(picture.tokens for sequence in sequences for picture in sequence.images),
                    mixed=model.on_gpu,
                    checkpointing=model.trainee.recomputed,
                )
            largest = max(largest, pass_memory, key=lambda sizes: sum(sizes.values()))
            work, count = work + pass_work, count + 1
    return work, count, largest


def _max_shared_length(model: StartingModel, share: bool) -> int:
    """Return `Scorer.max_shared_length`, as far as the model's configuration determines it."""
    config = model.trainee.model.config.get_text_config()
    if not share or config._attn_implementation not in SUPPORTED:
        return 0
    return int(getattr(config, "sliding_window", None) or sys.maxsize)
