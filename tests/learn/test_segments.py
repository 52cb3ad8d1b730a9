"""The backward pass of a tree segment by segment: the gradients of the whole tree, with less memory until it begins."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.learn import blocks
from sweet.learn.head import attach_head
from sweet.learn.logprobs import Scorer
from sweet.learn.lora import LoraSettings, add_lora
from sweet.learn.sequences import Span, TokenSequence
from sweet.learn.tree import build_tree
from sweet.learn.vision_processor import VisionProcessor
from tests.learn.builders import build_model
from tests.learn.test_logprobs import VOCABULARY, dialogue_of
from tests.learn.test_recompute import nudge


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 13)  # no block or segment of 26 ends where a branch does


def gradients(model: Any, rows: list[TokenSequence], *, replays: bool) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return the scores, the gradients of a loss that is not linear in them, and the bytes that the graph keeps before
    the backward pass."""
    scorer = Scorer(model)
    assert scorer.max_shared_length
    if replays:
        scorer.set_packing(replays_segments=True)
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        scores = scorer(rows)
        means = scores.sums / scores.counts
        loss = torch.nn.functional.softplus(means[1:] - means[:-1]).sum()
        if scores.values is not None:
            loss = loss + (scores.values**2).sum()
    torch.autograd.backward([loss])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert all(parameter.grad is not None for parameter in trained)
    return scores.sums.detach(), torch.cat([parameter.grad.flatten() for parameter in trained]), sum(kept.values())


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma2", "lora", "head"])
def test_the_gradients_are_those_of_the_whole_tree(kind: str) -> None:
    model = build_model(VOCABULARY, family=kind if kind not in ("lora", "head") else "llama")
    if kind == "lora":
        pytest.importorskip("peft", reason="peft is not installed")
        add_lora(model, LoraSettings(4, 8))
    if kind == "head":
        attach_head(model)
    nudge(model)
    rows = dialogue_of()
    assert len(build_tree([row.ids for row in rows]).ids) > 8 * blocks.segment_size(on_gpu=False)
    scores, expected, whole = gradients(model, rows, replays=False)
    found_scores, found, kept = gradients(model, rows, replays=True)
    torch.testing.assert_close(found_scores, scores, rtol=1e-5, atol=1e-4)
    assert float((found - expected).norm() / expected.norm()) < 1e-5
    assert kept < 0.5 * whole


@given(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=40), min_size=2, max_size=8, unique_by=tuple))
def test_any_tree_has_the_gradients_of_plain_sequences(ids: list[list[int]]) -> None:
    model = build_model(VOCABULARY)
    rows = [TokenSequence(tuple(each), (Span(1, len(each), 0),)) for each in ids]
    found = []
    for share in (False, True):
        scorer = Scorer(model, share=share)
        if share:
            scorer.set_packing(replays_segments=True)
        model.zero_grad()
        scores = scorer(rows)
        torch.autograd.backward([(scores.sums * torch.linspace(-1, 1, len(rows))).sum()])
        found.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    plain, tree = found
    assert float((plain - tree).norm()) <= 1e-4 * float(plain.norm()) + 1e-6


def test_a_model_that_cannot_be_computed_as_a_tree_is_refused() -> None:
    scorer = Scorer(build_model(VOCABULARY), share=False)
    with pytest.raises(UsageError, match="as a tree") as caught:
        scorer.set_packing(replays_segments=True)
    assert "--gradient-checkpointing on" in str(caught.value.fix)
    scorer = Scorer(build_model(VOCABULARY))
    scorer.set_packing(replays_segments=True)
    with pytest.raises(UsageError, match="as a tree"):
        scorer.require_images(VisionProcessor.__new__(VisionProcessor))


def test_the_attention_is_restored_afterwards() -> None:
    model = build_model(VOCABULARY)
    own = model.config._attn_implementation
    gradients(model, dialogue_of(), replays=True)
    assert model.config._attn_implementation == own
