"""Sampled tokens per second with random weights in bf16: the embedded engine in this process, and vllm.

128 requests at once, and one after the other (`single_per_s`, of a few). The embedded engine is measured with its
default limits and, above a billion parameters, also with room for the keys and values of all requests. vllm is started
and asked as the stages do it (`sweet.llm.local`); its weights are random too (`--load-format dummy`), and its rate is
that of chats over its HTTP server.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.models import SIZES, config_of, random_model
from benchmarks.gpu.results import Figures, Part, Settings, Skipped
from sweet.llm.base import ChatClient, Sampling
from sweet.llm.connect import open_client
from sweet.llm.engine import EmbeddedEngine, Limits
from sweet.llm.local import LocalServing
from sweet.llm.vllm import find_vllm
from sweet.tasks.base import Message
from tests.learn.builders import TEMPLATES, build_tokenizer


@dataclass(frozen=True)
class Load:
    """What is asked of an engine.

    Attributes:
        requests: at once.
        single: requests that are asked one after the other.
        prompt: tokens of a prompt on average.
        tokens: most tokens of a reply.
    """

    requests: int
    single: int
    rounds: int
    prompt: int
    tokens: int


LOAD = Load(requests=128, single=4, rounds=2, prompt=512, tokens=128)
TINY = Load(requests=6, single=2, rounds=1, prompt=24, tokens=6)
ROOM = Limits(cache_bytes=24 << 30)


def embedded(settings: Settings) -> Sequence[Part]:
    load = TINY if settings.tiny else LOAD
    found = []
    for name in ["tiny"] if settings.tiny else ["135m", "1b", "4b"]:
        found.append(Part(name, partial(_engine, name, load, Limits())))
        if name in ("1b", "4b"):
            found.append(Part(f"{name}, 24 GiB of keys and values", partial(_engine, name, load, ROOM)))
    return found


def _engine(name: str, load: Load, limits: Limits) -> Figures:
    """Measure both ways in each round, in alternating order; the figures are medians."""
    engine = EmbeddedEngine(random_model(SIZES[name], torch.bfloat16), (), limits=limits)
    draw = random.Random(0)
    rates: dict[bool, list[float]] = {True: [], False: []}
    try:
        for number in range(load.rounds):
            requests = []
            for index in range(load.requests):
                size = draw.randint(load.prompt // 2, load.prompt * 3 // 2)
                prompt = [draw.randrange(3, engine.decoder.vocabulary) for _ in range(size)]
                requests.append((prompt, Sampling(max_tokens=load.tokens, seed=index)))
            for at_once in (number % 2 == 0, number % 2 == 1):
                engine._prefixes.clear()
                batches = [requests] if at_once else [[one] for one in requests[: load.single]]
                rates[at_once].append(asyncio.run(_rate(engine, batches)))
    finally:
        engine.close()
    ratios = [batch / single for batch, single in zip(rates[True], rates[False], strict=True)]
    return {
        "batch_per_s": statistics.median(rates[True]),
        "single_per_s": statistics.median(rates[False]),
        "ratio": statistics.median(ratios),
        "requests": load.requests,
    }


async def _rate(engine: EmbeddedEngine, batches: Sequence[Sequence[tuple[list[int], Sampling]]]) -> float:
    """Return the sampled tokens per second of batches, one after the other."""
    began, tokens = time.perf_counter(), 0
    for batch in batches:
        found = await asyncio.gather(*(asyncio.wrap_future(engine.submit(*request)) for request in batch))
        tokens += sum(len(reply.ids) for replies in found for reply in replies)
    return tokens / (time.perf_counter() - began)


def vllm(settings: Settings) -> Sequence[Part]:
    load = TINY if settings.tiny else LOAD
    names = ["tiny"] if settings.tiny else ["135m", "1b", "4b"]
    return [Part(name, partial(_vllm, settings.work / "vllm", name, load)) for name in names]


def _vllm(folder: Path, name: str, load: Load) -> Figures:
    if find_vllm() is None:
        raise Skipped("vllm is not installed")
    model = folder / name
    model.mkdir(parents=True, exist_ok=True)
    config: Any = config_of(SIZES[name])
    config.architectures, config.dtype = ["LlamaForCausalLM"], "bfloat16"
    config.save_pretrained(model)
    build_tokenizer(TEMPLATES["chatml"]).save_pretrained(model)
    local = LocalServing(engine="vllm", options=("--load-format", "dummy"), logs=str(folder / f"{name}-"))
    local.plan([(str(model), ())])
    return asyncio.run(_served(str(model), local, load)) | {"version": local.record.get("agent_vllm_version")}


async def _served(model: str, local: LocalServing, load: Load) -> Figures:
    async with open_client(model, concurrency=load.requests, local=local) as client:
        await _chats(client, load, 2)  # the first requests compile
        batch, prompt = await _chats(client, load, load.requests)
        single = [await _chats(client, load, 1) for _ in range(load.single)]
    return {
        "batch_per_s": batch,
        "single_per_s": sum(rate for rate, _ in single) / len(single),
        "ratio": batch * len(single) / sum(rate for rate, _ in single),
        "requests": load.requests,
        "prompt_tokens": prompt,
        "start_s": local.record.get("agent_vllm_seconds"),
    }


async def _chats(client: ChatClient, load: Load, count: int) -> tuple[float, float]:
    """Send requests at once. Return the sampled tokens per second, and the mean tokens of a prompt."""
    began = time.perf_counter()
    found = await asyncio.gather(
        *(
            client.chat(
                [Message(role="user", content=f"{number} " + "assistant " * load.prompt)],
                Sampling(max_tokens=load.tokens, seed=number),
            )
            for number in range(count)
        )
    )
    seconds = time.perf_counter() - began
    return sum(one.completion_tokens for one in found) / seconds, sum(one.prompt_tokens for one in found) / count
