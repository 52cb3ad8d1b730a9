"""Measure the sampled tokens per second of the embedded engine: 128 concurrent requests against sequential ones.

    python benchmarks/engine.py [--model DIR] [--requests 128] [--rounds 3] [--threads 1]

Without --model it uses a random Llama of the micro agent's size. Each round measures both ways in alternating order;
the medians are printed as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from sweet.llm.base import Sampling
from sweet.llm.engine import EmbeddedEngine, Limits
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.llm.template import reply_ends


def random_llama(vocabulary: int = 700) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    make: Any = LlamaForCausalLM
    return make(config).eval()


@dataclass(frozen=True)
class Load:
    """What is asked of an engine.

    Attributes:
        requests: at once.
        single: requests that are asked one after the other.
        prompt: tokens of a prompt on average.
        tokens: most tokens of a reply.
    """

    requests: int = 128
    single: int = 16
    rounds: int = 3
    prompt: int = 96
    tokens: int = 48


@dataclass(frozen=True)
class Rates:
    """Sampled tokens per second: medians over the rounds, of requests at once and one after the other, and of the
    rounds' ratios."""

    batch: float
    single: float
    ratio: float


async def measure(engine: EmbeddedEngine, requests: list[tuple[list[int], Sampling]], concurrent: bool) -> float:
    """Return the sampled tokens per second."""
    started, tokens = time.perf_counter(), 0
    if concurrent:
        futures = [asyncio.wrap_future(engine.submit(prompt, sampling)) for prompt, sampling in requests]
        for replies in await asyncio.gather(*futures):
            tokens += sum(len(reply.ids) for reply in replies)
    else:
        for prompt, sampling in requests:
            replies = await asyncio.wrap_future(engine.submit(prompt, sampling))
            tokens += sum(len(reply.ids) for reply in replies)
    return tokens / (time.perf_counter() - started)


def throughput(model: Any, ends: Iterable[int], load: Load, limits: Limits | None = None) -> Rates:
    """Measure the engine with a model.

    Args:
        ends: the ids that end a reply.
    """
    engine = EmbeddedEngine(model, ends, limits=limits)
    draw = random.Random(0)
    batch: list[float] = []
    single: list[float] = []
    try:
        for number in range(load.rounds):
            requests = []
            for index in range(load.requests):
                size = draw.randint(load.prompt // 2, load.prompt * 3 // 2)
                prompt = [draw.randrange(3, engine.decoder.vocabulary) for _ in range(size)]
                requests.append((prompt, Sampling(max_tokens=load.tokens, seed=index)))
            for concurrent in (number % 2 == 0, number % 2 == 1):
                chosen = requests if concurrent else requests[: load.single]
                engine._prefixes.clear()
                (batch if concurrent else single).append(asyncio.run(measure(engine, chosen, concurrent)))
    finally:
        engine.close()
    ratio = statistics.median(b / s for b, s in zip(batch, single, strict=True))
    return Rates(statistics.median(batch), statistics.median(single), ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--requests", type=int, default=Load.requests)
    parser.add_argument("--single", type=int, default=Load.single, help="requests of the sequential side")
    parser.add_argument("--rounds", type=int, default=Load.rounds)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=Load.prompt, help="prompt tokens on average")
    parser.add_argument("--tokens", type=int, default=Load.tokens, help="most tokens of a reply")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.model:
        model = load_model(args.model, "cpu")
        ends = reply_ends(model, load_tokenizer(args.model))
    else:
        model, ends = random_llama(), frozenset([2])
    rates = throughput(model, sorted(ends), Load(args.requests, args.single, args.rounds, args.prompt, args.tokens))
    print(
        json.dumps(
            {
                "batch_tokens_per_second": round(rates.batch),
                "single_tokens_per_second": round(rates.single),
                "ratio": round(rates.ratio, 2),
                "requests": args.requests,
                "rounds": args.rounds,
                "threads": args.threads,
            }
        )
    )


if __name__ == "__main__":
    main()
