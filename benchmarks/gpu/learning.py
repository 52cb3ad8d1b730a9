"""Ranking and training with random weights (`models`): trees with FlexAttention and block by block, plain sequences in
batches, and plain sequences packed for FlashAttention (`packed`).

rank    log-probabilities of 16 candidates at each of 8 turns of a dialogue; weights in bf16. In rows with `divided` the
        layers are divided as those of a critic that is too large for a GPU (`sweet.llm.spreading`).
actor   step-level DPO over 4 pairs of each turn, the pairs of a dialogue together: weights in fp32 and computed in
        bf16, as in `sweet train-actor`, with reference, AdamW and clipping; beside it TRL on the same pairs.
critic  the same with trajectory preferences between whole dialogues of one task (arXiv 2503.15478, equation 2).

All work runs once before it is measured, with a learning rate of 0, because kernels are compiled at their first call.
`tokens_per_s` counts the tokens of all sequences, shared prefixes repeatedly; `computed_per_s` the tokens that went
through the model, padding included. `mfu` is that of the steps, or of the ranking, by the operations of `models`;
`loop_mfu` what the training itself reports (`mfu_computed`, 6 operations for each parameter and computed token).
`peak_mib` is the memory of tensors on the GPU at most, on a CPU that of the process. `difference` is the greatest
difference of mean log-probabilities (rank) or of step losses (actor, critic) to plain sequences, and `against_trl` how
many times faster than TRL. Sizes of a billion parameters or more recompute their layers, as they do by default; rows
with `kept` do not. `compiled` is the number of kernels that torch compiled in the process so far; it gives up after a
few for one function.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.machine import device, memory, mfu, reset_memory, synchronize
from benchmarks.gpu.models import RECOMPUTED, SIZES, CountingScorer, Training, make_preferences, random_model
from benchmarks.gpu.packed import PackedScorer
from benchmarks.gpu.results import Figures, Part, Settings, Skipped
from benchmarks.gpu.trl import train_trl
from benchmarks.synthetic import BETA, TokenCounter, make_pairs, make_turns
from sweet.errors import UsageError
from sweet.learn.components import Objective
from sweet.learn.engine import Engine
from sweet.learn.logprobs import group_logprobs
from sweet.learn.loop import Loop
from sweet.learn.lora import LoraSettings, add_lora, check_peft
from sweet.llm.spreading import spread

METHODS = ("plain", "packed", "blocks", "flex")
RANK = 16
"""Rank of the adapter."""


def scorer_of(model: Any, method: str) -> CountingScorer:
    """The scorer that computes by a method."""
    if method == "packed":
        return PackedScorer(model)
    attention: Any = None if method == "plain" else method
    return CountingScorer(model, share=method != "plain", attention=attention)


def how(scorer: CountingScorer) -> Figures:
    """How a scorer computes attention, and why not by the kernel that was asked for."""
    if isinstance(scorer, PackedScorer):
        return {"attention": scorer.kernel}
    found: Figures = {"attention": scorer.attention if scorer.max_shared_length else "sdpa"}
    if scorer.max_shared_length and scorer.attention == "flex":
        from torch._dynamo.utils import counters

        found["compiled"] = counters["stats"]["unique_graphs"]
    return found | {"refused": scorer.flex_error}


# Ranking ---------------------------------------------------------------------------------------------------------


def rank(settings: Settings) -> Sequence[Part]:
    names = ["tiny"] if settings.tiny else ["135m", "1b", "4b"]
    found = [Part(f"{name} {method}", partial(score, name, method)) for name in names for method in METHODS]
    return [*found, Part(f"{names[0]} divided", partial(score, names[0], "blocks", divided=True))]


def score(name: str, method: str, *, divided: bool = False) -> Figures:
    """Score the candidates of a dialogue.

    Args:
        divided: the device has three quarters of the weights, and the host the others, as if it were a second GPU.
    """
    size = SIZES[name]
    model = random_model(size, torch.bfloat16)
    if divided:
        weights = sum(weight.nbytes for weight in model.parameters())
        spread(model, {device(): weights, torch.device("cpu", 0): weights // 3})
    scorer = scorer_of(model, method)
    turns = make_turns(size.shape, 0)

    def work() -> list[float]:
        return [mean for row in group_logprobs(scorer, turns, 2 * size.budget) for mean in row]

    work()
    counter = TokenCounter(model)
    scorer.operations, scorer.tokens = 0.0, 0
    reset_memory()
    began = time.perf_counter()
    values = work()
    synchronize()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "tokens": scorer.tokens,
        "computed": counter.tokens,
        "tokens_per_s": scorer.tokens / seconds,
        "computed_per_s": counter.tokens / seconds,
        **mfu(scorer.operations, seconds),
        "peak_mib": memory(),
        **how(scorer),
        "against": f"{name} plain",
        "values": values,
    }


# Training --------------------------------------------------------------------------------------------------------


def training_of(name: str, work: str, *, tiny: bool, recompute: bool | None = None) -> Training:
    """Return the training of a size.

    Args:
        name: of a size with its own shape; `tiny` replaces the shape, and keeps what is recomputed.
        recompute: None for the default of the size.
    """
    size = SIZES["tiny" if tiny else name]
    shape = size.shape if tiny else replace(size.shape, dialogues=2)
    more: dict[str, Any] = {"recompute": name in RECOMPUTED if recompute is None else recompute}
    if tiny:
        more |= {"batch": 2, "lr": 1e-3}
    if work == "critic":
        pool, examples = make_preferences(size.shape)
        return Training(size, pool, examples[:4] if tiny else examples, Objective(BETA, 0.01), **more)
    pool, examples = make_pairs(shape, 0, min(4, shape.candidates // 2))
    return Training(size, pool, examples, Objective(BETA, 0.0, "none"), **more)


def train(settings: Settings, name: str) -> Sequence[Part]:

    found = []
    for work in ("actor", "critic"):
        training = partial(training_of, name, work, tiny=settings.tiny)
        plain = f"{work} plain"
        found += [Part(f"{work} {method}", partial(_trained, training, method, plain)) for method in METHODS]
        if name in RECOMPUTED:
            kept = partial(training, recompute=False)
            found += [Part(f"{work} flex kept", partial(_trained, kept, "flex", plain))]
        if work == "actor":
            found += [Part("actor trl", partial(train_trl, training, plain))]
    return found


def _trained(training: Any, method: str, against: str) -> Figures:
    made: Training = training()
    model = random_model(made.size, torch.float32, recompute=made.recompute)
    return measure_training(made, model, scorer_of(model, method)) | {"against": against}


def measure_training(training: Training, model: Any, scorer: CountingScorer) -> Figures:
    """Train twice, first with a learning rate of 0, and return the figures of the second training."""
    losses: list[float] = []
    marks: list[tuple[float, float]] = []

    class Measured(Engine):
        def __init__(self, trained: Any, clip: float) -> None:
            super().__init__(trained, clip)
            self.scorer = scorer

    def mark() -> None:
        synchronize()
        marks.append((time.perf_counter(), scorer.operations))

    def loop_of(lr: float) -> Loop:
        return Loop(
            model,
            training.pool,
            training.examples,
            training.objective,
            training.settings(lr),
            on_reference=mark,
            on_step=lambda record: losses.append(float(record["loss"])),
            make_engine=Measured,
        )

    loop_of(0.0).run()
    losses.clear()
    marks.clear()
    gc.collect()  # the moments of the first training
    loop = loop_of(training.lr)
    counter = TokenCounter(model)
    scorer.operations, scorer.tokens = 0.0, 0
    reset_memory()
    mark()
    summary = loop.run()
    mark()
    (began, _), (trained, reference_operations), (ended, operations) = marks
    return {
        "seconds": ended - began,
        "reference_s": trained - began,
        "steps": summary["steps"],
        "pairs_per_s": len(training.examples) / (ended - began),
        "tokens": scorer.tokens,
        "computed": counter.tokens,
        "tokens_per_s": scorer.tokens / (ended - began),
        "computed_per_s": counter.tokens / (ended - began),
        **mfu(operations - reference_operations, ended - trained),
        "loop_mfu": summary["mfu_computed"],
        "peak_mib": memory(),
        "recomputed": training.recompute,
        **how(scorer),
        "values": losses,
    }


# Adapters --------------------------------------------------------------------------------------------------------


def lora(settings: Settings) -> Sequence[Part]:
    names = ["tiny"] if settings.tiny else ["1b", "4b"]
    return [
        Part(f"{name} {how_much}", partial(_adapted, name, how_much, settings.tiny))
        for name in names
        for how_much in ("full", "lora")
    ]


def _adapted(name: str, how_much: str, tiny: bool) -> Figures:
    """Train pairs with all weights, or with an adapter."""
    training = training_of(name, "actor", tiny=tiny)
    model = random_model(training.size, torch.float32, recompute=training.recompute)
    if how_much == "lora":
        try:
            check_peft()
        except UsageError as error:
            raise Skipped(error.what) from error
        add_lora(model, LoraSettings(RANK, 2 * RANK))
    scorer = scorer_of(model, "flex")
    scorer.frozen = how_much == "lora"
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return measure_training(training, model, scorer) | {"trained": trained, "against": f"{name} full"}
