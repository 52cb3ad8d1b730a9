"""Measure training and scoring on a GPU: trees with FlexAttention, trees block by block, and plain sequences.

    python -m benchmarks.learn_gpu [--sizes 135m 1b] [--only score|actor|critic] [--tiny]   (in the project's folder)

Prints one JSON object: metrics by size, work and method, and their ratios to the method `plain`. Weights are random;
each size and method runs in a separate process. All work runs once before it is measured, because kernels are compiled
at their first call. `--tiny` is a model of a few thousand weights on any device, to check that the script works: on a
CPU FlexAttention has no gradients, so `flex` computes by blocks and `refused` says so.

score   log-probabilities of 16 candidates at each of 8 turns of a dialogue; weights in bf16.
actor   step-level DPO over 4 pairs per turn, the pairs of a dialogue together: weights in fp32, computed in bf16, as in
        `sweet train-actor`. Includes reference, optimizer and clipping.
critic  the same with trajectory preferences between whole dialogues of one task (arXiv 2503.15478, equation 2).

`tokens_per_s` counts the tokens of all sequences, shared prefixes repeatedly; `computed_per_s` the tokens that went
through the model, padding included. `mfu` counts the necessary operations: 2 per weight of the layers and computed
token, 2 per weight of the output layer and supervised token, and for attention 4 per layer, unit of width and visible
position of each token (blocks and padding compute more), three times as many with gradients. `difference` is the
greatest difference of mean log-probabilities (score) or of step losses (actor, critic) from the method `plain`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.synthetic import BETA, Metrics, Shape, TokenCounter, make_pairs, make_turns, peak_mib
from sweet.learn.components import Example, Objective
from sweet.learn.data import Pool
from sweet.learn.engine import peak_flops
from sweet.learn.logprobs import Scorer, group_logprobs
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.tokens import Span, TokenSequence
from sweet.learn.tree import build_tree

ROOT = Path(__file__).resolve().parent.parent
METHODS = ("plain", "blocks", "flex")


@dataclass(frozen=True)
class Size:
    """A Llama with grouped query heads, the shape of its dialogues and the tokens of a micro-batch."""

    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    shape: Shape
    budget: int


LONG = Shape(opening=600, reply=200, answer=60)
SIZES = {
    "tiny": Size(64, 128, 2, 4, 2, Shape(1, 3, 4, 40, 12, 8, 512), 512),
    "135m": Size(576, 1536, 30, 9, 3, replace(LONG, vocabulary=49152), 16384),
    "1b": Size(2048, 8192, 16, 32, 8, replace(LONG, vocabulary=128256), 16384),
}


def make_model(size: Size, device: torch.device, kind: torch.dtype) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=size.shape.vocabulary,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_heads,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        pad_token_id=0,
    )
    make: Any = LlamaForCausalLM
    return make(config).eval().to(device, kind)


class CountingScorer(Scorer):
    """A scorer that counts operations as the module docstring says, and the tokens of all sequences."""

    operations = 0.0
    tokens = 0

    def __call__(self, sequences: Sequence[TokenSequence], others: torch.Tensor | None = None, top: int = 0) -> Any:
        output = self.model.get_output_embeddings().weight
        layers = sum(p.numel() for p in self.model.base_model.layers.parameters())
        tree = build_tree([sequence.ids for sequence in sequences])
        depths = tree.positions if self.max_shared_length else [p for s in sequences for p in range(len(s.ids))]
        config = self.model.config
        supervised = sum(span.stop - span.start for sequence in sequences for span in sequence.spans)
        visible = sum(depths) + len(depths)
        attention = 4 * config.num_hidden_layers * config.hidden_size * visible
        work = 2 * layers * len(depths) + 2 * output.numel() * supervised + attention
        self.operations += work * (3 if torch.is_grad_enabled() else 1)
        self.tokens += sum(len(sequence.ids) for sequence in sequences)
        return super().__call__(sequences, others, top)


class Worker:
    """Measures one size by one method in this process."""

    def __init__(self, size: Size, method: str, device: torch.device) -> None:
        self.size, self.method, self.device = size, method, device
        self.budget = size.budget

    def scorer(self, model: Any) -> CountingScorer:
        method: Any = self.method
        return CountingScorer(model, share=method != "plain", attention=None if method == "plain" else method)

    def measure(self, scorer: CountingScorer, work: Callable[[], list[float]]) -> Metrics:
        """Run `work` and return its metrics, with its result under `values`."""
        counter = TokenCounter(scorer.model)
        scorer.operations, scorer.tokens = 0.0, 0
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        values = work()
        if cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        peak = peak_flops(self.device)
        return {
            "seconds": seconds,
            "tokens_per_s": scorer.tokens / seconds,
            "computed_per_s": counter.tokens / seconds,
            "tokens": scorer.tokens,
            "computed": counter.tokens,
            "mfu": scorer.operations / seconds / peak if peak else None,
            "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else peak_mib(),
            "attention": scorer.attention if scorer.max_shared_length else "plain",
            "refused": scorer.flex_error,
            "values": values,
        }

    def score(self) -> Metrics:
        scorer = self.scorer(make_model(self.size, self.device, torch.bfloat16))
        turns = make_turns(self.size.shape, 0)

        def work() -> list[float]:
            return [mean for row in group_logprobs(scorer, turns, 2 * self.budget) for mean in row]

        work()
        return self.measure(scorer, work)

    def actor(self) -> Metrics:
        pool, examples = make_pairs(self.size.shape, 0, min(4, self.size.shape.candidates // 2))
        return self._train(pool, examples, Objective(BETA, 0.01, "none"))

    def critic(self) -> Metrics:
        pool, examples = make_preferences(self.size.shape)
        return self._train(pool, examples, Objective(BETA, 0.01))

    def _train(self, pool: list[TokenSequence], examples: list[Example], objective: Objective) -> Metrics:
        model = make_model(self.size, self.device, torch.float32)
        settings = LoopSettings(lr=1e-6, epochs=1, batch=8, token_budget=self.budget, grouped=True)
        losses: list[float] = []

        def loop_over(data: list[Example]) -> Loop:
            loop = Loop(
                model, pool, data, objective, settings, on_step=lambda record: losses.append(float(record["loss"]))
            )
            loop.scorer = loop.engine.scorer = self.scorer(model)
            return loop

        loop_over(examples[:16]).run()
        model.load_state_dict(make_model(self.size, self.device, torch.float32).state_dict())
        losses.clear()
        loop = loop_over(examples)
        assert isinstance(loop.scorer, CountingScorer)

        def work() -> list[float]:
            loop.run()
            return losses

        return self.measure(loop.scorer, work)


def make_preferences(shape: Shape) -> tuple[list[TokenSequence], list[Example]]:
    """Return whole dialogues: the best one of each task and four others, which leave it at different turns."""
    pool, examples = Pool(), []
    for number in range(2 * shape.dialogues):
        best = _dialogue(shape, [(number, 0)] * shape.turns)
        chosen = pool.put((number, 0), [best])
        for other in range(1, 5):
            branch = other * shape.turns // 5
            authors = [(number, 0) if turn < branch else (number, other) for turn in range(shape.turns)]
            rejected = pool.put((number, other), [_dialogue(shape, authors)])
            examples.append(Example(f"{number}-{other}", chosen, rejected, group=str(number)))
    return pool.sequences, examples


def _dialogue(shape: Shape, authors: Sequence[tuple[int, int]]) -> TokenSequence:
    """Draw a dialogue from one seed per turn. Every reply is supervised."""

    def ids(count: int, *seed: int) -> list[int]:
        draw = torch.Generator().manual_seed(hash(seed))
        return [int(i) for i in torch.randint(3, shape.vocabulary, (count,), generator=draw)]

    row, spans = ids(shape.opening, authors[0][0]), []
    for turn, author in enumerate(authors):
        spans.append(Span(len(row), len(row) + shape.reply, turn))
        row += ids(shape.reply + shape.answer, *author, turn)
    return TokenSequence(tuple(row), tuple(spans))


WORKS: dict[str, Callable[[Worker], Metrics]] = {"score": Worker.score, "actor": Worker.actor, "critic": Worker.critic}


def measure_here(name: str, method: str, work: str) -> Metrics:
    """Measure in this process. Reports a lack of GPU memory as a result."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return WORKS[work](Worker(SIZES[name], method, device))
    except torch.OutOfMemoryError:
        return {"out_of_memory": True}


