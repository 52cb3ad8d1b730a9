"""Measure what prefix trees save in time, tokens and memory against plain sequences and TRL.

    python -m benchmarks.learn [--only rank|train] [--rounds 5] [--width 384]        (from the project's folder)

`train` compares with TRL, which the project does not depend on. Install it into the project's environment, or into a
folder of its own:

    pip install --no-deps --target DIR trl==1.16.0 datasets pyarrow pandas dill xxhash multiprocess python-dateutil six

and name that folder with `--trl DIR` (tested with torch 2.13, transformers 5.23, accelerate 1.15, datasets 5.2).

Prints one JSON object: medians over the rounds (round r draws with `--seed` + r) next to the goals. Each measurement
runs in a separate process (benchmarks/learn_worker.py) with one thread; the model and the first calls are ready before
the clock starts. Wall-clock time depends on the load of the machine; the metrics `cpu_…` compare processor time, which
depends on it less.

Dialogues are synthetic token ids: an opening of 300 tokens, then 8 turns with a reply of 80 tokens and an answer of 40,
16 candidates per turn (128 sequences, 102,400 tokens), of which the first one continues the dialogue. The model is a
random Llama of 6 layers in fp32, of 12M parameters at the default width. `plain` is the library's scorer without
trees, which also computes logits at supervised tokens only and needs no attention mask.

rank    `tokens_ratio`, `speedup`: plain / tree; plain is the faster of length-sorted batches and one at a time. The
        time saved cannot reach the ratio of tokens: the output layer computes as many logits either way, and the tokens
        of a tree attend to longer paths than the average token of the sequences.
train   step-level DPO (sums of log-probabilities, no likelihood term) over 4 pairs per turn of `--train-dialogues`
        dialogues, 8 pairs a step. `--order` is that of the pairs, by default the one that `sweet train-actor` has by
        default. An epoch of 64 dialogues has 256 steps, of which TRL computes 3 in a minute: only the first
        `--train-steps` are done, by all alike, and each round draws others. The reference is included, of these pairs
        alone; in a whole epoch it shares more (all pairs of a dialogue), so that these steps understate what is saved.
        TRL gets the same pairs in the same order, the same optimizer and learning rate; `first_loss_difference`
        compares the loss of 8 pairs before any step under a policy that differs from its reference,
        `step_loss_difference` the loss of each step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from sweet.training.config import Order, TrainActorConfig, adjacent, order_of

ROOT = Path(__file__).resolve().parent.parent
Metrics = dict[str, Any]


class Runner:
    """Starts measurements with the given options, each in a worker process."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def run(self, name: str, seed: int, **more: Any) -> Metrics:
        """Run one measurement in a worker process and return its metrics."""
        paths = [str(ROOT), *([self.options.trl] if self.options.trl and name == "trl" else [])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
        process = subprocess.run(
            [sys.executable, "-m", "benchmarks.learn_worker"],
            cwd=ROOT,
            env=environment,
            input=json.dumps({"work": name, "seed": seed, **more}),
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
        )
        if process.returncode:
            raise SystemExit(f"{name} exited with {process.returncode}:\n{process.stderr[-2000:]}")
        metrics: Metrics = json.loads(process.stdout.splitlines()[-1])
        return metrics

    @property
    def shape(self) -> Metrics:
        """The sizes that differ from those of `benchmarks.synthetic.Shape`."""
        return {"width": self.options.width}

    @property
    def training(self) -> Metrics:
        options = self.options
        shape = {**self.shape, "dialogues": options.train_dialogues}
        common = {"pairs": 4, "batch": options.batch, "lr": 1e-5, "budget": options.train_budget, "shape": shape}
        order = {"together": adjacent(options.order, options.batch), "steps": options.train_steps}
        return {**common, **order, "trl_micro": options.trl_micro}


def greatest_difference(left: list[float], right: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(left, right, strict=True))


def rank(runner: Runner, seed: int) -> Metrics:
    options = runner.options
    shape = {"shape": runner.shape}
    tree = runner.run("rank", seed, method="tree", budget=options.rank_budget, **shape)
    batched = runner.run("rank", seed, method="batches", budget=options.plain_budget, **shape)
    single = runner.run("rank", seed, method="single", budget=1, **shape)
    plain = min(batched["seconds"], single["seconds"])
    return {
        "tokens_ratio": single["tokens"] / tree["tokens"],
        "speedup": plain / tree["seconds"],
        "cpu_speedup": min(batched["cpu_s"], single["cpu_s"]) / tree["cpu_s"],
        "tree_s": tree["seconds"],
        "batches_s": batched["seconds"],
        "single_s": single["seconds"],
        "tree_tokens": tree["tokens"],
        "plain_tokens": single["tokens"],
        "batches_tokens": batched["tokens"],
        "tree_forwards": tree["forwards"],
        "tree_peak_rss_mib": tree["peak_rss_mib"],
        "batches_peak_rss_mib": batched["peak_rss_mib"],
        "parameters": tree["parameters"],
        "logprob_difference": greatest_difference(tree["means"], single["means"]),
    }


def train(runner: Runner, seed: int) -> Metrics:
    settings = runner.training
    ours = runner.run("train", seed, method="tree", **settings)
    plain = runner.run("train", seed, method="plain", **settings)
    metrics = {
        "over_plain": ours["pairs_per_s"] / plain["pairs_per_s"],
        "cpu_over_plain": plain["cpu_s"] / ours["cpu_s"],
        "pairs": ours["pairs"],
        "pairs_per_s": ours["pairs_per_s"],
        "plain_pairs_per_s": plain["pairs_per_s"],
        "seconds": ours["seconds"],
        "reference_s": ours["reference_s"],
        "plain_s": plain["seconds"],
        "plain_reference_s": plain["reference_s"],
        "tokens": ours["tokens"],
        "plain_tokens": plain["tokens"],
        "plain_loss_difference": greatest_difference(ours["losses"], plain["losses"]),
        "peak_rss_mib": ours["peak_rss_mib"],
        "plain_peak_rss_mib": plain["peak_rss_mib"],
    }
    if runner.options.without_trl:
        return metrics
    trl = runner.run("trl", seed, method="train", **settings)
    first = runner.run("first", seed, **settings)["losses"]
    trl_first = runner.run("trl", seed, method="first", **settings)["losses"]
    return {
        "over_trl": ours["pairs_per_s"] / trl["pairs_per_s"],
        "cpu_over_trl": trl["cpu_s"] / ours["cpu_s"],
        **metrics,
        "trl_pairs_per_s": trl["pairs_per_s"],
        "trl_s": trl["seconds"],
        "first_loss": sum(first) / len(first),
        "trl_first_loss": sum(trl_first) / len(trl_first),
        "first_loss_difference": greatest_difference(first, trl_first),
        "step_loss_difference": greatest_difference(ours["losses"], trl["losses"]),
        "last_loss": ours["losses"][-1],
        "trl_last_loss": trl["losses"][-1],
        "trl_peak_rss_mib": trl["peak_rss_mib"],
    }


MODES: dict[str, Callable[[Runner, int], Metrics]] = {"rank": rank, "train": train}

GOALS: dict[str, dict[str, str]] = {
    "rank": {"tokens_ratio": ">= 8", "speedup": ">= 6"},
    "train": {"over_trl": ">= 5", "first_loss_difference": "<= 1e-3"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODES, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rank-budget", type=int, default=8192, help="tokens of one forward pass of a tree")
    parser.add_argument("--plain-budget", type=int, default=2048, help="tokens of one plain batch")
    parser.add_argument("--train-budget", type=int, default=2048, help="tokens of a micro-batch, tree and plain")
    parser.add_argument("--width", type=int, default=384, help="of the model's states")
    parser.add_argument("--train-dialogues", type=int, default=64)
    parser.add_argument("--train-steps", type=int, default=3, help="steps of the epoch that are done")
    parser.add_argument("--order", choices=get_args(Order), default=order_of(TrainActorConfig(), "pairs"))
    parser.add_argument("--batch", type=int, default=8, help="pairs per step")
    parser.add_argument("--without-trl", action="store_true", help="compare training with plain sequences alone")
    parser.add_argument("--trl", help="the folder TRL was installed into, if it is not in the project's environment")
    parser.add_argument("--trl-micro", type=int, default=1, help="pairs of one forward pass of TRL")
    options = parser.parse_args()
    results: Metrics = {"options": vars(options), "threads": 1, "cores": os.cpu_count(), "load_before": os.getloadavg()}
    runner = Runner(options)
    for mode in options.only or MODES:
        started = time.monotonic()
        rounds = [MODES[mode](runner, options.seed + number) for number in range(options.rounds)]
        seconds = round(time.monotonic() - started, 1)
        results[mode] = {
            **{name: float(f"{statistics.median(metrics[name] for metrics in rounds):.6g}") for name in rounds[0]},
            "goals": GOALS[mode],
            "took_s": seconds,
            "load": os.getloadavg(),
        }
    print(json.dumps({**results, "load_after": os.getloadavg()}))


if __name__ == "__main__":
    main()
