"""What prefix trees save, and what they change: nothing but time.

    python -m benchmarks.learn [--only exact|rank|train|memory] [--rounds 3]             (from the project's folder)

`train` compares with TRL, which the project does not depend on. Either install it beside the project, or apart:

    pip install --no-deps --target DIR trl==1.16.0 datasets pyarrow pandas dill xxhash multiprocess python-dateutil six

and name the folder with `--trl DIR` (seen with torch 2.13, transformers 5.23, accelerate 1.15, datasets 5.2).

Prints one JSON object, figures as medians over the rounds (round r draws with `--seed` + r; exact: the worst),
goals beside them. Each piece of work runs in a process of its own (benchmarks/learn_work.py) with one thread; model
and first calls come before the clock starts. Wall clock moves with what else a machine does; the figures `cpu_…`
compare processor time, which does so less.

Dialogues are synthetic token ids: an opening of 300 tokens, then 8 turns of a reply of 80 tokens and an answer of 40,
16 candidates a turn (128 sequences, 102,400 tokens), the first of which was taken. The model is a random Llama of 12M
parameters in fp32. `plain` is the library's own scorer with trees switched off, so it too forms logits at supervised
tokens only and needs no attention mask.

exact   the greatest difference, tree against the model's own forward over each sequence, of mean log-probabilities
        and of gradients (relative, of a loss that weighs each sequence otherwise), trees whole and cut under a budget.
rank    `tokens_ratio`, `speedup`: plain over tree; plain is the faster of length-sorted batches and one at a time.
train   step-level DPO (sums of log-probabilities, no likelihood term), one epoch over 4 pairs a turn of
        `--train-dialogues` dialogues, 8 pairs a step, reference included. The pairs of a dialogue come together
        (`LoopSettings.together`), or with `--shuffled` in any order. TRL gets the same pairs in the same order, the
        same optimizer and rate; `first_loss_difference` compares the loss of 8 pairs before any step under a policy
        that was moved away from its reference, `step_loss_difference` that of each step of the epoch.
memory  peak memory of a process that takes one batch of 8 pairs forward and backward in one pass; `above_ratio` leaves
        out what the process held before.
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
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Figures = dict[str, Any]


class Bench:
    """The options, and how work is started."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def work(self, name: str, seed: int, **more: Any) -> Figures:
        """The figures of one piece of work in a process of its own."""
        paths = [str(ROOT), *([self.options.trl] if self.options.trl and name == "trl" else [])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.learn_work"],
            cwd=ROOT,
            env=environment,
            input=json.dumps({"work": name, "seed": seed, **more}),
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        figures: Figures = json.loads(done.stdout.splitlines()[-1])
        return figures

    @property
    def training(self) -> Figures:
        options = self.options
        shape = {"dialogues": options.train_dialogues}
        common = {"pairs": 4, "batch": options.batch, "lr": 1e-5, "budget": options.train_budget, "shape": shape}
        return {**common, "trl_micro": options.trl_micro, "together": not options.shuffled}


def apart(left: list[float], right: list[float]) -> float:
    """The greatest difference between numbers of the same meaning."""
    return max(abs(a - b) for a, b in zip(left, right, strict=True))


def exact(bench: Bench, seed: int) -> Figures:
    return bench.work("exact", seed)


def rank(bench: Bench, seed: int) -> Figures:
    options = bench.options
    tree = bench.work("rank", seed, way="tree", budget=options.rank_budget)
    batched = bench.work("rank", seed, way="batches", budget=options.plain_budget)
    single = bench.work("rank", seed, way="single", budget=1)
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
        "logprob_difference": apart(tree["means"], single["means"]),
    }


