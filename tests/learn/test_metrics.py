"""Metrics count what was computed: advantages by turn, shared prefixes, padding, utilisation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sweet
from sweet.learn.components import Example, Objective
from sweet.learn.logprobs import Scorer
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.losses import losses
from sweet.learn.metrics import MetricSums, MicroBatchSums, Record, max_turns, rounded, speeds, turn_positions
from sweet.learn.objectives import turn_advantages
from sweet.learn.sequences import Span, TokenSequence
from sweet.learn.tree import Work, build_tree, computed_work
from tests.learn.builders import build_model
from tests.learn.test_loop import make_data

BETA = 0.1
OURS = str(Path(sweet.__file__).parent)
CRITIC = Objective(BETA, 0.0)

rows = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=6)


def train(tokenizer: Any, on_reference: Callable[[], None] = lambda: None, **changes: Any) -> tuple[list[Record], Loop]:
    pool, examples = make_data(tokenizer, 6)
    records: list[Record] = []
    settings = LoopSettings(**({"lr": 3e-3, "epochs": 2, "batch": 3} | changes))
    model = build_model(len(tokenizer))
    loop = Loop(model, pool.sequences, examples, CRITIC, settings, on_step=records.append, on_reference=on_reference)
    loop.run()
    return records, loop


def test_advantages_by_turn_are_those_of_equation_3(tokenizer: Any) -> None:
    pool, examples = make_data(tokenizer, 4)
    policy, base = Scorer(build_model(len(tokenizer))), Scorer(build_model(len(tokenizer), seed=1))
    with torch.no_grad():
        reference = [base([sequence]).sums for sequence in pool.sequences]
        found = losses(policy, CRITIC, pool.sequences, examples, reference)
        sums = MicroBatchSums(max_turns(pool.sequences), policy.device)
        sums.add(pool.sequences, examples, found, Work(1))
        own, _ = sums.fetch()
        means = own.over_ranks(4, list).means(preference=True)
        for side, name in (("chosen", "advantage_chosen"), ("rejected", "advantage_rejected")):
            by_turn: dict[int, list[float]] = {}
            for example in examples:
                for index in getattr(example, side):
                    scored = policy([pool.sequences[index]])
                    advantages = turn_advantages(scored.sums, reference[index], scored.counts).tolist()
                    for span, advantage in zip(pool.sequences[index].spans, advantages, strict=True):
                        by_turn.setdefault(span.turn // 2, []).append(advantage)
            expected = [sum(by_turn[turn]) / len(by_turn[turn]) for turn in range(3)]
            assert means[name] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_margins_are_the_advantages_of_all_turns(tokenizer: Any) -> None:
    records, loop = train(tokenizer, batch=6)
    _, counts = turn_positions(loop.pool, loop.examples, 3)
    for record in records:
        signed = [*record["advantage_chosen"], *(-a for a in record["advantage_rejected"])]
        total = sum(advantage * count for advantage, count in zip(signed, counts, strict=True))
        assert record["margin"] == pytest.approx(BETA * total / 6, rel=1e-3, abs=1e-5)
    assert records[0]["advantage_chosen"] == pytest.approx([0, 0, 0], abs=1e-5)


def test_a_turn_that_no_side_has_has_no_advantage() -> None:
    pool = [TokenSequence((1, 2, 3), (Span(1, 3, 5),)), TokenSequence((1, 2), (Span(1, 2, 1),))]
    places, counts = turn_positions(pool, [Example("a", (0,), (1,))], max_turns(pool))
    assert (places, counts) == ([2, 3], [0, 0, 1, 1, 0, 0])
    means = MetricSums(1, advantages=[0, 0, 0.5, 0.25, 0, 0], turns=[*counts]).means(preference=True)
    assert (means["advantage_chosen"], means["advantage_rejected"]) == ([None, None, 0.5], [0.25, None, None])


def test_sharing_and_padding_are_reported(tokenizer: Any) -> None:
    shared, loop = train(tokenizer)
    plain, _ = train(tokenizer, share=False)
    for row in shared:
        assert row["sharing"] > 1.2
        assert row["padding"] == 0
        assert row["tokens_computed"] == pytest.approx(row["tokens"] / row["sharing"], rel=1e-4)
    for row in plain:
        assert row["sharing"] == 1
        assert 0 < row["padding"] < 1
        assert row["tokens_computed"] == row["tokens"]
    assert loop.scorer.work.tokens > sum(row["tokens_computed"] for row in shared)  # the reference pass too


def test_the_device_is_synchronised_once_per_step(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    for name in ("__float__", "item", "tolist", "__bool__"):
        inner = getattr(torch.Tensor, name)

        def counted(self: torch.Tensor, _name: str = name, _inner: Any = inner) -> Any:
            if sys._getframe(1).f_code.co_filename.startswith(OURS):  # the model's library waits on its own account
                waits.append(_name)
            return _inner(self)

        monkeypatch.setattr(torch.Tensor, name, counted)
    calls = []
    for budget in (10**6, 1):
        records, _ = train(tokenizer, waits.clear, token_budget=budget, epochs=1, batch=6)
        assert len(records) == 1
        calls.append(len(waits))
    assert calls == [3, 3]  # the order of the epoch, the figures, the norm


def test_utilisation_counts_both_ways() -> None:
    metrics = speeds(tokens=3000, work=Work(1000, 250), seconds=2, flops=60, peak=1e6)
    assert metrics["mfu"] == pytest.approx(60 * 1500 / 1e6)
    assert metrics["mfu_computed"] == pytest.approx(60 * 500 / 1e6)
    assert (metrics["sharing"], metrics["padding"]) == (3, 0.2)
    nothing = speeds(0, Work(), 0.0, 10, 1e6)
    assert {name for name, value in nothing.items() if value is not None} == {"tokens", "tokens_computed"}


@given(rows, st.sampled_from([0, 3, 100]))
def test_a_tree_is_never_more_work_than_rows(sequences: list[list[int]], max_shared_length: int) -> None:
    lengths = [len(row) for row in sequences]
    work = computed_work(lengths, len(build_tree(sequences).ids), max_shared_length)
    assert work.tokens <= sum(lengths)
    assert work.positions <= len(lengths) * max(lengths)
    if not max_shared_length:
        assert work == Work(sum(lengths), len(lengths) * max(lengths) - sum(lengths))


@given(st.lists(st.lists(st.floats(-9, 9), min_size=4, max_size=4), min_size=1, max_size=5))
def test_sums_of_steps_add_up(steps: list[list[float]]) -> None:
    total = MetricSums()
    for figures in steps:
        *measured, advantage = figures
        names = ("loss", "right", "margin", "tokens_computed", "padding")
        step = MetricSums(0, MetricSums().sums | dict(zip(names, [*measured, 5, 1], strict=True)))
        step.advantages, step.turns = [advantage] * 2, [1, 0]
        total.add(step.over_ranks(2, list))
    assert (total.examples, total.work) == (2 * len(steps), Work(5 * len(steps), len(steps)))
    assert total["loss"] == pytest.approx(sum(figures[0] for figures in steps))
    assert total.means(preference=True)["advantage_rejected"] == [None]


def test_metrics_are_rounded_in_lists_too() -> None:
    assert rounded({"a": 1.23456789, "b": [0.123456789, None, 3]}) == {"a": 1.23457, "b": [0.123457, None, 3]}
