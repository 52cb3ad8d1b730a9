"""The token components on numbers computed by hand, and what must not change them: the division of a step, prefix
trees, and the way to the ranks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sweet.learn.components import Counts, Distillation, Example, Objective, PolicyGradient, TokenTerms
from sweet.learn.estimate import ZeroSettings
from sweet.learn.job import Job
from sweet.learn.logprobs import Scorer
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.losses import losses
from sweet.learn.metrics import Record
from sweet.learn.objectives import policy_gradient, sampled_distillation, top_distillation
from sweet.learn.sequences import Pool, Span, TokenSequence
from sweet.learn.trainee import Start
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer
from tests.learn.test_loop import make_data, weights
from tests.learn.weighted import BOTH, logprobs_of, weighted_data

POLICY = PolicyGradient(low=0.2, high=0.28, bound=8.0)


def ratios(*values: float) -> tuple[Tensor, Tensor]:
    """log pi and log mu with these ratios, at different log mu."""
    sampled = torch.tensor([-0.5 * (i + 1) for i in range(len(values))])
    return sampled + torch.tensor(values).log(), sampled


# Formulas ------------------------------------------------------------------------------------------------------------


def test_a_ratio_within_the_range_is_not_clipped() -> None:
    found = policy_gradient(*ratios(1.0, 1.1, 0.9), torch.tensor([2.0, -1.0, 0.5]), POLICY)
    torch.testing.assert_close(found.losses, torch.tensor([-2.0, 1.1, -0.45]))
    assert (int(found.clipped), int(found.masked)) == (0, 0)


def test_clipping_stops_what_goes_further_in_the_wanted_direction_only() -> None:
    # Above the range with a positive advantage, below it with a negative one: clipped. The other two are not.
    found = policy_gradient(*ratios(1.5, 0.5, 1.5, 0.5), torch.tensor([2.0, -2.0, -2.0, 2.0]), POLICY)
    torch.testing.assert_close(found.losses, torch.tensor([-2.56, 1.6, 3.0, -1.0]))
    assert int(found.clipped) == 2


def test_clip_higher_lets_a_rare_token_rise_further() -> None:
    policy, sampled = ratios(1.25)
    policy.requires_grad_()
    for high, expected in ((0.2, -1.2), (0.28, -1.25)):
        found = policy_gradient(policy, sampled, torch.ones(1), PolicyGradient(0.2, high))
        torch.testing.assert_close(found.losses.detach(), torch.tensor([expected]))
        (gradient,) = torch.autograd.grad(found.losses.sum(), policy)
        # d(-r A)/d log pi = -r A where it is not clipped, and 0 where it is.
        torch.testing.assert_close(gradient, torch.tensor([-1.25 if high == 0.28 else 0.0]))


def test_tokens_out_of_bounds_are_left_out_and_counted() -> None:
    policy, sampled = ratios(9.0, 1 / 9, 7.9, 1.0)
    # A program that masks the unlikely ids may write -9999 for one of them: the ratio is infinite.
    policy = torch.cat([policy, torch.tensor([-1.0])]).requires_grad_()
    sampled = torch.cat([sampled, torch.tensor([-9999.0])])
    found = policy_gradient(policy, sampled, -torch.ones(5), POLICY)
    torch.testing.assert_close(found.losses.detach(), torch.tensor([0.0, 0.0, 7.9, 1.0, 0.0]))
    assert int(found.masked) == 3
    (gradient,) = torch.autograd.grad(found.losses.sum(), policy)
    torch.testing.assert_close(gradient, torch.tensor([0.0, 0.0, 7.9, 1.0, 0.0]))


def test_the_sampled_distillation_by_hand() -> None:
    policy, sampled = ratios(1.0, 1.5, 3.0)
    policy.requires_grad_()
    teacher = policy.detach() + torch.tensor([0.25, -0.5, 1.0])
    loss = sampled_distillation(policy, sampled, teacher, Distillation(bound=2.0))
    (gradient,) = torch.autograd.grad(loss.sum(), policy)
    # -ratio * (log teacher - log pi), the ratio at most 2.
    torch.testing.assert_close(gradient, torch.tensor([-0.25, 0.75, -2.0]))


SIZE = 5
"""Of the vocabulary in which expectations are sums."""


def distributions(numbers: list[float]) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of pi with gradients, and log-probabilities of a teacher and of mu."""
    rows = torch.tensor(numbers, dtype=torch.float64).reshape(3, SIZE)
    return rows[0].clone().requires_grad_(), rows[1].log_softmax(0), rows[2].log_softmax(0)


