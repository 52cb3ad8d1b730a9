"""Seconds per step and memory of a training by each credit rule, beside TRL's GRPOTrainer on the same tokens.

    python -m benchmarks.credit RUN [--methods grpo,rloo,sweet-pg,trl] [--groups 3] [--rounds 5] [--trl-micro 4]
                                    [--device cpu]

RUN has scored dialogues of several samples of each task, and for the other rules what they learn from (`sweet demo`
makes such a run); nothing in it is changed. Every method is measured in a process of its own, one after the other.

`grpo`, `rloo`, `sweet-pg` and `trl` learn the same dialogues in steps of the same size: whole groups whose rewards are
not all equal, and dialogues that are one sequence of tokens. Both sides take the log-probabilities of the policy before
the step as given, TRL by not computing them. The other rules learn their own examples, as many for each step.

Prints JSON: for each method the steps, the median seconds of a step after the first, the tokens of a step, the seconds
before the first one (encoding; the critic of `sweet-pg`, the teacher of `opsd`, the reward model of `istar`), and the
peak memory, of the GPU if there is one, else of the process; and the ratios to TRL where the tokens are the same. All
are medians over the rounds, of which every other one has the methods in reverse; a ratio is of one round. `load` is
that of the machine before each round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.synthetic import peak_mib

SAME = ("grpo", "rloo", "sweet-pg")
"""Rules that learn the same tokens as TRL."""
METHODS = (*SAME, "sweet-pg-candidates", "istar", "opsd", "sweet", "multi-turn-dpo", "rft", "trl")
Measured = dict[str, Any]


def prepared(given: argparse.Namespace, method: str) -> Any:
    """Return the training of a rule on the run, with the examples that are measured."""
    from sweet.runs.run import Run
    from sweet.stages.base import Silent
    from sweet.training.config import TrainActorConfig
    from sweet.training.prepare import prepare_actor

    config = TrainActorConfig(algorithm=method, epochs=1, device=given.device, model=given.model)
    training, _ = prepare_actor(Run.open(given.run), config, Silent())
    if given.names:
        by_name = {example.name: example for example in training.examples}
        examples = [by_name[name] for name in json.loads(given.names.read_text())]
    else:
        examples = training.examples
    return replace(training, examples=examples)


def comparable(training: Any) -> tuple[list[str], int]:
    """Return the dialogues that both sides can learn, group by group, and the size of a group."""
    groups: dict[str, list[str]] = {}
    for example in training.examples:
        if len(example.chosen) == 1:
            groups.setdefault(example.group, []).append(example.name)
    size = Counter(map(len, groups.values())).most_common(1)[0][0]
    return [name for names in groups.values() if len(names) == size for name in names], size


def memory(device: str) -> float:
    import torch

    on_gpu = device != "cpu" and torch.cuda.is_available()
    return torch.cuda.max_memory_allocated() / 2**20 if on_gpu else peak_mib()


def measure(given: argparse.Namespace, method: str) -> Measured:
    """Train by a rule and return the figures."""
    from sweet.learn.loop import Loop

    began = time.perf_counter()
    training = prepared(given, method)
    size = given.batch
    examples = training.examples[: len(training.examples) // size * size][: given.steps * size]
    ends = [time.perf_counter()]
    loop = Loop(
        training.model.trainee.model,
        training.pool.sequences,
        examples,
        training.objective,
        replace(training.settings, batch=size, seed=0),
        on_reference=lambda: ends.append(time.perf_counter()),
        on_step=lambda _record: ends.append(time.perf_counter()),
    )
    summary = loop.run()
    return figures(ends[1:], ends[1] - began, summary["tokens"], memory(given.device))


def measure_trl(given: argparse.Namespace) -> Measured:
    """Train TRL's GRPOTrainer on the dialogues of `grpo` and return the figures."""
    from transformers import TrainerCallback

    from benchmarks.credit_trl import Row, make_trainer

    began = time.perf_counter()
    training = prepared(given, "grpo")
    pool = training.pool.sequences
    size = given.batch
    examples = training.examples[: len(training.examples) // size * size][: given.steps * size]
    rows = [Row.of(one.group, pool[one.chosen[0]], one.terms[0].advantages[0]) for one in examples]
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_train_begin(self, *_args: Any, **_more: Any) -> None:
            ends.append(time.perf_counter())

        def on_step_end(self, *_args: Any, **_more: Any) -> None:
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "per_device_train_batch_size": given.trl_micro,
            "gradient_accumulation_steps": size // given.trl_micro,
            "steps_per_generation": size // given.trl_micro,
            "max_steps": len(examples) // size,
            "learning_rate": training.hyperparameters.lr,
            "loss_type": "dapo",
            "epsilon_high": 0.28,
            "shuffle_dataset": False,
            "use_cpu": not training.model.on_gpu,
        }
        model, tokenizer = training.model.trainee.model, training.model.encoder.tokenizer
        trainer = make_trainer(model, tokenizer, rows, Path(folder), **settings)
        trainer.add_callback(Clock())
        trainer.train()
    tokens = sum(len(row.prompt) + len(row.completion) for row in rows)
    return figures(ends, ends[0] - began, tokens, memory(given.device))


