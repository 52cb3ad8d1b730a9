"""The head's scores equal those of the mean of the states, in trees and plain sequences; it is stored next to the
model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.learn import blocks
from sweet.learn.head import FILE, attach_head, detached_head, get_head, load_head, prefix_means
from sweet.learn.logprobs import Scorer, span_values
from sweet.learn.sequences import Span, TokenSequence
from sweet.learn.trainee import save_model
from tests.learn.builders import build_model
from tests.learn.test_logprobs import VOCABULARY, dialogue_of, random_sequences


def with_head(model: Any, seed: int = 0) -> Any:
    """A model with a head that has learned something."""
    head, random = attach_head(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.weight.normal_(0, 0.3, generator=random)
        head.bias.fill_(0.25)
    return model


def published_head(model: Any, seed: int = 0) -> Any:
    """A model with a new head of protocol `upstream`."""
    attach_head(model, bias=False, seed=seed)
    return model


def naive(model: Any, sequence: TokenSequence) -> torch.Tensor:
    """The head on the mean of the last hidden states up to the end of each span, one sequence alone."""
    states = model.base_model(input_ids=torch.tensor([sequence.ids]), use_cache=False).last_hidden_state[0]
    means = torch.stack([states[: span.stop].mean(0) for span in sequence.spans])
    head = get_head(model)
    assert head is not None
    return means @ head.weight[0] + head.bias


def close(one: torch.Tensor, other: torch.Tensor, most: float) -> bool:
    return float((one - other).norm() / other.norm()) < most


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9), min_size=1, max_size=5), st.data())
def test_means_run_along_each_path(paths: list[list[int]], data: st.DataObject) -> None:
    stops = [data.draw(st.lists(st.integers(1, len(path)), max_size=3)) for path in paths]
    if not any(stops):
        return
    values = torch.linspace(-3, 2, 10)
    means = [values[path[:stop]].mean() for path, its in zip(paths, stops, strict=True) for stop in its]
    torch.testing.assert_close(prefix_means(values, paths, stops), torch.stack(means))


@pytest.mark.parametrize("budget", [1 << 20, 150, 70])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_scores_and_gradients_are_those_of_the_mean_of_the_states(
    family: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In trees, whole and divided, and in plain sequences of different lengths."""
    monkeypatch.setattr(blocks, "BLOCK", 37)
    model = with_head(build_model(VOCABULARY, family=family))
    rows = dialogue_of()
    weights = torch.linspace(-1, 1, 2 * len(rows)).reshape(-1, 2)
    expected = torch.stack([naive(model, row) for row in rows])
    torch.autograd.backward([(expected * weights).sum()])
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert float(expected.detach().std()) > 0.01
    for share in (True, False):
        scorer = Scorer(model, share=share)
        scorer.computes_logprobs = False
        model.zero_grad()
        found = torch.zeros_like(expected)
        for pack in scorer.pack([[row] for row in rows], budget):
            values = scorer([rows[i] for i in pack]).values
            assert values is not None
            part = values.reshape(-1, 2)
            torch.autograd.backward([(part * weights[pack]).sum()])
            found[pack] = part.detach()
        assert float((found - expected.detach()).abs().max()) < 1e-5
        assert close(torch.cat([p.grad.flatten() for p in model.parameters()]), gradients, 1e-4)


def test_a_long_dialogue_is_scored_to_its_end() -> None:
    random = torch.Generator().manual_seed(0)
    ids = tuple(torch.randint(0, VOCABULARY, (1000,), generator=random).tolist())
    turns = tuple(Span(start, start + 30, start) for start in range(50, 960, 50))
    model = with_head(build_model(VOCABULARY))
    long = TokenSequence(ids, turns)
    beginnings = [TokenSequence(ids[: turn.stop], (turn,)) for turn in turns[::4]]
    whole, *parts = span_values(Scorer(model), [long, *beginnings], budget=600)
    with torch.no_grad():
        torch.testing.assert_close(whole, naive(model, long), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.cat(parts), whole[::4], rtol=1e-5, atol=1e-5)


