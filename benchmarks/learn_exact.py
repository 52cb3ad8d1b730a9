"""Trees against plain sequences on small random models (benchmarks/learn.py, mode exact).

What is right is the model's own forward over one plain sequence, logits at every position; nothing of the library's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.learn_work import Counted, Figures, Shape, turns_of
from sweet.learn.logprobs import Scorer, group_logprobs
from sweet.learn.tokens import TokenSequence

FAMILIES = ("llama", "qwen2", "mistral", "gemma")


def small(family: str, seed: int) -> Any:
    """A random model of four layers; weights large enough that the logits of a context depend on it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes: Figures = {
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
    """All gradients of what is done inside, as one vector."""
    found: list[torch.Tensor] = []
    model.zero_grad(set_to_none=True)
    yield found
    found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))


def alone(model: Any, sequence: TokenSequence) -> torch.Tensor:
    """The mean log-probability of a turn from the model's own forward over one plain sequence."""
    ids = torch.tensor([sequence.ids])
    span = sequence.spans[0]
    table = model(input_ids=ids, use_cache=False).logits[0, span.start - 1 : span.stop - 1].log_softmax(-1)
    return table.gather(1, ids[0, span.start : span.stop, None]).mean()


def exact(told: Figures, _shape: Shape) -> Figures:
    """The greatest differences of means and gradients, trees whole and cut under a budget."""
    shape = Shape(dialogues=2, turns=3, candidates=6, opening=60, reply=17, answer=9, vocabulary=512)
    turns = turns_of(shape, told["seed"])
    flat = [sequence for rows in turns for sequence in rows]
    weights = torch.linspace(-1, 1, len(flat))
    figures: Figures = {}
    for family in FAMILIES:
        model = small(family, told["seed"])
        scorer = Scorer(model)
        if not scorer.shares_up_to:
            raise SystemExit(f"{family} is not computed by trees")
        with gradients(model) as want:
            plainly = torch.stack([alone(model, sequence) for sequence in flat])
            torch.autograd.backward([(plainly * weights).sum()])
        figures[family] = {"spread": float(plainly.detach().std())}
        for name, budget in (("whole", 1 << 20), ("cut", 150)):
            counted = Counted(model)
            found = [mean for row in group_logprobs(scorer, turns, budget) for mean in row]
            with gradients(model) as got:
                for pack in scorer.packs([[sequence] for sequence in flat], budget):
                    scores = scorer([flat[i] for i in pack])
                    torch.autograd.backward([(scores.sums / scores.counts * weights[pack]).sum()])
            figures[family][name] = {
                "logprob_difference": float((torch.tensor(found) - plainly.detach()).abs().max()),
                "gradient_difference": float((got[0] - want[0]).norm() / want[0].norm()),
                "forwards": counted.forwards,
            }
    return figures
