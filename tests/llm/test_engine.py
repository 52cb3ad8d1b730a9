"""The embedded engine gives the same results as plain forward passes of single sequences, whatever shares its batch."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.llm.base import ContextOverflow, RequestFailed, Sampling
from sweet.llm.engine import EmbeddedEngine, Generated, Limits
from tests.llm.models import CONTEXT, END, VOCABULARY, tiny

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "gpt2": {},
    "mistral": {"sliding_window": 12},
    "gemma3_text": {"sliding_window": 12},
}


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def model(request: pytest.FixtureRequest) -> Any:
    return tiny(request.param, **FAMILIES[request.param])


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny("llama")


@pytest.fixture(scope="module")
def engine(llama: Any) -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine(llama, [END], name="tiny")
    yield engine
    engine.close()


def bytes_of_tokens(model: Any, tokens: int) -> int:
    """The keys and values of so many tokens."""
    engine = EmbeddedEngine(model, [])
    each = engine.decoder.cache.bytes_per_token
    engine.close()
    return tokens * each


def plain_logprobs(model: Any, prompt: Sequence[int], reply: Sequence[int]) -> torch.Tensor:
    """Log-probabilities [len(reply), vocabulary] at the reply's positions, from one forward pass without a cache."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prompt, *reply]]), use_cache=False).logits[0].float()
    return torch.as_tensor(logits[len(prompt) - 1 : -1].log_softmax(-1))


def check(model: Any, prompt: Sequence[int], made: Generated, sampling: Sampling) -> None:
    truth = plain_logprobs(model, prompt, made.ids)
    gpus = truth[torch.arange(len(made.ids)), list(made.ids)]
    assert torch.allclose(torch.tensor(made.logprobs), gpus, atol=2e-4)
    if sampling.temperature == 0:
        assert bool((truth.max(-1).values - gpus <= 1e-4).all())
    assert END not in made.ids[:-1]
    assert made.finish_reason == ("stop" if made.ids[-1] == END else "length")
    assert len(made.ids) <= min(sampling.max_tokens, CONTEXT - len(prompt))
    if made.finish_reason == "length":
        assert len(made.ids) == min(sampling.max_tokens, CONTEXT - len(prompt))


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[list[int], Sampling, float]]:
    """Prompts, some with a common prefix, each with its sampling and a pause before it."""
    prefix_hash = draw(st.lists(st.integers(3, VOCABULARY - 1), min_size=0, max_size=40))
    made = []
    for number in range(draw(st.integers(1, 8))):
        tail = draw(st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=40))
        prompt = ([*prefix_hash, *tail] if draw(st.booleans()) else tail)[: CONTEXT - 1]
        sampling = Sampling(
            temperature=draw(st.sampled_from([0.0, 0.7, 1.0, 1.5])),
            top_p=draw(st.sampled_from([1.0, 0.8])),
            max_tokens=draw(st.integers(1, 30)),
            n=draw(st.sampled_from([1, 1, 1, 3])),
            seed=number,
        )
        made.append((prompt, sampling, draw(st.sampled_from([0.0, 0.0, 0.003]))))
    return made


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=requests(), rows=st.sampled_from([2, 5, 128]), room=st.sampled_from([150, 10**6]), prefixes=st.booleans())
def test_any_batch_equals_single_sequences(model: Any, case: Any, rows: int, room: int, prefixes: bool) -> None:
    prefix_bytes, cache_bytes = 1 << 24 if prefixes else 0, bytes_of_tokens(model, room)
    limits = Limits(rows=rows, cache_bytes=cache_bytes, prefix_bytes=prefix_bytes, prefill_tokens=100)
    engine = EmbeddedEngine(model, [END], limits=limits)
    try:
        futures = []
        for prompt, sampling, pause in case:
            time.sleep(pause)
            futures.append(engine.submit(prompt, sampling))
        answers = [future.result(60) for future in futures]
    finally:
        engine.close()
    for (prompt, sampling, _), replies in zip(case, answers, strict=True):
        assert len(replies) == sampling.n
        for reply in replies:
            check(model, prompt, reply, sampling)


