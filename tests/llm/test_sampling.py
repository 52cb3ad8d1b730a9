"""Sampling from logits: greedy, temperature, nucleus, extreme random numbers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sweet.llm.decoder import sample, top_logprobs

LOGITS = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=40)


@given(
    logits=LOGITS,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    top_p=st.sampled_from([1e-9, 0.1, 0.5, 1.0]),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_samples_are_in_the_nucleus_with_logprobs_at_temperature_1(
    logits: list[float], temperature: float, top_p: float, uniform: float
) -> None:
    row = torch.tensor([logits])
    (token,), (logprob,) = sample(row, [temperature], [top_p], [uniform])
    plain = row.log_softmax(-1)[0]
    assert math.isclose(logprob, float(plain[token]), abs_tol=1e-5)
    if temperature == 0:
        assert logits[token] == max(logits)
        return
    chances = (row[0] / temperature).softmax(-1)
    above = float(chances[chances > chances[token]].sum())
    assert above < top_p + 1e-5
    assert float(chances[token]) > 0


def test_the_first_and_last_random_number() -> None:
    row = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]])
    assert sample(row, [1.0], [1.0], [0.0])[0] == [1]
    assert sample(row, [1.0], [1.0], [1.0 - 2.0**-53])[0] == [3]


def test_rows_do_not_mix() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    temperatures, top_ps, uniforms = [0.0, 1.0, 0.5, 2.0, 1.0, 0.0], [1.0, 1.0, 0.9, 0.5, 0.2, 0.1], [0.3] * 6
    ids, logprobs = sample(logits, temperatures, top_ps, uniforms)
    for i in range(6):
        alone, found = sample(logits[i : i + 1], temperatures[i : i + 1], top_ps[i : i + 1], uniforms[i : i + 1])
        assert alone == [ids[i]]
        assert math.isclose(found[0], logprobs[i], abs_tol=1e-6)


def test_a_large_vocabulary_is_sampled_to_its_end() -> None:
    size = 150_000
    ids, _ = sample(torch.zeros(1, size), [1.0], [1.0], [0.999_999])
    assert abs(ids[0] - 0.999_999 * size) < 50


def test_nan_logits_give_nan_logprobs() -> None:
    for temperature in (0.0, 1.0):
        _, (logprob,) = sample(torch.tensor([[0.0, math.nan]]), [temperature], [1.0], [0.5])
        assert math.isnan(logprob)


def test_top_logprobs_are_sorted() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    expected = logits.log_softmax(-1)
    first, second = top_logprobs(logits, 2)
    assert [token for token, _ in first] == [1, 2]
    assert [logprob for _, logprob in first] == pytest.approx([float(expected[0, 1]), float(expected[0, 2])])
    assert second[0][0] == 0
    assert second[0][1] == pytest.approx(float(expected[1, 0]))
    assert [len(found) for found in top_logprobs(logits, 9)] == [3, 3]
