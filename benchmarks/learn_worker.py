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

import torch

from benchmarks.synthetic import (
    BETA,
    Metrics,
    Shape,
    TokenCounter,
    first_steps,
    make_model,
    make_turns,
    peak_mib,
    perturb,
)
from sweet.learn.components import Objective
from sweet.learn.logprobs import Scorer, group_logprobs, span_logprobs
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.losses import losses


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
        "parameters": sum(p.numel() for p in model.parameters()),
        "peak_rss_mib": peak_mib(),
        "means": means,
    }


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
    started, used, before = time.perf_counter(), time.process_time(), counter.tokens
    reference: list[float] = []
    loop.on_reference = lambda: reference.append(time.perf_counter() - started)
    loop.run()
    seconds = time.perf_counter() - started
    return {
        "pairs": len(examples),
        "seconds": seconds,
        "cpu_s": time.process_time() - used,
        "reference_s": reference[0],
        "pairs_per_s": len(examples) / seconds,
        "tokens": counter.tokens - before,
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


def trl(request: Metrics, shape: Shape) -> Metrics:
    from benchmarks.learn_trl import train_trl  # which only this measurement needs

    return train_trl(request, shape)


WORK = {"rank": rank, "train": train, "first": first_losses, "trl": trl}


def main() -> None:
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    metrics = WORK[request["work"]](request, Shape(**request.get("shape", {})))
    if not all(math.isfinite(loss) for loss in metrics.get("losses", [])):
        raise SystemExit("a loss is not finite")
    sys.stdout.write("\n" + json.dumps(metrics) + "\n")


if __name__ == "__main__":
    main()
