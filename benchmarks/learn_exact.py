"""Compare trees with plain sequences on small random models (benchmarks/learn.py, mode exact).

The expected values come from the forward pass of the model itself over one plain sequence, with logits at every
position; no code of the library takes part in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.synthetic import Metrics, Shape, TokenCounter, make_turns
from sweet.learn.logprobs import Scorer, group_logprobs
from sweet.learn.sequences import TokenSequence

FAMILIES = ("llama", "qwen2", "mistral", "gemma")


def make_small_model(family: str, seed: int) -> Any:
    """Build a random model of four layers, with weights large enough for the logits to depend on the context."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes: Metrics = {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 4096,
        "initializer_range": 0.08,
        "tie_word_embeddings": True,
    }
    torch.manual_seed(seed)
    make: Any = AutoModelForCausalLM.from_config
    return make(AutoConfig.for_model(family, **sizes, pad_token_id=0, bos_token_id=1, eos_token_id=2)).eval()


@contextmanager
def gradients(model: Any) -> Iterator[list[torch.Tensor]]:
    """Collect all gradients of the block into the list that is yielded, as one vector."""
    vectors: list[torch.Tensor] = []
    model.zero_grad(set_to_none=True)
    yield vectors
    vectors.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))


def plain_mean(model: Any, sequence: TokenSequence) -> torch.Tensor:
    """Return the mean log-probability of a turn by a plain forward pass of the model over one sequence."""
    ids = torch.tensor([sequence.ids], device=model.device)
    span = sequence.spans[0]
    table = model(input_ids=ids, use_cache=False).logits[0, span.start - 1 : span.stop - 1].log_softmax(-1)
    mean: torch.Tensor = table.gather(1, ids[0, span.start : span.stop, None]).mean()
    return mean


def exact(request: Metrics, _shape: Shape) -> Metrics:
    """Return the greatest differences of means and gradients, with whole trees and trees cut to a budget."""
    shape = Shape(dialogues=2, turns=3, candidates=6, opening=60, reply=17, answer=9, vocabulary=512)
    turns = make_turns(shape, request["seed"])
    flat = [sequence for rows in turns for sequence in rows]
    weights = torch.linspace(-1, 1, len(flat))
    metrics: Metrics = {}
    for family in FAMILIES:
        model = make_small_model(family, request["seed"])
        scorer = Scorer(model)
        if not scorer.max_shared_length:
            raise SystemExit(f"trees do not support {family}")
        with gradients(model) as expected:
            means = torch.stack([plain_mean(model, sequence) for sequence in flat])
            torch.autograd.backward([(means * weights).sum()])
        metrics[family] = {"spread": float(means.detach().std())}
        for name, budget in (("whole", 1 << 20), ("cut", 150)):
            counter = TokenCounter(model)
            tree_means = [mean for row in group_logprobs(scorer, turns, budget) for mean in row]
            with gradients(model) as actual:
                for pack in scorer.pack([[sequence] for sequence in flat], budget):
                    scores = scorer([flat[i] for i in pack])
                    torch.autograd.backward([(scores.sums / scores.counts * weights[pack]).sum()])
            metrics[family][name] = {
                "logprob_difference": float((torch.tensor(tree_means) - means.detach()).abs().max()),
                "gradient_difference": float((actual[0] - expected[0]).norm() / expected[0].norm()),
                "forwards": counter.forwards,
            }
    return metrics