def test_the_head_does_not_change_log_probabilities_and_they_are_nan_if_not_computed() -> None:
    model, rows = build_model(VOCABULARY), random_sequences(4)
    with torch.no_grad():
        bare = Scorer(model)(rows)
        scorer = Scorer(with_head(model))
        both = scorer(rows)
        scorer.computes_logprobs = False
        values_alone = scorer(rows)
    assert bare.values is None
    assert both.values is not None
    assert values_alone.values is not None
    assert torch.equal(bare.sums, both.sums)
    assert torch.equal(both.values, values_alone.values)
    assert values_alone.sums.isnan().all()


def test_a_head_is_initialised_to_zero() -> None:
    model = build_model(VOCABULARY)
    attach_head(model)
    values = Scorer(model)(random_sequences(2)).values
    assert values is not None
    assert values.tolist() == [0.0] * 4


def test_the_published_head_has_normal_weights_by_the_seed_and_no_bias() -> None:
    weights: list[torch.Tensor] = []
    for seed in (0, 0, 1):
        head = get_head(published_head(build_model(VOCABULARY, width=512), seed))
        assert head is not None
        assert [name for name, _ in head.named_parameters()] == ["weight"]
        assert float(head.weight.detach().std()) == pytest.approx(1 / 513, rel=0.2)
        weights.append(head.weight.detach())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_published_head_is_stored_without_a_bias(tmp_path: Path, tokenizer: Any) -> None:
    from safetensors.torch import load_file

    from sweet.llm.pretrained import load_model

    model = published_head(build_model(len(tokenizer)))
    save_model(model, tokenizer, tmp_path)
    assert load_file(tmp_path / FILE).keys() == {"weight"}
    found = load_model(str(tmp_path), "cpu", tokenizer=tokenizer)
    load_head(found, tmp_path)
    rows = random_sequences(2)
    with torch.no_grad():
        for one, other in zip(span_values(Scorer(model), rows), span_values(Scorer(found), rows), strict=True):
            assert torch.equal(one, other)


def test_a_vision_language_model_can_have_a_head() -> None:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    rope: dict[str, Any] = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    text: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
    }
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_parameters": rope}
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4}
    torch.manual_seed(0)
    config: Any = Qwen2VLConfig
    make: Any = Qwen2VLForConditionalGeneration
    model = with_head(make(config(text_config=text, vision_config=vision)).eval())
    rows = dialogue_of(turns=2, candidates=2)
    with torch.no_grad():
        for row, values in zip(rows, span_values(Scorer(model), rows), strict=True):
            torch.testing.assert_close(values, naive(model, row), rtol=1e-4, atol=1e-5)


def test_a_model_without_hidden_states_cannot_have_a_head() -> None:
    model = with_head(build_model(VOCABULARY))

    def shift(_module: object, _inputs: object, output: Any) -> Any:
        output.logits = output.logits * 0.5
        return output

    model.register_forward_hook(shift)
    with pytest.raises(UsageError, match="hidden states") as caught:
        Scorer(model)
    assert "--variant" in str(caught.value.fix)


def test_it_is_saved_next_to_a_model_that_other_programs_can_load(tmp_path: Path, tokenizer: Any) -> None:
    from safetensors.torch import load_file

    from sweet.llm.pretrained import load_model

    model = with_head(build_model(len(tokenizer)))
    with detached_head(model) as head:
        assert get_head(model) is None
        model.to(torch.bfloat16)
    assert get_head(model) is head
    save_model(model, tokenizer, tmp_path)
    assert get_head(model) is head
    assert not [name for name in load_file(tmp_path / "model.safetensors") if "head" in name.replace("lm_head", "")]
    found = load_model(str(tmp_path), "cpu", tokenizer=tokenizer)
    assert get_head(found) is None
    load_head(found, tmp_path)
    again = get_head(found)
    assert head is not None
    assert again is not None
    assert torch.equal(again.weight, head.weight)
    assert torch.equal(again.bias, head.bias)
    assert again.weight.dtype == torch.float32


def test_a_head_of_another_model_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    save_model(with_head(build_model(len(tokenizer), width=64)), tokenizer, tmp_path)
    with pytest.raises(UsageError, match="not of this model"):
        load_head(build_model(len(tokenizer)), tmp_path)
    (tmp_path / FILE).write_bytes(b"torn")
    with pytest.raises(UsageError, match="cannot be read"):
        load_head(build_model(len(tokenizer), width=64), tmp_path)