def figures(ends: list[float], before: float, tokens: int, peak: float) -> Measured:
    """Return the figures of a training.

    Args:
        ends: when it began, and when each step ended.
    """
    steps = [later - earlier for earlier, later in pairwise(ends)]
    return {
        "steps": len(steps),
        "seconds_per_step": statistics.median(steps[1:] or steps),
        "tokens_per_step": tokens / len(steps),
        "seconds_before": before,
        "peak_mib": peak,
    }


def in_a_process(given: argparse.Namespace, method: str, names: Path | None) -> Measured:
    words = [sys.executable, "-m", "benchmarks.credit", str(given.run), "--only", method, "--device", given.device]
    words += ["--batch", str(given.batch), "--steps", str(given.steps), "--trl-micro", str(given.trl_micro)]
    words += ["--model", given.model] if given.model else []
    words += ["--names", str(names)] if names else []
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode:
        return {"error": ended.stderr.strip().splitlines()[-1:]}
    found: Measured = json.loads(ended.stdout.splitlines()[-1])
    return found


def against_trl(found: dict[str, Measured]) -> dict[str, Measured]:
    """Return the figures of a round, with the ratios to TRL where the tokens are the same."""
    trl = found.get("trl", {})
    for method in SAME:
        own = found.get(method, {})
        if "seconds_per_step" in own and "seconds_per_step" in trl:
            if own["tokens_per_step"] != trl["tokens_per_step"]:
                raise SystemExit(f"{method} and TRL learned different tokens")
            own["trl_seconds_over_own"] = trl["seconds_per_step"] / own["seconds_per_step"]
            own["trl_memory_over_own"] = trl["peak_mib"] / own["peak_mib"]
    return found


def medians(rounds: list[Measured]) -> Measured:
    """Return the medians of a method's figures; the error of a round that failed."""
    failed = next((found for found in rounds if "error" in found), None)
    return failed or {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--groups", type=int, default=3, help="groups of each step")
    parser.add_argument("--steps", type=int, default=5, help="steps at most")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trl-micro", type=int, default=0, help="dialogues of TRL's forward pass; default: a group")
    parser.add_argument("--model", help="the model to train; default: that of the dialogues")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--names", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measure_trl(given) if given.only == "trl" else measure(given, given.only)))
        return
    names, size = comparable(prepared(given, "grpo"))
    given.batch, given.trl_micro = given.groups * size, given.trl_micro or size
    methods, rounds, load = given.methods.split(","), [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "names.json"
        file.write_text(json.dumps(names))
        for number in range(given.rounds):
            load.append(round(os.getloadavg()[0], 2))
            found = {}
            for method in methods if number % 2 == 0 else reversed(methods):
                found[method] = in_a_process(given, method, file if method in (*SAME, "trl") else None)
                print(f"{method}: {found[method]}", file=sys.stderr)
            rounds.append(against_trl(found))
    result = {"run": str(given.run), "group": size, "batch": given.batch, "rounds": given.rounds, "load": load}
    result["methods"] = {method: medians([found[method] for found in rounds]) for method in methods}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
