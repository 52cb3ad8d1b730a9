"""What a training would do, without doing it: `--dry-run` of train-critic and train-actor.

The data are read and encoded as for the training, and the first epoch's steps are parted into micro-batches as the loop
would part them, so counts are counted. Weights are not loaded: only the shapes of the model are needed, and a run is
only read. Memory is estimated from the shapes (`sweet.learn.estimate`).
"""

from __future__ import annotations

import sys
from typing import Any

from sweet.learn.attention import SUPPORTED
from sweet.learn.batches import epoch_order, step_groups, token_count
from sweet.learn.distributed import world_size
from sweet.learn.estimate import Shape, buffers, casts, forward_memory, model_states
from sweet.learn.logprobs import pack_bundles
from sweet.learn.loop import LoopSettings
from sweet.learn.metrics import PASS_FLOPS, WEIGHT_FLOPS
from sweet.learn.openrlhf import steps
from sweet.learn.tree import Forest
from sweet.learn.work import Work, computed_work, longest_shared, uses_tree
from sweet.llm.pretrained import stored_type
from sweet.stages.plans import Plan, PlanBuilder
from sweet.stages.rates import GPU, GPUS, EarlierAttempt, times
from sweet.training.metrics import TrainWork
from sweet.training.trainer import Training


def plan(training: Training, meta: dict[str, Any]) -> Plan[TrainWork]:
    """Figures of the training that was prepared, with `meta` as its artifact would have it.

    `tokens` and `tokens_computed` are of one epoch, before and after prefix sharing. Whether a model can be computed as
    a tree is tried when it is loaded; here it is told by its attention.

    Returns:
        JSON types; under `memory` bytes of one device by what takes them, `host` those of all devices of one machine.
    """
    training.check_examples()
    config, hyper = training.config, training.hyper
    settings, parameters, trainable = training.loop_settings(), training.parameters, training.trainee.trained
    world = world_size(training.layout)
    found: dict[str, Any] = {
        "base": training.base,
        "parameters": parameters,
        "trainable": trainable,
        "examples": len(training.examples),
        "heldout": len(training.heldout),
        "dropped_turns": training.pool.dropped,
        "left_out": len(training.left_out),
        "epochs": hyper.epochs,
        "batch": hyper.batch,
        "lr": hyper.lr,
        "nll": hyper.nll,
        "steps": settings.steps(len(training.examples)),
        "engine": config.engine,
        "devices": world,
        "tokens": token_count(training.pool.sequences, training.examples),
    }
    if config.engine == "openrlhf":  # which parts and keeps as it sees fit, on every GPU unless told otherwise
        devices = world if config.devices or config.hostfile else None
        found |= {"steps": steps(len(training.examples), hyper.batch, hyper.epochs), "devices": devices}
        computed = found["tokens"] * hyper.epochs
        return _with_time(training, meta, found, computed, devices)
    shape = Shape.of(training.trainee.model.config)
    work, micro_batches, activity = _epoch(training, settings, shape, world)
    zero = training.zero if training.layout is not None else None
    states = model_states(parameters, trainable, zero, world)
    memory = {
        "weights": states.weights,
        "gradients": states.gradients,
        "optimizer": states.optimizer,
        "casts": casts(shape, parameters, mixed=training.on_gpu, checkpointing=training.trainee.recomputed),
        "buffers": buffers(shape, parameters, zero),
        **activity,
    }
    found |= {
        "tokens_computed": work.tokens,
        "sharing": round(found["tokens"] / work.tokens, 4),
        "padding": round(work.padding / work.positions, 4),
        "micro_batches": micro_batches,
        "zero": None if zero is None else zero.stage,
        "offload": config.offload,
        "memory": {name: round(size) for name, size in memory.items()}
        | {"total": round(sum(memory.values())), "host": round(states.host * world)},
    }
    return _with_time(training, meta, found, work.tokens * hyper.epochs, world)


