"""Synthetic dialogues of token ids and a random Llama: the inputs of the learning benchmarks (`learn*.py`,
`recompute.py`).

Both are drawn from a seed, so processes that measure different methods compute the same numbers.
"""

from __future__ import annotations

import random
import resource
from dataclasses import dataclass, replace
from typing import Any

import torch

from sweet.learn.batches import epoch_order
from sweet.learn.components import Example
from sweet.learn.sequences import Pool, Span, TokenSequence

Metrics = dict[str, Any]
BETA = 0.1


@dataclass(frozen=True)
class Shape:
    """Sizes of the synthetic dialogues and of the model."""

    dialogues: int = 1
    turns: int = 8
    candidates: int = 16
    opening: int = 300
    reply: int = 80
    answer: int = 40
    vocabulary: int = 4096
    width: int = 384
    layers: int = 6


def make_model(shape: Shape, seed: int) -> Any:
    """Build a random Llama: 12M parameters at the default sizes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.width * 8 // 3,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.width // 64,
        num_key_value_heads=shape.width // 64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=0,
    )
    make: Any = LlamaForCausalLM
    return make(config).eval()


def make_turns(shape: Shape, seed: int) -> list[list[TokenSequence]]:
    """Return the candidates of each turn, dialogue by dialogue.

    The candidates of a turn have one prompt. The first one is the reply that the dialogue continues with.
    """
    draw = random.Random(seed)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(3, shape.vocabulary) for _ in range(count))

    turns = []
    for _ in range(shape.dialogues):
        prompt = ids(shape.opening)
        for turn in range(shape.turns):
            replies = [ids(shape.reply) for _ in range(shape.candidates)]
            start = len(prompt)
            turns.append([TokenSequence(prompt + r, (Span(start, start + len(r), turn),)) for r in replies])
            prompt += replies[0] + ids(shape.answer)
    return turns


def make_pairs(shape: Shape, seed: int, pairs: int) -> tuple[list[TokenSequence], list[Example]]:
    """Draw `pairs` pairs from each turn's candidates as `sweet pair` does, each candidate at most once if possible."""
    draw = random.Random(seed)
    pool, examples = Pool(), []
    for number, rows in enumerate(make_turns(shape, seed)):
        for index in range(pairs):
            both = draw.sample(range(len(rows)), 2) if 2 * pairs > len(rows) else [2 * index, 2 * index + 1]
            chosen, rejected = pool.put((number, index), [rows[i] for i in both])
            dialogue = str(number // shape.turns)
            examples.append(Example(f"{number}-{index}", (chosen,), (rejected,), group=dialogue))
    return pool.sequences, examples


def first_steps(request: Metrics, shape: Shape) -> tuple[list[TokenSequence], list[Example]]:
    """Return the pairs of the first `steps` steps of an epoch, in its order, with their sequences alone."""
    pool, examples = make_pairs(shape, request["seed"], request["pairs"])
    order = epoch_order(examples, request["seed"], 0, together=request["together"])
    chosen = [examples[index] for index in order[: request["steps"] * request["batch"]]]
    kept = list(dict.fromkeys(index for example in chosen for index in example.sides))
    place = {index: number for number, index in enumerate(kept)}
    moved = [
        replace(example, chosen=(place[example.chosen[0]],), rejected=(place[example.rejected[0]],))
        for example in chosen
    ]
    return [pool[index] for index in kept], moved


def perturb(model: Any, seed: int) -> Any:
    """Add noise to the weights, so that the loss of the policy differs from that of its reference."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 2e-3 * torch.randn(parameter.shape, generator=noise)
    return model


class TokenCounter:
    """Counts what a model computes from now on.

    Attributes:
        tokens: positions, padding included.
        forwards: forward passes; each segment of a tree is one.
    """

    def __init__(self, model: Any) -> None:
        self.tokens = 0
        self.forwards = 0
        model.base_model.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, _module: Any, args: Any, kwargs: Any) -> None:
        self.tokens += (kwargs["input_ids"] if "input_ids" in kwargs else args[0]).numel()
        self.forwards += 1


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