def measure_in_process(name: str, method: str, work: str) -> Metrics:
    """Measure in a separate process. A failed process is reported with the end of its stderr."""
    command = [sys.executable, "-m", "benchmarks.learn_gpu", "--one", name, method, work]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600, check=False
    )
    if process.returncode:
        return {"failed": process.stderr[-1500:]}
    metrics: Metrics = json.loads(process.stdout.splitlines()[-1])
    return metrics


def compare(results: dict[str, Metrics]) -> dict[str, Metrics]:
    """Add each method's ratios to the method `plain`, and drop the values that were compared."""
    plain = results["plain"]
    for method, metrics in results.items():
        if method != "plain" and "seconds" in plain and "seconds" in metrics:
            metrics["speedup"] = plain["seconds"] / metrics["seconds"]
            metrics["peak_ratio"] = metrics["peak_mib"] / plain["peak_mib"]
            pairs = zip(plain["values"], metrics["values"], strict=True)
            metrics["difference"] = max(abs(a - b) for a, b in pairs)
    return {
        method: {key: value for key, value in metrics.items() if key != "values"} for method, metrics in results.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["135m", "1b"])
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--tiny", action="store_true", help="a tiny model on any device")
    parser.add_argument("--one", nargs=3, metavar=("SIZE", "METHOD", "WORK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        sys.stdout.write("\n" + json.dumps(measure_here(*options.one)) + "\n")
        return
    cuda = torch.cuda.is_available()
    if not cuda and not options.tiny:
        raise SystemExit("torch finds no GPU: use --tiny to check the script on a CPU")
    results: Metrics = {"device": torch.cuda.get_device_name() if cuda else "cpu", "torch": torch.__version__}
    for name in ["tiny"] if options.tiny else options.sizes:
        results[name] = {
            work: compare({method: measure_in_process(name, method, work) for method in METHODS})
            for work in options.only
        }
    print(json.dumps(results))
    if any("failed" in f for name in SIZES if name in results for m in results[name].values() for f in m.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