def test_a_seed_gives_the_same_reply_alone_and_in_a_batch(engine: EmbeddedEngine) -> None:
    prompt, sampling = [5, 6, 7], Sampling(max_tokens=20, n=4, seed=11)
    alone = engine.submit(prompt, sampling).result(60)
    others = [engine.submit([9] * size, Sampling(max_tokens=30)) for size in range(1, 40)]
    company = engine.submit(prompt, sampling).result(60)
    assert [r.ids for r in company] == [r.ids for r in alone]
    assert len({r.ids for r in alone}) > 1, "the replies of one request are independent"
    assert engine.submit(prompt, Sampling(max_tokens=20, n=2, seed=11)).result(60)[1].ids == alone[1].ids
    assert engine.submit(prompt, Sampling(max_tokens=20, seed=12)).result(60)[0].ids != alone[0].ids
    for other in others:
        other.result(60)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.3, 0.6)])
def test_samples_follow_the_model_s_distribution(
    engine: EmbeddedEngine, llama: Any, temperature: float, top_p: float
) -> None:
    prompt, draws = [5, 6, 7], 4000
    sampling = Sampling(temperature=temperature, top_p=top_p, max_tokens=1, n=draws, seed=3)
    seen = Counter(reply.ids[0] for reply in engine.submit(prompt, sampling).result(120))
    expected = (plain_logprobs(llama, prompt, [0])[0] / temperature).softmax(-1)
    order = expected.argsort(descending=True)
    before = expected[order].cumsum(-1) - expected[order]
    kept = order[before < top_p]
    assert set(seen) <= set(kept.tolist())
    share = expected[kept] / expected[kept].sum()
    # Cells with few expected samples are merged, as the chi-squared test requires.
    large = share * draws >= 5
    observed = torch.tensor([float(seen[int(i)]) for i in kept])
    cells = torch.cat([observed[large], observed[~large].sum()[None]])
    means = torch.cat([share[large], share[~large].sum()[None]]) * draws
    cells, means = cells[means > 0], means[means > 0]
    statistic = float(((cells - means) ** 2 / means).sum())
    freedom = len(cells) - 1
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_the_context_limits_prompt_and_reply(engine: EmbeddedEngine, llama: Any) -> None:
    prompt = [4] * (CONTEXT - 3)
    reply = engine.submit(prompt, Sampling(max_tokens=50, seed=0)).result(60)[0]
    check(llama, prompt, reply, Sampling(max_tokens=50))
    for size in (CONTEXT, CONTEXT + 10):
        with pytest.raises(ContextOverflow, match=str(size)):
            engine.submit([4] * size, Sampling())


@pytest.mark.parametrize("prompt", [[], [VOCABULARY], [-1]])
def test_invalid_prompts(engine: EmbeddedEngine, prompt: list[int]) -> None:
    with pytest.raises(RequestFailed):
        engine.submit(prompt, Sampling())
    with pytest.raises(RequestFailed):
        engine.submit([5], Sampling(n=0))


