"""What gradient checkpointing saves, and what it costs.

    python -m benchmarks.recompute [--pairs 8]                                       (from the project's folder)

Prints one JSON object. A batch of step-level pairs goes forward and backward once, in one pass, through the random
model of 12M parameters and the synthetic dialogues of benchmarks/learn.py, in a process of its own for each of: trees
or plain sequences, layers kept or computed again. `kept_mib` is what the graph holds when the backward pass begins,
weights left out; `above_mib` the peak memory of the process above what it held before; `cpu_s` processor time of both
passes. Ratios are kept over computed again (memory), computed again over kept (time); `gradient_difference` is the
greatest between the two, relative to the greatest gradient.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.learn_work import BETA, Shape, model_of, pairs_of, peak_mib
from sweet.learn.data import Objective, losses
from sweet.learn.logprobs import Scorer
from sweet.learn.recompute import recompute_layers


def work(way: str, again: bool, pairs: int, left: Path) -> dict[str, float]:
    """One batch; its gradients go into the file `left`."""
    torch.set_num_threads(1)
    pool, examples = pairs_of(Shape(), 0, 4)
    model = model_of(Shape(), 0)
    if again:
        recompute_layers(model)
    scorer = Scorer(model, share=way == "tree")
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
    figures = {
        "kept_mib": sum(kept.values()) / 2**20,
        "above_mib": peak_mib() - before,
        "cpu_s": time.process_time() - used,
    }
    torch.save([parameter.grad for parameter in model.parameters()], left)
    return figures


def difference(one: Path, other: Path) -> float:
    """The greatest difference of two files of gradients, relative to the greatest gradient."""
    first, second = (torch.load(path, weights_only=True) for path in (one, other))
    greatest = max(float(gradient.abs().max()) for gradient in first)
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True)) / greatest


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        way, again, left = args.work
        sys.stdout.write("\n" + json.dumps(work(way, again == "again", args.pairs, Path(left))) + "\n")
        return
    found: dict[str, Any] = {"pairs": args.pairs}
    with tempfile.TemporaryDirectory() as folder:
        for way, how in itertools.product(("tree", "plain"), ("kept", "again")):
            told = [way, how, f"{folder}/{way}-{how}"]
            command = [sys.executable, "-m", "benchmarks.recompute", f"--pairs={args.pairs}", "--work", *told]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            figures = json.loads(out.splitlines()[-1])
            found.setdefault(way, {})[how] = {name: round(value, 2) for name, value in figures.items()}
        for way in ("tree", "plain"):
            kept, again = found[way]["kept"], found[way]["again"]
            found[way] |= {
                "kept_ratio": round(kept["kept_mib"] / again["kept_mib"], 2),
                "above_ratio": round(kept["above_mib"] / max(again["above_mib"], 1), 2),
                "time_ratio": round(again["cpu_s"] / kept["cpu_s"], 2),
                "gradient_difference": difference(Path(folder, f"{way}-kept"), Path(folder, f"{way}-again")),
            }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