def _with_time(
    training: Training, meta: dict[str, Any], found: dict[str, Any], computed: int, devices: int | None
) -> Plan[TrainWork]:
    """The figures with operations, hours and GPU-hours.

    Args:
        computed: tokens of all epochs. devices: None where it is not known how many there will be.
    """
    config, objective = training.config, training.objective
    gpus = (devices if training.on_gpu else 0) if config.engine != "openrlhf" else devices
    builder = PlanBuilder(
        "train-actor" if "method" in meta else "train-critic",
        training.run,
        config.rates,
        kind=training.run.manifest().task,
        settings={**config.model_dump(mode="json"), "base": training.base, **meta},
        gpus=gpus,
        decides=("base", "lora", "engine", "variant", "method", "target", GPU),
        compared=(
            *("device", "devices", "hostfile", "zero", "offload", "packing", "micro_batch_tokens"),
            *("gradient_checkpointing", "max_length", "batch", "epochs", GPUS),
        ),
    )
    flops = float(PASS_FLOPS * training.parameters + WEIGHT_FLOPS * training.trainee.trained) * computed
    if objective is not None and objective.needs_reference:
        sides = {side for example in (*training.examples, *training.heldout) for side in example.sides}
        reference = sum(len(training.pool.sequences[side].ids) for side in sides)
        flops += PASS_FLOPS / 2 * training.parameters * reference
        builder.assumed.append("The reference reads every dialogue once, and none is in its cache.")
    if training.trainee.recomputed:
        builder.assumed.append("What is computed again in the backward pass is not among the operations.")

    def did(past: EarlierAttempt) -> float | None:
        tokens = "tokens_computed" if "tokens_computed" in past.metrics else "tokens"
        return times(past.metric(tokens), past.metric("epochs"))

    def faster(past: EarlierAttempt) -> float:
        then = past.facts.get(GPUS)
        return devices / then if devices and isinstance(then, int) and then > 0 and training.on_gpu else 1.0

    seconds = times(computed, builder.seconds_per("computed token", did, faster))
    return builder.build(TrainWork.model_validate(found), seconds=seconds, flops=flops, size=_written(training))


def _written(training: Training) -> float | None:
    """Bytes of the weights that are written, in the type they were stored in; None of an adapter."""
    kind, start = stored_type(training.base), training.trainee.start
    adapter = start.lora is not None and start.output == "adapter"
    return None if kind is None or adapter else float(training.parameters * kind.itemsize)


def _epoch(training: Training, settings: LoopSettings, shape: Shape, world: int) -> tuple[Work, int, dict[str, float]]:
    """Of the first epoch: what is computed, the number of micro-batches, and what the largest keeps in memory."""
    objective, max_shared_length = training.objective, _max_shared_length(training)
    assert objective is not None
    pool = [s.with_whole() if objective.whole_nll else s for s in training.pool.sequences]
    mixed, recomputed = training.on_gpu, training.trainee.recomputed
    order = epoch_order(training.examples, settings.seed, 0, grouped=settings.grouped)
    work, count = Work(), 0
    largest: dict[str, float] = {}
    for start in range(0, len(order), settings.batch):
        step = [training.examples[i] for i in order[start : start + settings.batch]]

        def parted(items: Any, budget: int) -> list[list[int]]:
            return pack_bundles(items, budget, max_shared_length)

        for group in step_groups(pool, step, parted, settings.token_budget, world):
            taken = [step[i] for i in group]
            sequences = [pool[i] for i in dict.fromkeys(i for example in taken for i in example.sides)]
            forest = Forest()
            forest.add(sequence.ids for sequence in sequences)
            lengths = [len(sequence.ids) for sequence in sequences]
            shared = longest_shared(sequences, max_shared_length)
            part = computed_work(lengths, forest.slots, shared)
            tree = uses_tree(lengths, forest.slots, shared)
            spans = [span for sequence in sequences for span in sequence.spans] if objective.needs_tokens else []
            supervised, longest = sum(span.stop - span.start for span in spans), max(lengths) if tree else 0
            kept = forward_memory(
                shape, part.positions, supervised, mixed=mixed, longest=longest, checkpointing=recomputed
            )
            largest = max(largest, kept, key=lambda sizes: sum(sizes.values()))
            work, count = work + part, count + 1
    return work, count, largest


def _max_shared_length(training: Training) -> int:
    """`Scorer.shares_up_to`, as far as the model's configuration tells."""
    config = training.trainee.model.config.get_text_config()
    if training.config.packing != "tree" or config._attn_implementation not in SUPPORTED:
        return 0
    return int(getattr(config, "sliding_window", None) or sys.maxsize)
