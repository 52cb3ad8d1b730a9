"""`sweet train-online --local-engine tinker`, and agents at the service: a small service of the tests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sweet.errors import SweetError, UsageError
from sweet.llm.base import Sampling
from sweet.llm.connect import open_client
from sweet.llm.local import LocalServing
from sweet.llm.tinker import STATE
from sweet.online.config import TrainOnlineConfig
from sweet.online.prepare import prepare
from sweet.online.stage import run_train_online
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message
from sweet.tasks.packaged import PACKAGED
from tests.tinker_server import TinkerService, chosen_service

pytest.importorskip("tinker", reason="the client of the Tinker interface is not installed")

MICRO = str(PACKAGED["micro"])
OPTIONS: dict[str, Any] = {
    "algorithm": "grpo",
    "task": "code",
    "steps": 2,
    "tasks_per_step": 1,
    "group": 4,
    "tasks": "micro",
    "max_tokens": 64,
    "seed": 8,
    "save_every": 1,
    "agent": MICRO,
    "local_engine": "tinker",
    "lora": 4,
    "lr": 5e-3,
    "resume": True,
}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with chosen_service(Path(MICRO), tmp_path / "service", monkeypatch) as service:
        yield service


def replied(model: str, engine: Any, messages: list[Message], **sampling: Any) -> Any:
    async def ask() -> Any:
        async with open_client(model, local=LocalServing(engine=engine, device="cpu"), device="cpu") as client:
            return (await client.chat(messages, Sampling(max_tokens=48, **sampling))).replies

    return asyncio.run(ask())


def test_an_online_training_goes_on_after_the_service_was_away(service: TinkerService, tmp_path: Path) -> None:
    config = TrainOnlineConfig.model_validate(OPTIONS)
    whole, stopped = (Run.create(tmp_path / name, "code") for name in ("whole", "stopped"))
    metrics = run_train_online(whole, config, Silent()).metrics
    assert (metrics.steps, metrics.episodes) == (2, 8)
    assert whole.manifest().attempts[-1].digest == config.digest(), "a recipe finds the step that it asked for"
    rows = [
        json.loads(line) for line in next((whole.path / "logs").glob("train-online-1.jsonl")).read_text().splitlines()
    ]
    first = next(row for row in rows if row.get("step") == 1)
    assert first["ratio"] == pytest.approx(1, abs=1e-4), "the service samples with the weights that it trains"
    assert metrics.kl_start is not None
    assert metrics.kl_start > 1e-4

    def away(answer: Any) -> Any:
        if service.calls["steps"] == 1:
            raise ValueError("the service is away")
        return answer

    service.calls["steps"], service.spoil = 0, away
    with pytest.raises(SweetError, match="the service is away"):
        run_train_online(stopped, config, Silent())
    service.spoil = None
    run_train_online(stopped, config, Silent())
    actors = [run.path / "actor" / "actor-1" for run in (whole, stopped)]
    ours, theirs = (load_file(folder / "adapter_model.safetensors") for folder in actors)
    assert all(torch.equal(weights, theirs[name]) for name, weights in ours.items())
    assert (actors[0] / STATE).exists()

    messages = [Message(role="user", content="I need the price of parking in my garage. The rate is 5.")]
    [there], [here] = [replied(str(actors[0]), engine, messages, temperature=0) for engine in ("tinker", "embedded")]
    assert there.token_ids == here.token_ids
    assert there.logprobs == pytest.approx(here.logprobs, abs=1e-4)


def test_an_agent_at_the_service_samples_as_one_here(service: TinkerService) -> None:
    messages = [Message(role="user", content="I need the price of parking in my garage. The rate is 5.")]
    first = replied(MICRO, "tinker", messages, n=3, seed=4)
    assert len({reply.token_ids for reply in first}) > 1
    assert first == replied(MICRO, "tinker", messages, n=3, seed=4)
    [there], [here] = [replied(MICRO, engine, messages, temperature=0) for engine in ("tinker", "embedded")]
    assert (there.text, there.token_ids, there.finish_reason) == (here.text, here.token_ids, "stop")
    assert there.logprobs == pytest.approx(here.logprobs, abs=1e-4)

    def without_end(answer: Any) -> Any:
        for sequence in getattr(answer, "sequences", ()):
            sequence.tokens, sequence.logprobs = sequence.tokens[:-4], sequence.logprobs[:-4]
        return answer

    service.spoil = without_end
    with pytest.raises(SweetError, match="or the id that ends it"):
        replied(MICRO, "tinker", messages)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"algorithm": "istar"}, "keeps a second model"),
        ({"deterministic": True}, "The model is at the service"),
        ({"agent_url": ["http://127.0.0.1:1/v1"]}, "The model is at the service"),
    ],
)
def test_what_a_service_cannot_do_is_refused(tmp_path: Path, options: dict[str, Any], match: str) -> None:
    run = Run.create(tmp_path / "run", "code")
    with pytest.raises(UsageError, match=match):
        prepare(run, TrainOnlineConfig.model_validate(OPTIONS | options), Silent(), weights=False)