def exact_gradient(logits: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
    policy = logits.log_softmax(0)
    divergence = (policy.exp() * (policy - teacher)).sum()
    (gradient,) = torch.autograd.grad(divergence, logits)
    return divergence.detach(), gradient


NUMBERS = st.lists(st.floats(-1.5, 1.5), min_size=3 * SIZE, max_size=3 * SIZE)


@given(numbers=NUMBERS, stale=st.booleans())
def test_the_expected_gradient_of_sampled_distillation_is_that_of_the_divergence(
    numbers: list[float], *, stale: bool
) -> None:
    """Over a vocabulary in which the expectation over mu is a sum; also where mu is not the policy that is trained."""
    logits, teacher, other = distributions(numbers)
    mu = other if stale else logits.detach().log_softmax(0)
    policy = logits.log_softmax(0)
    each = sampled_distillation(policy, mu, teacher, Distillation(bound=1e9))
    (gradient,) = torch.autograd.grad((mu.exp() * each).sum(), logits)
    torch.testing.assert_close(gradient, exact_gradient(logits, teacher)[1], rtol=1e-9, atol=1e-9)


@given(NUMBERS)
def test_top_k_of_the_whole_vocabulary_is_the_exact_divergence(numbers: list[float]) -> None:
    logits, teacher, _ = distributions(numbers)
    loss = top_distillation(logits.log_softmax(0)[None], teacher[None])[0]
    (gradient,) = torch.autograd.grad(loss, logits)
    divergence, exact = exact_gradient(logits, teacher)
    torch.testing.assert_close(loss.detach(), divergence, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient, exact, rtol=1e-9, atol=1e-9)


@given(NUMBERS, st.integers(1, SIZE - 1))
def test_top_k_joins_the_other_ids_into_one_outcome(numbers: list[float], k: int) -> None:
    """Joining outcomes never makes a divergence larger, and it is 0 for equal distributions."""
    logits, teacher, _ = distributions(numbers)
    policy = logits.detach().log_softmax(0)
    order = teacher.argsort(descending=True)[:k]
    found = float(top_distillation(policy[None, order], teacher[None, order])[0])
    assert -1e-9 <= found <= float(exact_gradient(logits, teacher)[0]) + 1e-9
    assert float(top_distillation(teacher[None, order], teacher[None, order])[0]) == pytest.approx(0, abs=1e-12)


# Averages ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def words() -> Any:
    return build_tokenizer(TEMPLATES["chatml"])


def on_policy(pool: Pool, examples: list[Example], model: Any, advantages: list[float]) -> list[Example]:
    """The chosen sides with one advantage for all tokens, and log mu such that the ratio of the first token of each is
    1.1 and of the others 1."""
    known = logprobs_of(model, pool)
    found = []
    for example, advantage in zip(examples, advantages, strict=True):
        terms = []
        for index in example.chosen:
            sampled = (known[index][0] - math.log(1.1), *known[index][1:])
            terms.append(TokenTerms(sampled, (advantage,) * len(sampled)))
        found.append(Example(example.name, example.chosen, terms=tuple(terms)))
    return found


@pytest.mark.parametrize("average", ["token", "dialogue"])
def test_the_average_is_over_the_tokens_of_the_step_or_first_over_those_of_each_dialogue(
    words: Any, average: Any
) -> None:
    pool, examples = make_data(words, 3)
    model = build_model(len(words))
    advantages = [1.0, -0.5, 2.0]
    weighted = on_policy(pool, examples, model, advantages)
    lengths = [[len(term.sampled) for term in example.terms] for example in weighted]
    assert len({sum(sizes) for sizes in lengths}) > 1, "dialogues of one length would not tell the two apart"
    objective = Objective(None, 0.0, policy=PolicyGradient(0.2, 0.2, average=average))
    found = losses(Scorer(model), objective, pool.sequences, weighted, None)
    # -A for each token, and -1.1 A for the first of each sequence.
    sums = [-a * (sum(sizes) + 0.1 * len(sizes)) for a, sizes in zip(advantages, lengths, strict=True)]
    if average == "token":
        expected = sum(sums) / sum(map(sum, lengths))
    else:
        expected = sum(total / sum(sizes) for total, sizes in zip(sums, lengths, strict=True)) / 3
    assert float(found.loss.detach().mean()) == pytest.approx(expected, abs=1e-5)
    tokens = sum(map(sum, lengths))
    assert found.statistics is not None
    assert found.statistics.tokens == tokens
    assert float(found.statistics.ratio) == pytest.approx(tokens + 0.1 * sum(map(len, lengths)), abs=1e-3)


def test_components_do_not_dilute_each_other(words: Any) -> None:
    """Examples without advantages do not change the policy gradient of a step, nor its likelihood."""
    pool, examples = make_data(words, 4)
    model = build_model(len(words))
    weighted = [replace(e, likelihood=0.0) for e in on_policy(pool, examples[:2], model, [1.0, -0.5])]
    imitated = [Example(e.name, e.chosen) for e in examples[2:]]
    objective = Objective(None, 0.3, policy=PolicyGradient())
    scorer = Scorer(model)

    def step(part: list[Example]) -> float:
        return float(losses(scorer, objective, pool.sequences, part, None).loss.detach().mean())

    assert step(weighted + imitated) == pytest.approx(step(weighted) + step(imitated), abs=1e-5)
    assert Counts.of(weighted + imitated) == replace(Counts.of(weighted), examples=4, likelihoods=2)


def test_terms_that_do_not_fit_are_an_error(words: Any) -> None:
    pool, examples = make_data(words, 1)
    scorer = Scorer(build_model(len(words)))

    def run(*terms: TokenTerms) -> None:
        losses(scorer, BOTH, pool.sequences, [Example("one", examples[0].chosen, terms=terms)], None)

    with pytest.raises(ValueError, match=r"one: 1 terms for .* tokens"):
        run(TokenTerms((-1.0,), (1.0,)))
    with pytest.raises(ValueError, match="one: 2 terms for 1 sequences"):
        run(TokenTerms((-1.0,), (1.0,)), TokenTerms((-1.0,), (1.0,)))
    with pytest.raises(ValueError, match="advantages has 2 entries for 1 tokens"):
        TokenTerms((-1.0,), (1.0, 1.0))


# What must not change a step -----------------------------------------------------------------------------------------


def gradients(
    model: Any, objective: Objective, pool: Pool, examples: list[Example], parts: list[list[int]], *, share: bool = True
) -> tuple[float, Tensor]:
    """The loss and the gradients of a step that is divided into these parts."""
    model.zero_grad()
    scorer, counts, total = Scorer(model, share=share), Counts.of(examples), 0.0
    for part in parts:
        found = losses(scorer, objective, pool.sequences, [examples[i] for i in part], None, counts)
        loss = found.loss.sum() / len(examples)
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total, torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@settings(max_examples=6, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=8, max_size=8), st.integers(0, 9), st.sampled_from(["token", "dialogue"]))
def test_the_division_of_a_step_does_not_change_its_gradients(
    words: Any, homes: list[int], seed: int, average: Any
) -> None:
    pool, examples = weighted_data(words, 8, seed)
    objective = replace(BOTH, policy=PolicyGradient(average=average))
    parts = [[i for i, home in enumerate(homes) if home == part] for part in sorted(set(homes))]
    model = build_model(len(words))
    loss, whole = gradients(model, objective, pool, examples, [list(range(8))])
    divided_loss, divided = gradients(model, objective, pool, examples, parts)
    assert divided_loss == pytest.approx(loss, rel=1e-4, abs=1e-5)
    torch.testing.assert_close(divided, whole, rtol=1e-3, atol=1e-4)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 99))
