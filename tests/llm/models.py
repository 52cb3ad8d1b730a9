"""Tiny random models of several families."""

from __future__ import annotations

from typing import Any

import torch

VOCABULARY = 64
CONTEXT = 96
END = 2


def tiny(family: str, **changes: Any) -> Any:
    """A random model of two layers; wide initialisation, so that its distributions are far from uniform."""
    from transformers import AutoConfig, AutoModelForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": END,
    }
    if family == "gpt2":
        settings |= {"n_positions": CONTEXT, "n_embd": 32, "n_layer": 2, "n_head": 4}
        for name in ("hidden_size", "max_position_embeddings", "num_hidden_layers", "num_attention_heads"):
            del settings[name]
    elif family == "bloom":
        settings |= {"n_layer": 2, "n_head": 4}
    else:
        settings |= {"num_key_value_heads": 2}
    if family.startswith("gemma"):
        settings |= {"head_dim": 8, "attn_implementation": "eager"}
    torch.manual_seed(0)
    make: Any = AutoModelForCausalLM.from_config
    return make(AutoConfig.for_model(family, **(settings | changes))).eval()