def test_cancelled_requests_are_removed(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EmbeddedEngine(llama, [], limits=Limits(rows=2))
    extend, cancelled = engine.decoder.extend, threading.Event()

    def waiting(first: int, tokens: Sequence[list[int]], held: Sequence[int]) -> torch.Tensor:
        cancelled.wait(60)  # else a busy machine could finish requests before they are cancelled
        return extend(first, tokens, held)

    monkeypatch.setattr(engine.decoder, "extend", waiting)
    try:
        futures = [engine.submit([5], Sampling(max_tokens=90, seed=i)) for i in range(40)]
        for future in futures[:-1]:
            future.cancel()
        cancelled.set()
        assert len(futures[-1].result(60)[0].ids) == 90
        assert futures[0].cancelled()
    finally:
        engine.close()


def test_a_failure_affects_only_its_batch(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EmbeddedEngine(llama, [END])
    extend = engine.decoder.extend

    def fragile(first: int, tokens: Sequence[list[int]], held: Sequence[int]) -> torch.Tensor:
        if any(13 in row for row in tokens):
            raise ValueError("unlucky")
        logits = extend(first, tokens, held)
        return torch.where(torch.tensor([[17 in row] for row in tokens]), torch.nan, logits)

    monkeypatch.setattr(engine.decoder, "extend", fragile)
    with pytest.raises(RequestFailed, match="unlucky"):
        engine.submit([13], Sampling(max_tokens=3)).result(60)
    with pytest.raises(RequestFailed, match="not finite"):
        engine.submit([17], Sampling(max_tokens=3)).result(60)
    assert engine.submit([5], Sampling(max_tokens=3, seed=0)).result(60)  # a reply without 13 and 17
    engine.close()
    with pytest.raises(RequestFailed, match="closed"):
        engine.submit([5], Sampling())


def test_a_dead_worker_fails_all_requests_with_the_cause(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EmbeddedEngine(llama, [END])

    def die(*_: Any) -> None:
        raise SystemExit("the end")

    monkeypatch.setattr(engine.decoder, "extend", die)
    future: Future[Any] = engine.submit([5], Sampling())
    with pytest.raises(RequestFailed, match="the end"):
        future.result(60)
    with pytest.raises(RequestFailed, match="the end"):
        engine.submit([5], Sampling())
    engine.close()


def test_closing_fails_pending_requests(llama: Any) -> None:
    engine = EmbeddedEngine(llama, [], limits=Limits(rows=1))
    futures = [engine.submit([5], Sampling(max_tokens=90)) for _ in range(20)]
    engine.close()
    assert all(future.done() for future in futures)
    with pytest.raises(RequestFailed, match="closed"):
        futures[-1].result(0)


def test_the_cache_limits_the_batch(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EmbeddedEngine(llama, [], limits=Limits(cache_bytes=bytes_of_tokens(llama, 100)))
    extend, seen = engine.decoder.extend, []

    def watched(first: int, tokens: Sequence[list[int]], held: Sequence[int]) -> torch.Tensor:
        seen.append(first + len(tokens))
        return extend(first, tokens, held)

    monkeypatch.setattr(engine.decoder, "extend", watched)
    futures = [engine.submit([5, 6, 7], Sampling(max_tokens=17, seed=i)) for i in range(12)]
    long = engine.submit([5] * 60, Sampling(max_tokens=30, seed=1))
    assert all(len(future.result(60)[0].ids) == 17 for future in futures)
    assert len(long.result(60)[0].ids) == 30, "a request that exceeds the limit by itself still runs, alone"
    assert max(seen) == 5
    engine.close()


def test_the_cache_stays_within_its_limit_when_prompts_grow(llama: Any) -> None:
    engine = EmbeddedEngine(llama, [END], limits=Limits(cache_bytes=bytes_of_tokens(llama, 200), prefix_bytes=0))
    cache, most = engine.decoder.cache, []
    for size in (2, 20, 50, 80, 2):  # up to 16 rows, at last 2, as prompts of dialogues grow with their turns
        prompts = [[(3 * n + i) % VOCABULARY for n in range(size)] for i in range(16)]
        sampling = Sampling(max_tokens=10, temperature=0.0)
        replies = [future.result(60) for future in [engine.submit(prompt, sampling) for prompt in prompts]]
        for prompt, [reply] in zip(prompts, replies, strict=True):
            check(llama, prompt, reply, sampling)
        most.append(max(layer.keys.shape[0] * layer.keys.shape[2] for layer in cache.slots))
    assert max(most) <= 200, "not many rows of an early turn times the columns of a late one"
    engine.close()


def test_a_model_that_derives_positions_from_padding_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot run the model"):
        EmbeddedEngine(tiny("bloom"), [END])


def test_a_model_without_keys_and_values_is_refused() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    config: Any = MambaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, state_size=4)
    make: Any = MambaForCausalLM
    with pytest.raises(UsageError, match="cannot run the model") as error:
        EmbeddedEngine(make(config).eval(), [END])
    assert "vllm" in (error.value.fix or "")
