"""New weights reach a model that is sampling: no request is lost, no reply mixes two policies."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.llm.base import RequestFailed, Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.engine import EmbeddedEngine, Generated, Limits
from sweet.tasks.base import Message
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer
from tests.llm.models import END, tiny
from tests.llm.test_engine import plain_logprobs

PROMPT = [5 + i % 40 for i in range(50)]


def other_weights(model: Any, seed: int = 1) -> Any:
    """A model of the same shape with other weights."""
    changed = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return changed


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@pytest.fixture
def model() -> Any:
    return tiny("llama")


@pytest.fixture
def engine(model: Any) -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine(model, [END], name="tiny", limits=Limits(rows=4))
    yield engine
    engine.close()


def check_sampled_by(model: Any, prompt: Sequence[int], reply: Generated) -> None:
    truth = plain_logprobs(model, prompt, reply.ids)
    found = truth[torch.arange(len(reply.ids)), list(reply.ids)]
    assert torch.allclose(torch.tensor(reply.logprobs), found, atol=2e-4)


@pytest.mark.quick
def test_after_an_update_the_engine_equals_a_new_one(engine: EmbeddedEngine, model: Any) -> None:
    sampling = Sampling(max_tokens=20, n=3, seed=7)
    before = engine.submit(PROMPT, sampling).result(60)
    old, new = copy.deepcopy(model), other_weights(model)
    engine.update(weights_of(new), 1).result(60)
    after = engine.submit(PROMPT, sampling).result(60)  # its prompt was in the cache of prefixes
    fresh = EmbeddedEngine(new, [END], name="new")
    try:
        expected = fresh.submit(PROMPT, sampling).result(60)
    finally:
        fresh.close()
    assert [reply.ids for reply in after] == [reply.ids for reply in expected]
    assert [reply.logprobs for reply in after] == [pytest.approx(reply.logprobs, abs=1e-5) for reply in expected]
    assert [reply.ids for reply in after] != [reply.ids for reply in before]
    assert {reply.version for reply in before} == {0}
    assert {reply.version for reply in after} == {1} == {engine.version}
    for reply in before:
        check_sampled_by(old, PROMPT, reply)


@pytest.mark.quick
def test_replies_under_way_end_with_the_old_weights_and_none_is_lost(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EmbeddedEngine(model, [], limits=Limits(rows=3))
    extend, sampling, go_on = engine.decoder.extend, threading.Event(), threading.Event()

    def held(first: int, tokens: Sequence[list[int]], cached: Sequence[int]) -> torch.Tensor:
        if any(cached):  # replies are under way
            sampling.set()
            go_on.wait(60)
        return extend(first, tokens, cached)

    monkeypatch.setattr(engine.decoder, "extend", held)
    policies = [copy.deepcopy(model), other_weights(model, 1), other_weights(model, 2)]
    try:
        # Of five replies of one request three begin before the update; all of them belong to one policy.
        first = engine.submit(PROMPT, Sampling(max_tokens=12, n=5, seed=1))
        assert sampling.wait(60)
        updated = engine.update(weights_of(policies[1]), 1)
        waiting = [engine.submit(PROMPT, Sampling(max_tokens=12, seed=seed)) for seed in range(5)]
        assert not updated.done()
        go_on.set()
        updated.result(60)
        engine.update(weights_of(policies[2]), 2).result(60)
        last = engine.submit(PROMPT, Sampling(max_tokens=12, seed=9))
        replies = [*first.result(60), *(future.result(60)[0] for future in waiting), *last.result(60)]
    finally:
        engine.close()
    assert [reply.version for reply in replies[:5]] == [0] * 5
    assert all(reply.version >= 1 for reply in replies[5:])
    assert replies[-1].version == 2
    assert [len(reply.ids) for reply in replies] == [12] * 11
    for reply in replies:
        check_sampled_by(policies[reply.version], PROMPT, reply)


def test_weights_of_another_model_are_refused_and_change_nothing(engine: EmbeddedEngine, model: Any) -> None:
    before = {name: value.clone() for name, value in weights_of(model).items()}
    name, value = next(iter(before.items()))
    for wrong in ({"another.weight": value}, {name: value[:1]}):
        with pytest.raises(ValueError, match="another model"):
            engine.update(wrong, 1)
    engine.submit([5, 6], Sampling(max_tokens=2)).result(60)
    assert all(torch.equal(value, before[name]) for name, value in weights_of(model).items())
    assert engine.version == 0


def test_a_part_of_the_weights_can_be_updated(engine: EmbeddedEngine, model: Any) -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    rest = {other: value.clone() for other, value in weights_of(model).items() if other != name}
    value = torch.zeros_like(weights_of(model)[name], dtype=torch.bfloat16)
    engine.update({name: value}, 3).result(60)
    assert not weights_of(model)[name].any()
    assert all(torch.equal(weights_of(model)[other], before) for other, before in rest.items())
    check_sampled_by(model, PROMPT, engine.submit(PROMPT, Sampling(max_tokens=9, seed=2)).result(60)[0])


def test_closing_fails_a_pending_update(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EmbeddedEngine(model, [])
    extend, begun, go_on = engine.decoder.extend, threading.Event(), threading.Event()

    def held(first: int, tokens: Sequence[list[int]], cached: Sequence[int]) -> torch.Tensor:
        begun.set()
        go_on.wait(60)
        return extend(first, tokens, cached)

    monkeypatch.setattr(engine.decoder, "extend", held)
    future = engine.submit(PROMPT, Sampling(max_tokens=40))
    assert begun.wait(60)
    updated = engine.update({}, 1)
    closing = threading.Thread(target=engine.close)
    closing.start()
    while engine.alive:
        begun.wait(0.01)
    go_on.set()
    closing.join(60)
    for pending in (future, updated):
        with pytest.raises(RequestFailed, match="closed"):
            pending.result(60)
    with pytest.raises(RequestFailed, match="closed"):
        engine.update({}, 2)


def test_a_client_says_which_policy_replied(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    tokenizer.save_pretrained(tmp_path)
    model = build_model(len(tokenizer))
    model.save_pretrained(tmp_path)
    ask = [Message(role="user", content="What is the rate?")]

    async def chat() -> list[int | None]:
        client = EmbeddedClient.load(str(tmp_path), device="cpu")
        versions = [(await client.chat(ask, Sampling(max_tokens=4, seed=1))).version]
        await client.update(weights_of(other_weights(model)), 5)
        versions.append((await client.chat(ask, Sampling(max_tokens=4, seed=1))).version)
        await client.aclose()
        return versions

    assert asyncio.run(chat()) == [0, 5]