def test_prefix_trees_do_not_change_the_gradients_of_weighted_tokens(words: Any, seed: int) -> None:
    pool, examples = weighted_data(words, 8, seed)
    model, parts = build_model(len(words)), [list(range(8))]
    plain_loss, plain = gradients(model, BOTH, pool, examples, parts, share=False)
    tree_loss, tree = gradients(model, BOTH, pool, examples, parts)
    assert tree_loss == pytest.approx(plain_loss, rel=1e-4, abs=1e-5)
    torch.testing.assert_close(tree, plain, rtol=1e-3, atol=1e-4)


def test_a_loop_with_weighted_tokens_reports_them_and_resumes_to_the_same_weights(words: Any, tmp_path: Path) -> None:
    pool, examples = weighted_data(words, 9)
    loop_settings = LoopSettings(lr=1e-3, epochs=2, batch=4, seed=1, token_budget=400, save_every=2)

    class Stop(Exception): ...

    def make(path: Path, stop_at: int = 0) -> tuple[Loop, Any, list[Record]]:
        model, records = build_model(len(words)), []

        def on_step(record: Record) -> None:
            records.append(record)
            if record["step"] == stop_at:
                raise Stop

        return (
            Loop(model, pool.sequences, examples, BOTH, loop_settings, "d", (), path, on_step=on_step),
            model,
            records,
        )

    loop, whole, records = make(tmp_path / "whole.pt")
    expected = loop.run()
    weighing = [record for record in records if "ratio" in record]  # an epoch may end with an example that has no terms
    assert len(weighing) >= 4
    assert all(math.isfinite(record["ratio"]) and 0 <= record["masked"] <= 1 for record in weighing)
    stopped, *_ = make(tmp_path / "stopped.pt", stop_at=5)
    with pytest.raises(Stop):
        stopped.run()
    again, resumed, rest = make(tmp_path / "stopped.pt")
    found = again.run(resume=True)
    assert rest[0]["step"] == 5
    assert torch.equal(weights(whole), weights(resumed))
    assert all(found[name] == expected[name] for name in ("loss", "ratio", "clipped", "masked"))


