"""FlexAttention over trees with torch's reference implementation on a CPU: the results and gradients of plain
sequences."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention

from sweet.learn import flex
from sweet.learn.flex import FlexTree, tiles_of
from sweet.learn.logprobs import Scorer
from sweet.learn.sequences import TokenSequence
from sweet.learn.tokens import ChatEncoder
from sweet.learn.tree import build_tree
from tests.learn.builders import build_model
from tests.learn.test_logprobs import VOCABULARY, dialogue_of
from tests.learn.thinking import THINKING, play, thinking_model, thinking_tokenizer


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own reference, which has gradients on a CPU too though torch refuses to say so."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_heads: None)
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def means_and_gradient(scorer: Scorer, rows: Sequence[TokenSequence]) -> tuple[torch.Tensor, torch.Tensor]:
    scorer.model.zero_grad()
    scores = scorer(rows)
    means = scores.sums / scores.counts
    torch.autograd.backward([(means * torch.linspace(-1, 1, len(means))).sum()])
    gradients = [p.grad.flatten() for p in scorer.model.parameters() if p.grad is not None]
    return means.detach(), torch.cat(gradients)


@pytest.mark.usefixtures("reference")
@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "gemma2"])
def test_flex_attention_gives_the_means_and_gradients_of_plain_sequences(family: str) -> None:
    """Four query heads on two key heads; gemma2 caps its scores."""
    model = build_model(VOCABULARY, family=family)
    if family == "gemma2":
        model.config.attn_logit_softcapping = 0.5
        for layer in model.model.layers:
            layer.self_attn.attn_logit_softcapping = 0.5
    scorer = Scorer(model, attention="flex")
    assert (scorer.attention, scorer.flex_error) == ("flex", None)
    rows = dialogue_of(turns=4)
    assert len(build_tree([row.ids for row in rows]).ids) > 2 * flex.TILE
    tree_means, tree_gradient = means_and_gradient(scorer, rows)
    means, gradient = means_and_gradient(Scorer(model, share=False), rows)
    assert float((means - tree_means).abs().max()) < 1e-5
    assert float((gradient - tree_gradient).norm() / gradient.norm()) < 1e-4


@pytest.mark.usefixtures("reference")
@pytest.mark.parametrize("family", THINKING)
def test_turns_in_two_parts_are_the_same_by_flex_attention(family: str) -> None:
    """Thoughts on branches, each of them half of its turn."""
    tokenizer = thinking_tokenizer(family)
    model, encoder = thinking_model(tokenizer), ChatEncoder(tokenizer, "separate")
    rows = [row for n in (3, 4) for row in encoder.dialogue(play(tokenizer, family, n, name=f"t{n}"), None).sequences]
    assert all(span.split for row in rows for span in row.spans)
    scorer = Scorer(model, attention="flex")
    assert (scorer.attention, scorer.flex_error) == ("flex", None)
    tree_means, tree_gradient = means_and_gradient(scorer, rows)
    means, gradient = means_and_gradient(Scorer(model, share=False), rows)
    assert float((means - tree_means).abs().max()) < 1e-5
    assert float((gradient - tree_gradient).norm() / gradient.norm()) < 1e-4


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12))
@settings(deadline=None)
def test_tiles_match_the_whole_mask(sequences: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "TILE", 3)
        ends = build_tree(sequences).ends
        spare = -len(ends) % 3
        padded = torch.tensor([*ends, *range(len(ends) + 1, len(ends) + spare + 1)])
        slot = torch.arange(len(padded))
        mask = (slot[None] <= slot[:, None]) & (slot[:, None] < padded[None])
        tiles = mask.unfold(0, 3, 3).unfold(1, 3, 3).flatten(2)
        part, whole = tiles_of(padded)
        assert torch.equal(whole, tiles.all(2))
        assert torch.equal(part, tiles.any(2) & ~tiles.all(2))


def test_blocks_are_used_if_flex_attention_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has no gradients for it on a CPU."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    scorer = Scorer(build_model(VOCABULARY), attention="flex")
    assert scorer.attention == "blocks"
    assert scorer.flex_error is not None
    assert "backward on CPU" in scorer.flex_error
    assert scorer.max_shared_length


@pytest.mark.skipif(sys.version_info[:3] == (3, 13, 0), reason="torch compiles nothing under Python 3.13.0")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's compiler reads it
def test_models_of_several_shapes_and_types_are_compiled_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch compiles the kernel for each of them, up to a limit of its own: with gradients, without, and for no length
    again."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_heads: None)
    monkeypatch.setattr("torch._dynamo.config.recompile_limit", 2)
    monkeypatch.setattr(flex, "_kernel", lambda _device: flex.compiled("aot_eager"))
    before = counters["stats"]["unique_graphs"]
    for dtype in (torch.float32, torch.bfloat16):
        scorer = Scorer(build_model(VOCABULARY).to(dtype), attention="flex")
        for turns in (1, 3, 4):
            rows = dialogue_of(turns)
            with torch.no_grad():
                scorer(rows)
            torch.autograd.backward([scorer(rows).sums.sum()])
        assert (scorer.attention, scorer.flex_error) == ("flex", None)
    assert counters["stats"]["unique_graphs"] - before == 4


@pytest.mark.parametrize("more", [{"s_aux": torch.zeros(2)}, {"dropout": 0.1}])
def test_sinks_and_dropout_are_refused(more: dict[str, object]) -> None:
    tree = FlexTree(build_tree([[1, 2, 3]]))
    heads = torch.zeros(1, 2, 3, 16)
    with pytest.raises(ValueError, match="cannot express"):
        tree.attend(heads, heads, heads, **more)  # type: ignore[arg-type]
