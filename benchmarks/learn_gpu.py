"""Training and scoring on a GPU: trees by FlexAttention, trees block by block, and plain sequences.

    python -m benchmarks.learn_gpu [--sizes 135m 1b] [--only score|actor|critic] [--tiny]   (in the project's folder)

Prints one JSON object: figures by size, way and work, and their ratios to `plain`. Weights are random; each size and
way has a process of its own. Every piece of work is done once before it is measured, for kernels are compiled at their
first call. `--tiny` is a model of a few thousand weights on whatever device there is, to see that the script works: on
a CPU there are no gradients for FlexAttention, so `flex` then goes by blocks and `refused` says so.

score   log-probabilities of 16 candidates at each of 8 turns of a dialogue; weights in bf16.
actor   step-level DPO over 4 pairs a turn, the pairs of a dialogue together: weights in fp32, computed in bf16, as
        `sweet train-actor` does it. Reference, optimizer and clipping included.
critic  trajectory preferences of whole dialogues of one task, equation (2), likewise.

`tokens_per_s` counts the tokens of the sequences, each by itself; `computed_per_s` those that went through the model,
padding included. `mfu` counts the operations that were asked of it: 2 a weight of its layers for each token computed,
2 a weight of the output layer for each supervised token, 4 a layer, unit of width and slot seen for the attention of
each token in its sequence (blocks and padding compute more than that), three times as much where there are gradients.
`difference` is the greatest one of mean log-probabilities (score) or of losses of steps (else) to the plain way.
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

from benchmarks.learn_work import BETA, Counted, Figures, Shape, pairs_of, peak_mib, turns_of
from sweet.learn.data import Example, Objective, Pool
from sweet.learn.engine import peak_flops
from sweet.learn.logprobs import Scorer, group_logprobs
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.tokens import Span, TokenSequence
from sweet.learn.tree import plant

ROOT = Path(__file__).resolve().parent.parent
WAYS = ("plain", "blocks", "flex")


@dataclass(frozen=True)
class Size:
    """A Llama with grouped query heads, and what it reads."""

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


class Counting(Scorer):
    """Counts operations as the head of this file says, and tokens as they come."""

    operations = 0.0
    tokens = 0

    def __call__(self, sequences: Sequence[TokenSequence]) -> Any:
        output = self.model.get_output_embeddings().weight
        layers = sum(p.numel() for p in self.model.base_model.layers.parameters())
        tree = plant([sequence.ids for sequence in sequences])
        depths = tree.positions if self.shares_up_to else [p for s in sequences for p in range(len(s.ids))]
        config = self.model.config
        supervised = sum(span.stop - span.start for sequence in sequences for span in sequence.spans)
        seen = sum(depths) + len(depths)
        attention = 4 * config.num_hidden_layers * config.hidden_size * seen
        work = 2 * layers * len(depths) + 2 * output.numel() * supervised + attention
        self.operations += work * (3 if torch.is_grad_enabled() else 1)
        self.tokens += sum(len(sequence.ids) for sequence in sequences)
        return super().__call__(sequences)


class Bench:
    """One size and one way, in this process."""

    def __init__(self, size: Size, way: str, device: torch.device) -> None:
        self.size, self.way, self.device = size, way, device
        self.budget = size.budget

    def scorer(self, model: Any) -> Counting:
        way: Any = self.way
        return Counting(model, share=way != "plain", attention=None if way == "plain" else way)

    def measured(self, scorer: Counting, work: Callable[[], list[float]]) -> Figures:
        """The figures of a piece of work, and what it gave."""
        counted = Counted(scorer.model)
        scorer.operations, scorer.tokens = 0.0, 0
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        values = work()
        if cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        peak = peak_flops(self.device)
        return {
            "seconds": seconds,
            "tokens_per_s": scorer.tokens / seconds,
            "computed_per_s": counted.tokens / seconds,
            "tokens": scorer.tokens,
            "computed": counted.tokens,
            "mfu": scorer.operations / seconds / peak if peak else None,
            "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else peak_mib(),
            "attention": scorer.attention if scorer.shares_up_to else "plain",
            "refused": scorer.refused,
            "values": values,
        }

    def score(self) -> Figures:
        scorer = self.scorer(make_model(self.size, self.device, torch.bfloat16))
        turns = turns_of(self.size.shape, 0)

        def work() -> list[float]:
            return [mean for row in group_logprobs(scorer, turns, 2 * self.budget) for mean in row]

        work()
        return self.measured(scorer, work)

    def actor(self) -> Figures:
        pool, examples = pairs_of(self.size.shape, 0, min(4, self.size.shape.candidates // 2))
        return self._train(pool, examples, Objective(BETA, 0.01, "none"))

    def critic(self) -> Figures:
        pool, examples = preferences_of(self.size.shape)
        return self._train(pool, examples, Objective(BETA, 0.01))

    def _train(self, pool: list[TokenSequence], examples: list[Example], objective: Objective) -> Figures:
        model = make_model(self.size, self.device, torch.float32)
        settings = LoopSettings(lr=1e-6, epochs=1, batch=8, token_budget=self.budget, together=True)
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
        assert isinstance(loop.scorer, Counting)

        def work() -> list[float]:
            loop.run()
            return losses

        return self.measured(loop.scorer, work)


def preferences_of(shape: Shape) -> tuple[list[TokenSequence], list[Example]]:
    """Whole dialogues: of each task one that is best, and four others that part from it at turns of their own."""
    pool, examples = Pool(), []
    for number in range(2 * shape.dialogues):
        best = _dialogue(shape, [(number, 0)] * shape.turns)
        kept = pool.put((number, 0), [best])
        for other in range(1, 5):
            leaves = other * shape.turns // 5
            parted = [(number, 0) if turn < leaves else (number, other) for turn in range(shape.turns)]
            worse = pool.put((number, other), [_dialogue(shape, parted)])
            examples.append(Example(f"{number}-{other}", kept, worse, kin=str(number)))
    return pool.sequences, examples


def _dialogue(shape: Shape, authors: Sequence[tuple[int, int]]) -> TokenSequence:
    """A dialogue whose turns are drawn by these seeds, every reply supervised."""

    def ids(count: int, *seed: int) -> list[int]:
        draw = torch.Generator().manual_seed(hash(seed))
        return [int(i) for i in torch.randint(3, shape.vocabulary, (count,), generator=draw)]

    row, spans = ids(shape.opening, authors[0][0]), []
    for turn, author in enumerate(authors):
        spans.append(Span(len(row), len(row) + shape.reply, turn))
        row += ids(shape.reply + shape.answer, *author, turn)
    return TokenSequence(tuple(row), tuple(spans))


WORKS: dict[str, Callable[[Bench], Figures]] = {"score": Bench.score, "actor": Bench.actor, "critic": Bench.critic}


def one(name: str, way: str, work: str) -> Figures:
    """In a process of its own: the figures, or that the memory did not suffice."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return WORKS[work](Bench(SIZES[name], way, device))
    except torch.OutOfMemoryError:
        return {"out_of_memory": True}


