"""The objectives on numbers computed by hand, and each difference of the published code."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sweet.learn.logprobs import Scorer, span_logprobs
from sweet.learn.objectives import (
    dialogue_scores,
    nll,
    outcome_loss,
    preference_loss,
    side_scores,
    turn_advantages,
)
from sweet.learn.sequences import WHOLE
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Reply
from sweet.tasks.base import Message
from tests.learn.builders import build_model

POLICY = torch.tensor([-4.0, -30.0, -3.0])
REFERENCE = torch.tensor([-6.0, -20.0, -4.0])
COUNTS = torch.tensor([2, 20, 4])
OWNER = torch.tensor([0, 0, 1])


def test_advantages_are_mean_log_ratios() -> None:
    torch.testing.assert_close(turn_advantages(POLICY, REFERENCE, COUNTS), torch.tensor([1.0, -0.5, 0.25]))


def test_the_critic_sums_turn_wise_means() -> None:
    scores = side_scores(POLICY, REFERENCE, COUNTS, OWNER, 2)
    torch.testing.assert_close(scores, torch.tensor([0.5, 0.25]))
    loss = preference_loss(scores[:1], scores[1:], beta=0.1)
    assert float(loss) == pytest.approx(math.log(1 + math.exp(-0.1 * 0.25)))


def test_upstream_divides_by_all_tokens_and_flips_the_preference() -> None:
    paper = side_scores(POLICY, REFERENCE, COUNTS, OWNER, 2, "turn")
    upstream = side_scores(POLICY, REFERENCE, COUNTS, OWNER, 2, "trajectory")
    torch.testing.assert_close(upstream, torch.tensor([-8.0 / 22, 0.25]))
    assert paper[0] > paper[1]
    assert upstream[0] < upstream[1]


def test_dpo_uses_plain_sums() -> None:
    torch.testing.assert_close(side_scores(POLICY, REFERENCE, COUNTS, OWNER, 2, "none"), torch.tensor([-8.0, 1.0]))


def test_nll_is_a_mean_over_tokens_and_zero_without_spans() -> None:
    torch.testing.assert_close(nll(POLICY, COUNTS, OWNER, 3), torch.tensor([34 / 22, 0.75, 0.0]))


def test_a_summed_nll_weighs_all_tokens_alike() -> None:
    torch.testing.assert_close(nll(POLICY, COUNTS, OWNER, 3, summed=True), torch.tensor([34.0, 3.0, 0.0]))


def test_upstream_nll_averages_over_system_and_user_tokens_too(tokenizer: Any) -> None:
    encoder, scorer = ChatEncoder(tokenizer), Scorer(build_model(len(tokenizer)))
    said = [Message(role="system", content="You help."), Message(role="user", content="rate?")]
    row = encoder.turn(said, [Reply("It is 5.")], turn=1, name="x")[0][0].with_whole()
    ((sums, counts),) = span_logprobs(scorer, [row])
    turns = torch.tensor([span.turn for span in row.spans])
    whole = turns == WHOLE
    owner = torch.zeros(1, dtype=torch.long)
    paper = nll(sums[~whole], counts[~whole], owner, 1)
    upstream = nll(sums[whole], counts[whole], owner, 1)
    ids = torch.tensor([row.ids])
    with torch.no_grad():
        own = scorer.model(input_ids=ids, labels=ids).loss
    torch.testing.assert_close(upstream[0], own, rtol=1e-4, atol=1e-4)
    assert abs(float(paper - upstream)) > 1e-3


@given(
    st.lists(st.tuples(st.floats(-50, 0), st.floats(-50, 0), st.integers(1, 30)), min_size=1, max_size=8),
    st.floats(-5, 5),
)
def test_the_loss_decreases_with_the_margin_and_is_log_2_at_zero(
    rows: list[tuple[float, float, int]], other: float
) -> None:
    policy, reference, counts = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    score = side_scores(policy, reference, counts, torch.zeros(len(rows), dtype=torch.long), 1)
    torch.testing.assert_close(score[0], turn_advantages(policy, reference, counts).sum())
    rejected = torch.tensor([other], dtype=torch.float64)
    loss, more = preference_loss(score, rejected, 0.1), preference_loss(score + 1, rejected, 0.1)
    assert float(more) < float(loss)
    assert float(preference_loss(score, score, 0.1)) == pytest.approx(math.log(2))


def test_label_smoothing_mixes_both_orders_of_a_pair() -> None:
    chosen, rejected = torch.tensor([3.0, -1.0]), torch.tensor([1.0, 1.0])
    right, wrong = preference_loss(chosen, rejected, 0.5), preference_loss(rejected, chosen, 0.5)
    torch.testing.assert_close(preference_loss(chosen, rejected, 0.5, 0.2), 0.8 * right + 0.2 * wrong)
    certain = torch.tensor([40.0], requires_grad=True)
    preference_loss(certain, torch.zeros(1), 1.0, 0.2).backward()  # type: ignore[no-untyped-call]
    assert certain.grad is not None
    assert float(certain.grad) == pytest.approx(0.2), "a pair that is too certain is pushed back"


SCORES = torch.tensor([1.0, -0.5, 2.0])


def test_dialogue_scores_are_sums_for_preferences_and_the_last_turn_for_outcomes() -> None:
    torch.testing.assert_close(dialogue_scores(SCORES, OWNER, 3, "preference"), torch.tensor([0.5, 2.0, 0.0]))
    for target in ("binary", "real"):
        torch.testing.assert_close(dialogue_scores(SCORES, OWNER, 3, target), torch.tensor([-0.5, 2.0, 0.0]))


def test_the_outcome_loss_is_an_average_over_turns() -> None:
    goals = torch.tensor([1.0, 0.0, 1.0])
    odds = [math.log(1 + math.exp(-1.0)), math.log(1 + math.exp(0.5)), math.log(1 + math.exp(2.0))]
    expected = torch.tensor([(odds[0] + odds[1]) / 2, odds[2], 0.0])
    torch.testing.assert_close(outcome_loss(SCORES, goals, OWNER, 3, "binary"), expected)
    squares = torch.tensor([(0.0 + 2.25) / 2, 4.0, 0.0])
    torch.testing.assert_close(outcome_loss(SCORES, goals, OWNER, 3, "real"), squares)
