"""The forward pass of Llama models equals that of transformers, whatever rows share it."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from sweet.llm import llama
from sweet.llm.decoder import Decoder
from tests.llm.models import VOCABULARY, tiny

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "every head has keys": {"num_key_value_heads": 4},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "head size": {"head_dim": 16},
    "tied, scaled positions": {
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
    },
}


@pytest.fixture(params=sorted(VARIANTS))
def model(request: pytest.FixtureRequest) -> Any:
    made = tiny("llama", **VARIANTS[request.param])
    for name, parameter in made.named_parameters():  # else all biases are 0 and all norms are 1
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    return made


@pytest.mark.parametrize("small", [0, llama.SMALL])
def test_every_mixture_of_rows_equals_single_sequences(model: Any, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "SMALL", small)
    decoder = Decoder(model, "tiny")
    assert decoder.packed is not None
    draw = random.Random(0)
    texts = [[draw.randrange(VOCABULARY) for _ in range(length)] for length in (9, 30, 1, 17, 24, 6, 12)]
    cached = [0] * len(texts)

    def extend(first: int, counts: list[int]) -> None:
        slots = range(first, first + len(counts))
        new = [texts[slot][cached[slot] : cached[slot] + count] for slot, count in zip(slots, counts, strict=True)]
        logits = decoder.extend(first, new, [cached[slot] for slot in slots])
        for place, (slot, count) in enumerate(zip(slots, counts, strict=True)):
            cached[slot] += count
            with torch.inference_mode():
                plain = model(input_ids=torch.tensor([texts[slot][: cached[slot]]]), use_cache=False).logits[0, -1]
            assert torch.allclose(logits[place].log_softmax(-1), plain.log_softmax(-1), atol=2e-4)

    extend(0, [4, 20, 1])  # prompts
    extend(3, [1, 1])  # rows begin with one token each
    extend(0, [1, 1])  # a decoding step
    extend(3, [1, 9, 3, 12])  # a row is decoded; one goes on with several tokens; two begin
    extend(0, [3, 9])  # prompts whose beginnings are cached
    extend(3, [15, 14, 1])
    decoder.close()


def test_weights_that_are_changed_in_place_count(model: Any) -> None:
    decoder = Decoder(model, "tiny")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    with torch.inference_mode():
        plain = model(input_ids=torch.tensor([[3, 4, 5]]), use_cache=False).logits[0, -1]
    found = decoder.extend(0, [[3, 4, 5]], [0])[0]
    assert torch.allclose(found.log_softmax(-1), plain.log_softmax(-1), atol=2e-4)
    decoder.close()


class _Doubled(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def test_other_models_are_run_by_the_library() -> None:
    changed = tiny("llama")
    layer = changed.model.layers[1].mlp
    layer.up_proj = _Doubled(layer.up_proj.in_features, layer.up_proj.out_features, bias=False)
    for other in (changed, tiny("llama", hidden_act="gelu"), tiny("llama").to(torch.bfloat16), tiny("qwen2")):
        decoder = Decoder(other, "other")
        assert decoder.packed is None
        assert decoder.batched
        decoder.close()


def test_a_pass_that_differs_from_the_library_s_is_not_used() -> None:
    changed = tiny("llama")
    changed.model.register_forward_pre_hook(  # the library sees the next ids
        lambda _module, _args, given: ((), {**given, "input_ids": (given["input_ids"] + 1) % VOCABULARY}),
        with_kwargs=True,
    )
    decoder = Decoder(changed, "changed")
    assert decoder.packed is None
    assert decoder.batched
    decoder.close()
