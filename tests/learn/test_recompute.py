"""Layers that are recomputed in the backward pass give the same gradients and store less until then."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sweet.errors import UsageError
from sweet.learn.logprobs import Scorer
from sweet.learn.lora import LoraSettings, add_lora
from sweet.learn.losses import losses
from sweet.learn.recompute import recompute_layers
from tests.learn.builders import build_model
from tests.learn.test_loop import CRITIC, make_data


def gradients(tokenizer: Any, *, share: bool, recompute: bool, lora: bool, family: str) -> tuple[torch.Tensor, int]:
    """Of the losses of five pairs, and the bytes that the graph keeps in front of the backward pass."""
    pool, examples = make_data(tokenizer, 5)
    model = build_model(len(tokenizer), family=family)
    if lora:
        add_lora(model, LoraSettings(4, 8))
        nudge(model)
    if recompute:
        recompute_layers(model)
    scorer = Scorer(model, share=share)
    assert bool(scorer.max_shared_length) is share
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    kept: dict[tuple[int, int], int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr(), tensor.numel()] = tensor.numel() * tensor.element_size()
        return tensor

    reference = [torch.zeros(len(sequence.spans)) for sequence in pool.sequences]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = losses(scorer, CRITIC, pool.sequences, examples, reference).loss.sum()
    torch.autograd.backward([loss])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.cat([p.grad.flatten() for p in trained if p.grad is not None]), sum(kept.values())


def nudge(model: Any) -> None:
    """An adapter that does something."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "regression_head" in name:
                parameter.normal_(std=0.1)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("lora", [False, True])
def test_gradients_are_the_same_in_trees_and_plain(tokenizer: Any, lora: bool, family: str) -> None:
    if lora:
        pytest.importorskip("peft", reason="peft is not installed")
    found = {
        (share, recompute): gradients(tokenizer, share=share, recompute=recompute, lora=lora, family=family)
        for share in (True, False)
        for recompute in (True, False)
    }
    expected, _ = found[False, False]
    assert expected.abs().max() > 1e-3
    for key, (gradient, _) in found.items():
        assert torch.allclose(gradient, expected, rtol=1e-3, atol=1e-5), key
    for share in (True, False):
        assert torch.equal(found[share, True][0], found[share, False][0])
        assert found[share, True][1] < 0.5 * found[share, False][1]


def test_the_attention_is_restored_afterwards(tokenizer: Any) -> None:
    pool, examples = make_data(tokenizer, 2)
    model = build_model(len(tokenizer))
    recompute_layers(model)
    own = model.config._attn_implementation
    scorer = Scorer(model)
    reference = [torch.zeros(len(sequence.spans)) for sequence in pool.sequences]
    loss = losses(scorer, CRITIC, pool.sequences, examples, reference).loss.sum()
    assert model.config._attn_implementation == own
    torch.autograd.backward([loss])
    assert model.config._attn_implementation == own


def test_a_model_without_known_layers_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be recomputed") as caught:
        recompute_layers(torch.nn.Linear(2, 2))
    assert "--gradient-checkpointing off" in str(caught.value.fix)