FLOATS = st.floats(-50, 50)


@st.composite
def token_terms(draw: Any) -> TokenTerms:
    size = draw(st.integers(1, 3))

    def rows(of: Any) -> tuple[Any, ...]:
        return tuple(draw(st.lists(of, min_size=size, max_size=size)))

    k = draw(st.integers(0, 2))
    ids, values = st.tuples(*[st.integers(0, 2**31)] * k), st.tuples(*[FLOATS] * k)
    return TokenTerms(
        rows(FLOATS),
        rows(FLOATS) if draw(st.booleans()) else (),
        rows(FLOATS) if draw(st.booleans()) else (),
        rows(ids) if k else (),
        rows(values) if k else (),
    )


@settings(max_examples=30)
@given(st.lists(token_terms(), max_size=3), FLOATS, FLOATS, st.sampled_from(["token", "dialogue"]))
def test_weights_reach_the_ranks_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, terms: list[TokenTerms], one: float, other: float, average: Any
) -> None:
    job = Job(
        start=Start("micro"),
        output=Path("model"),
        device="cpu",
        zero=ZeroSettings(1),
        settings=LoopSettings(lr=1e-4, epochs=1, batch=2),
        objective=Objective(None, 0.0, policy=PolicyGradient(average=average), distil=Distillation(0.5, 3.0)),
        digest="d",
        resume=False,
        pool=[TokenSequence((1, 2), (Span(1, 2, 1),))] * len(terms),
        examples=[Example("one", tuple(range(len(terms))), terms=tuple(terms), preference=one, likelihood=other)],
        heldout=[],
    )
    path = tmp_path_factory.mktemp("job") / "job.pt"
    job.write(path)
    assert Job.read(path) == job