def apart(name: str, way: str, work: str) -> Figures:
    told = [sys.executable, "-m", "benchmarks.learn_gpu", "--one", name, way, work]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(told, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        return {"failed": done.stderr[-1500:]}
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def compared(of: dict[str, Figures]) -> dict[str, Figures]:
    """Figures by way with their ratios to the plain way, without the values they were compared by."""
    plain = of["plain"]
    for way, figures in of.items():
        if way != "plain" and "seconds" in plain and "seconds" in figures:
            figures["speedup"] = plain["seconds"] / figures["seconds"]
            figures["peak_ratio"] = figures["peak_mib"] / plain["peak_mib"]
            pairs = zip(plain["values"], figures["values"], strict=True)
            figures["difference"] = max(abs(a - b) for a, b in pairs)
    return {way: {key: value for key, value in told.items() if key != "values"} for way, told in of.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["135m", "1b"])
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--tiny", action="store_true", help="a tiny model on any device")
    parser.add_argument("--one", nargs=3, metavar=("SIZE", "WAY", "WORK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        sys.stdout.write("\n" + json.dumps(one(*options.one)) + "\n")
        return
    cuda = torch.cuda.is_available()
    if not cuda and not options.tiny:
        raise SystemExit("torch sees no GPU: --tiny shows on a CPU that the script works")
    told: Figures = {"device": torch.cuda.get_device_name() if cuda else "cpu", "torch": torch.__version__}
    for name in ["tiny"] if options.tiny else options.sizes:
        told[name] = {work: compared({way: apart(name, way, work) for way in WAYS}) for work in options.only}
    print(json.dumps(told))
    if any("failed" in f for name in SIZES if name in told for of in told[name].values() for f in of.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
