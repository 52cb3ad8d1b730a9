"""The worker of benchmarks/learn.py: one piece of measured work in a process of its own.

Reads {"work": name, "shape": {...}, "seed": n, ...} from standard input and prints one JSON object. The plain ways use
the library's own scorer with trees switched off (`share=False`): logits at supervised tokens only, length-sorted
batches, no attention mask, which is the fastest plain path there is here; so what is compared is the tree.
"""

from __future__ import annotations

import json
import math
import random
import resource
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch

from sweet.learn.data import Example, Objective, Pool, losses
from sweet.learn.logprobs import Scorer, group_logprobs, span_logprobs
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.tokens import Span, TokenSequence

Figures = dict[str, Any]
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


def model_of(shape: Shape, seed: int) -> Any:
    """A random Llama: 12M parameters at the sizes above."""
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


def turns_of(shape: Shape, seed: int) -> list[list[TokenSequence]]:
    """Turn by turn, dialogue by dialogue: the candidates behind one prompt. The first candidate is the one taken."""
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


def pairs_of(shape: Shape, seed: int, pairs: int) -> tuple[list[TokenSequence], list[Example]]:
    """`pairs` pairs a turn of the same candidates, no candidate twice: what `sweet pair` draws."""
    draw = random.Random(seed)
    pool, examples = Pool(), []
    for number, rows in enumerate(turns_of(shape, seed)):
        for place in range(pairs):
            both = draw.sample(range(len(rows)), 2) if 2 * pairs > len(rows) else [2 * place, 2 * place + 1]
            chosen, rejected = pool.put((number, place), [rows[i] for i in both])
            kin = str(number // shape.turns)
            examples.append(Example(f"{number}-{place}", (chosen,), (rejected,), kin=kin))
    return pool.sequences, examples


class Counted:
    """Counts the tokens a model computes, padding included."""

    def __init__(self, model: Any) -> None:
        self.tokens = 0
        self.forwards = 0
        model.base_model.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, _module: Any, args: Any, kwargs: Any) -> None:
        self.tokens += (kwargs["input_ids"] if "input_ids" in kwargs else args[0]).numel()
        self.forwards += 1


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# Ranking -------------------------------------------------------------------------------------------------------


def rank(told: Figures, shape: Shape) -> Figures:
    """Mean log-probability of every candidate. `way`: tree, batches or single."""
    model = model_of(shape, told["seed"])
    scorer = Scorer(model, share=told["way"] == "tree")
    turns = turns_of(shape, told["seed"])
    flat = [sequence for rows in turns for sequence in rows]
    group_logprobs(scorer, [turns[0][:2]])  # first calls are slower
    counted = Counted(model)
    began, used = time.perf_counter(), time.process_time()
    if told["way"] == "tree":
        means = [mean for row in group_logprobs(scorer, turns, told["budget"]) for mean in row]
    else:
        budget = told["budget"] if told["way"] == "batches" else 1
        means = [float(s[0] / c[0]) for s, c in span_logprobs(scorer, flat, budget)]
    return {
        "seconds": time.perf_counter() - began,
        "cpu_s": time.process_time() - used,
        "tokens": counted.tokens,
        "forwards": counted.forwards,
        "sequences": len(flat),
        "parameters": sum(p.numel() for p in model.parameters()),
        "peak_rss_mib": peak_mib(),
        "means": means,
    }


# Training ------------------------------------------------------------------------------------------------------


def perturbed(model: Any, seed: int) -> Any:
    """The model after some noise: a policy whose loss against the model is not that of an untrained one."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 2e-3 * torch.randn(parameter.shape, generator=noise)
    return model


def train(told: Figures, shape: Shape) -> Figures:
    """One epoch of step-level DPO over the pairs. `way`: tree or plain."""
    pool, examples = pairs_of(shape, told["seed"], told["pairs"])
    settings = LoopSettings(
        lr=told["lr"],
        epochs=1,
        batch=told["batch"],
        token_budget=told["budget"],
        warmup=0.0,
        floor=1.0,
        together=told["together"],
    )
    steps: list[Figures] = []
    model = model_of(shape, told["seed"])
    counted = Counted(model)
    loop = Loop(model, pool, examples, Objective(BETA, 0.0, "none"), settings, on_step=steps.append)
    if told["way"] == "plain":
        loop.scorer = Scorer(model, share=False)
    began, used = time.perf_counter(), time.process_time()
    in_front = counted.tokens
    reference: list[float] = []
    loop.on_reference = lambda: reference.append(time.perf_counter() - began)
    loop.run()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "cpu_s": time.process_time() - used,
        "reference_s": reference[0],
        "pairs_per_s": len(examples) / seconds,
        "tokens": counted.tokens - in_front,
        "plain_tokens": 2 * sum(len(sequence.ids) for sequence in pool),
        "losses": [step["loss"] for step in steps],
        "order": loop._order(0),
        "peak_rss_mib": peak_mib(),
    }


def first_losses(told: Figures, shape: Shape) -> Figures:
    """The loss of each of the first batch's pairs under a perturbed policy, before any step."""
    pool, examples = pairs_of(shape, told["seed"], told["pairs"])
    examples = examples[: told["batch"]]
    scorer = Scorer(model_of(shape, told["seed"]))
    reference = [sums for sums, _ in span_logprobs(scorer, pool[: 2 * len(examples)], told["budget"])]
    policy = Scorer(perturbed(model_of(shape, told["seed"]), told["seed"]))
    with torch.no_grad():
        found = losses(policy, Objective(BETA, 0.0, "none"), pool, examples, reference)
    return {"losses": found.loss.tolist()}


def memory(told: Figures, shape: Shape) -> Figures:
    """One training batch in one forward and backward pass. `way`: tree or plain."""
    pool, examples = pairs_of(shape, told["seed"], told["pairs"])
    examples = examples[-told["batch"] :]
    model = model_of(shape, told["seed"])
    scorer = Scorer(model, share=told["way"] == "tree")
    reference = [torch.zeros(1) for _ in pool]
    before = peak_mib()
    counted = Counted(model)
    loss = losses(scorer, Objective(BETA, 0.0, "none"), pool, examples, reference).loss.sum()
    torch.autograd.backward([loss])
    return {"peak_rss_mib": peak_mib(), "before_mib": before, "tokens": counted.tokens}


WORK = {
    "rank": rank,
    "train": train,
    "first": first_losses,
    "memory": memory,
}


def main() -> None:
    torch.set_num_threads(1)
    told = json.load(sys.stdin)
    if told["work"] == "trl":
        from benchmarks.learn_trl import train_trl as work
    elif told["work"] == "exact":
        from benchmarks.learn_exact import exact as work
    else:
        work = WORK[told["work"]]
    figures = work(told, Shape(**told.get("shape", {})))
    if not all(math.isfinite(loss) for loss in figures.get("losses", [])):
        raise SystemExit("a loss is not finite")
    sys.stdout.write("\n" + json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
