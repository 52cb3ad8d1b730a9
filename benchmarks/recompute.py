"""Measure the memory that computing activations again saves and the time that it costs.

    python -m benchmarks.recompute [--pairs 8]                                       (from the project's folder)

Prints one JSON object. One batch of step-level pairs of one dialogue (benchmarks/synthetic.py: a random model of 12M
parameters and synthetic dialogues; at most 32 pairs) goes through one forward and one backward pass, in a separate
process for each combination of trees or plain sequences and of activations kept, or computed again layer by layer
(`--gradient-checkpointing on`). `kept_mib` is the memory of the graph when the backward pass begins, without the
weights; `above_mib` the peak memory of the process above its memory before; `cpu_s` the processor time of both passes.
Memory ratios are kept / computed again, time ratios the inverse; `gradient_difference` is the greatest difference
between both, relative to the greatest gradient.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.synthetic import BETA, Shape, make_model, make_pairs, peak_mib
from sweet.learn.components import Objective
from sweet.learn.logprobs import Scorer
from sweet.learn.losses import losses
from sweet.learn.recompute import recompute_layers

METHODS, HOW = ("tree", "plain"), ("kept", "layers")


def work(method: str, how: str, pairs: int, gradients: Path) -> dict[str, float]:
    """Compute one batch and write its gradients into the file `gradients`."""
    torch.set_num_threads(1)
    pool, examples = make_pairs(Shape(), 0, 4)
    model = make_model(Shape(), 0)
    if how == "layers":
        recompute_layers(model)
    scorer = Scorer(model, share=method == "tree")
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if tensor.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    reference = [torch.zeros(1) for _ in pool]
    before, used = peak_mib(), time.process_time()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = losses(scorer, Objective(BETA, 0.0, "none"), pool, examples[-pairs:], reference).loss.sum()
    torch.autograd.backward([loss])
    metrics = {
        "kept_mib": sum(kept.values()) / 2**20,
        "above_mib": peak_mib() - before,
        "cpu_s": time.process_time() - used,
    }
    torch.save([parameter.grad for parameter in model.parameters()], gradients)
    return metrics


def difference(one: Path, other: Path) -> float:
    """Return the greatest difference between two files of gradients, relative to the greatest gradient."""
    first, second = (torch.load(path, weights_only=True) for path in (one, other))
    greatest = max(float(gradient.abs().max()) for gradient in first)
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True)) / greatest


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        method, how, gradients = args.work
        sys.stdout.write("\n" + json.dumps(work(method, how, args.pairs, Path(gradients))) + "\n")
        return
    results: dict[str, Any] = {"pairs": args.pairs}
    with tempfile.TemporaryDirectory() as folder:
        for method in METHODS:
            found: dict[str, dict[str, float]] = {}
            for how in HOW:
                arguments = [method, how, f"{folder}/{method}-{how}"]
                command = [sys.executable, "-m", "benchmarks.recompute", f"--pairs={args.pairs}", "--work", *arguments]
                out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                metrics = json.loads(out.splitlines()[-1])
                found[how] = {name: round(value, 2) for name, value in metrics.items()}
                if how == "kept":
                    continue
                kept, again = found["kept"], found[how]
                again |= {
                    "kept_ratio": round(kept["kept_mib"] / again["kept_mib"], 2),
                    "above_ratio": round(kept["above_mib"] / max(again["above_mib"], 1), 2),
                    "time_ratio": round(again["cpu_s"] / kept["cpu_s"], 2),
                    "gradient_difference": difference(Path(folder, f"{method}-kept"), Path(folder, f"{method}-{how}")),
                }
            results[method] = found
    sys.stdout.write(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