def train(bench: Bench, seed: int) -> Figures:
    told = bench.training
    ours = bench.work("train", seed, way="tree", **told)
    plain = bench.work("train", seed, way="plain", **told)
    theirs = bench.work("trl", seed, way="train", order=ours["order"], **told)
    first = bench.work("first", seed, **told)["losses"]
    theirs_first = bench.work("trl", seed, way="first", **told)["losses"]
    return {
        "over_trl": ours["pairs_per_s"] / theirs["pairs_per_s"],
        "cpu_over_trl": theirs["cpu_s"] / ours["cpu_s"],
        "over_plain": ours["pairs_per_s"] / plain["pairs_per_s"],
        "pairs_per_s": ours["pairs_per_s"],
        "trl_pairs_per_s": theirs["pairs_per_s"],
        "plain_pairs_per_s": plain["pairs_per_s"],
        "seconds": ours["seconds"],
        "reference_s": ours["reference_s"],
        "trl_s": theirs["seconds"],
        "tokens": ours["tokens"],
        "tokens_of_the_pairs": ours["plain_tokens"],
        "first_loss": sum(first) / len(first),
        "trl_first_loss": sum(theirs_first) / len(theirs_first),
        "first_loss_difference": apart(first, theirs_first),
        "step_loss_difference": apart(ours["losses"], theirs["losses"]),
        "last_loss": ours["losses"][-1],
        "trl_last_loss": theirs["losses"][-1],
        "peak_rss_mib": ours["peak_rss_mib"],
        "trl_peak_rss_mib": theirs["peak_rss_mib"],
    }


def memory(bench: Bench, seed: int) -> Figures:
    told = {**bench.training, "shape": {}}
    tree = bench.work("memory", seed, way="tree", **told)
    plain = bench.work("memory", seed, way="plain", **told)
    return {
        "ratio": tree["peak_rss_mib"] / plain["peak_rss_mib"],
        "above_ratio": (tree["peak_rss_mib"] - tree["before_mib"]) / (plain["peak_rss_mib"] - plain["before_mib"]),
        "tree_peak_rss_mib": tree["peak_rss_mib"],
        "plain_peak_rss_mib": plain["peak_rss_mib"],
        "before_mib": tree["before_mib"],
        "tree_tokens": tree["tokens"],
        "plain_tokens": plain["tokens"],
    }


MODES: dict[str, Callable[[Bench, int], Figures]] = {"exact": exact, "rank": rank, "train": train, "memory": memory}

GOALS: dict[str, dict[str, str]] = {
    "exact": {"logprob_difference": "<= 1e-5", "gradient_difference": "<= 1e-4"},
    "rank": {"tokens_ratio": ">= 8", "speedup": ">= 6"},
    "train": {"over_trl": ">= 5", "first_loss_difference": "<= 1e-3"},
    "memory": {"ratio": "<= 0.5"},
}


def median(rounds: list[Any], pick: Callable[[list[Any]], Any] = statistics.median) -> Any:
    """The median (or what `pick` takes) of each number in figures of the same form, in six digits."""
    first = rounds[0]
    if isinstance(first, dict):
        return {key: median([figures[key] for figures in rounds], pick) for key in first}
    return float(f"{pick(rounds):.6g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODES, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rank-budget", type=int, default=8192, help="tokens of one forward of the tree")
    parser.add_argument("--plain-budget", type=int, default=2048, help="of one plain batch")
    parser.add_argument("--train-budget", type=int, default=2048, help="of a micro-batch, tree and plain")
    parser.add_argument("--train-dialogues", type=int, default=2)
    parser.add_argument("--shuffled", action="store_true", help="the pairs of all dialogues, not dialogue by dialogue")
    parser.add_argument("--batch", type=int, default=8, help="pairs a step")
    parser.add_argument("--trl", help="the folder TRL was installed into, where it was not beside the project")
    parser.add_argument("--trl-micro", type=int, default=1, help="pairs of one forward of TRL")
    options = parser.parse_args()
    told: Figures = {"options": vars(options), "threads": 1, "cores": os.cpu_count(), "load_before": os.getloadavg()}
    bench = Bench(options)
    for mode in options.only or MODES:
        began = time.monotonic()
        rounds = [MODES[mode](bench, options.seed + number) for number in range(options.rounds)]
        took = round(time.monotonic() - began, 1)
        told[mode] = {
            **median(rounds, max if mode == "exact" else statistics.median),
            "goals": GOALS[mode],
            "took_s": took,
            "load": os.getloadavg(),
        }
    print(json.dumps({**told, "load_after": os.getloadavg()}))


if __name__ == "__main__":
    main()
