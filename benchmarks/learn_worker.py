"""The worker process of benchmarks/learn.py: runs one measurement.

Reads {"work": name, "shape": {...}, "seed": n, ...} from standard input and prints one JSON object. The plain methods
use the library's scorer without trees (`share=False`): logits at supervised tokens only, length-sorted batches, no
attention mask. That is the fastest plain path in the library, so the comparison measures the trees alone.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable

import torch

from benchmarks.synthetic import (
    BETA,
    Metrics,
    Shape,
    TokenCounter,
    first_steps,
    make_model,
    make_pairs,
    make_turns,
    peak_mib,
    perturb,
)
from sweet.learn.batches import bundles, epoch_order, token_count
from sweet.learn.components import Objective
from sweet.learn.logprobs import Scorer, group_logprobs, pack_bundles, span_logprobs
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.losses import losses
from sweet.learn.tree import Forest


def rank(request: Metrics, shape: Shape) -> Metrics:
    """Measure the mean log-probability of every candidate by `method`: tree, batches or single."""
    method = request["method"]
    model = make_model(shape, request["seed"])
    scorer = Scorer(model, share=method == "tree")
    turns = make_turns(shape, request["seed"])
    flat = [sequence for rows in turns for sequence in rows]
    group_logprobs(scorer, [turns[0][:2]])  # first calls are slower
    counter = TokenCounter(model)
    started, used = time.perf_counter(), time.process_time()
    if method == "tree":
        means = [mean for row in group_logprobs(scorer, turns, request["budget"]) for mean in row]
    else:
        budget = request["budget"] if method == "batches" else 1
        means = [float(s[0] / c[0]) for s, c in span_logprobs(scorer, flat, budget)]
    return {
        "seconds": time.perf_counter() - started,
        "cpu_s": time.process_time() - used,
        "tokens": counter.tokens,
        "forwards": counter.forwards,
        "products": counter.products,
        "sequences": len(flat),
        "parameters": sum(p.numel() for p in model.parameters()),
        "peak_rss_mib": peak_mib(),
        "means": means,
    }


def epoch(request: Metrics, shape: Shape) -> Metrics:
    """Count the tokens of the policy in a whole epoch: without trees, and as the steps of the order share them."""
    pool, examples = make_pairs(shape, request["seed"], request["pairs"])
    order = epoch_order(examples, request["seed"], 0, together=request["together"])
    computed = 0
    for start in range(0, len(order), request["batch"]):
        step = [examples[index] for index in order[start : start + request["batch"]]]
        for group in pack_bundles(bundles(pool, step), request["budget"], sys.maxsize):
            forest = Forest()
            forest.add(sequence.ids for row in bundles(pool, [step[i] for i in group]) for sequence in row)
            computed += forest.slots
    return {"pairs": len(examples), "tokens": token_count(pool, examples), "tokens_computed": computed}


class _InOrder(Loop):
    """A training whose examples are in order already."""

    def _order(self, epoch: int) -> list[int]:
        return list(range(len(self.examples)))


def train(request: Metrics, shape: Shape) -> Metrics:
    """Measure the first steps of an epoch of step-level DPO by `method`: tree or plain."""
    pool, examples = first_steps(request, shape)
    settings = LoopSettings(
        lr=request["lr"],
        epochs=1,
        batch=request["batch"],
        token_budget=request["budget"],
        warmup=0.0,
        floor=1.0,
        share=request["method"] == "tree",
    )
    steps: list[Metrics] = []
    model = make_model(shape, request["seed"])
    counter = TokenCounter(model)
    loop = _InOrder(model, pool, examples, Objective(BETA, 0.0, "none"), settings, on_step=steps.append)
    started, used = time.perf_counter(), time.process_time()
    tokens_before, products_before = counter.tokens, counter.products
    reference: list[float] = []
    loop.on_reference = lambda: reference.extend(
        (time.perf_counter() - started, counter.tokens - tokens_before, counter.products - products_before)
    )
    loop.run()
    seconds = time.perf_counter() - started
    tokens, products = counter.tokens - tokens_before, counter.products - products_before
    return {
        "pairs": len(examples),
        "work": reference[1] + 3 * (tokens - reference[1]),
        "products": reference[2] + 3 * (products - reference[2]),
        "seconds": seconds,
        "cpu_s": time.process_time() - used,
        "reference_s": reference[0],
        "pairs_per_s": len(examples) / seconds,
        "tokens": tokens,
        "losses": [step["loss"] for step in steps],
        "peak_rss_mib": peak_mib(),
    }


def first_losses(request: Metrics, shape: Shape) -> Metrics:
    """Compute the loss of each pair of the first batch under a perturbed policy, before any step."""
    pool, examples = first_steps(request, shape)
    examples = examples[: request["batch"]]
    scorer = Scorer(make_model(shape, request["seed"]))
    reference = [sums for sums, _ in span_logprobs(scorer, pool[: 2 * len(examples)], request["budget"])]
    policy = Scorer(perturb(make_model(shape, request["seed"]), request["seed"]))
    with torch.no_grad():
        result = losses(policy, Objective(BETA, 0.0, "none"), pool, examples, reference)
    return {"losses": result.loss.tolist()}


def memory(request: Metrics, shape: Shape) -> Metrics:
    """Measure one training batch in one forward and backward pass by `method`: tree or plain."""
    pool, examples = make_pairs(shape, request["seed"], request["pairs"])
    examples = examples[-request["batch"] :]
    model = make_model(shape, request["seed"])
    scorer = Scorer(model, share=request["method"] == "tree")
    reference = [torch.zeros(1) for _ in pool]
    before = peak_mib()
    counter = TokenCounter(model)
    loss = losses(scorer, Objective(BETA, 0.0, "none"), pool, examples, reference).loss.sum()
    torch.autograd.backward([loss])
    return {"peak_rss_mib": peak_mib(), "before_mib": before, "tokens": counter.tokens}


WORK = {
    "rank": rank,
    "epoch": epoch,
    "train": train,
    "first": first_losses,
    "memory": memory,
}


def measurement(name: str) -> Callable[[Metrics, Shape], Metrics]:
    """Return the function of a measurement; those of other modules are imported only if they are needed."""
    if name == "trl":
        from benchmarks.learn_trl import train_trl

        return train_trl
    if name == "exact":
        from benchmarks.learn_exact import exact

        return exact
    return WORK[name]


def main() -> None:
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    metrics = measurement(request["work"])(request, Shape(**request.get("shape", {})))
    if not all(math.isfinite(loss) for loss in metrics.get("losses", [])):
        raise SystemExit("a loss is not finite")
    sys.stdout.write("\n" + json.dumps(metrics) + "\n")


if __name__ == "__main__":
    main()
