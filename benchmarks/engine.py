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
from typing import Any

import torch

from sweet.llm.base import Sampling
from sweet.llm.embedded import end_ids
from sweet.llm.engine import EmbeddedEngine
from sweet.llm.pretrained import load_model, load_tokenizer


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


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--single", type=int, default=16, help="requests of the sequential side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=96, help="prompt tokens on average")
    parser.add_argument("--tokens", type=int, default=48, help="most tokens of a reply")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.model:
        model = load_model(args.model, "cpu")
        ends = end_ids(model, load_tokenizer(args.model))
    else:
        model, ends = random_llama(), frozenset([2])
    engine = EmbeddedEngine(model, sorted(ends))
    draw = random.Random(0)
    batch: list[float] = []
    single: list[float] = []
    for number in range(args.rounds):
        requests = []
        for index in range(args.requests):
            size = draw.randint(args.prompt // 2, args.prompt * 3 // 2)
            prompt = [draw.randrange(3, engine.decoder.vocabulary) for _ in range(size)]
            requests.append((prompt, Sampling(max_tokens=args.tokens, seed=index)))
        for concurrent in (number % 2 == 0, number % 2 == 1):
            chosen = requests if concurrent else requests[: args.single]
            engine._prefixes.clear()
            (batch if concurrent else single).append(await measure(engine, chosen, concurrent))
    engine.close()
    print(
        json.dumps(
            {
                "batch_tokens_per_second": round(statistics.median(batch)),
                "single_tokens_per_second": round(statistics.median(single)),
                "ratio": round(statistics.median(b / s for b, s in zip(batch, single, strict=True)), 2),
                "requests": args.requests,
                "rounds": args.rounds,
                "threads": args.threads,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
