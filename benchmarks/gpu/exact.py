"""Whether prefix trees with FlexAttention compute what the model computes on plain sequences.

The expected values are those of the model's own forward pass over each sequence alone, in fp32. `logprob_difference` is
the greatest difference of mean log-probabilities to them, `gradient_difference` the relative difference of the gradient
of a loss that weights each sequence otherwise; `plain_…` are the same of plain sequences computed as the trees are: in
fp32, in bf16, and in bf16 over fp32 weights, as in trainings. `exact` is whether the differences of trees are those of
rounding: in fp32 up to `GOALS`, in bf16 up to twice those of plain sequences.

On a CPU FlexAttention is not compiled and has no gradients: the means are those of its reference implementation, in
which it computes all scores, and the gradients those of trees block by block, which trainings use there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.machine import device
from benchmarks.gpu.results import Figures, Part, Settings
from benchmarks.synthetic import Shape, make_turns
from sweet.learn.logprobs import Scorer, group_logprobs
from sweet.learn.sequences import TokenSequence

FAMILIES = ("llama", "qwen2", "mistral", "gemma")
CAP = 0.5
PRECISIONS = ("fp32", "mixed", "bf16")
SHAPE = Shape(dialogues=2, turns=3, candidates=6, opening=60, reply=17, answer=9, vocabulary=512)
TINY = Shape(dialogues=1, turns=2, candidates=3, opening=60, reply=17, answer=9, vocabulary=512)
BUDGETS = {"whole": 1 << 20, "cut": 150}
"""Tokens of a forward pass: whole trees, and trees that are cut."""
GOALS = {"logprob_difference": 1e-5, "gradient_difference": 1e-4}
"""In fp32."""


def parts(settings: Settings) -> Sequence[Part]:
    families = FAMILIES[:1] if settings.tiny else (*FAMILIES, "gemma2")
    shape = TINY if settings.tiny else SHAPE
    return [
        Part(f"{family} {precision}", partial(exact, family, precision, shape))
        for family in families
        for precision in PRECISIONS
    ]


def make_small_model(family: str, seed: int) -> Any:
    """Build a random model of four layers, with weights large enough for the logits to depend on the context."""
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
def gradients(model: Any) -> Iterator[list[Tensor]]:
    """Collect all gradients of the block into the list that is yielded, as one vector."""
    vectors: list[Tensor] = []
    model.zero_grad(set_to_none=True)
    yield vectors
    vectors.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))


def plain_mean(model: Any, sequence: TokenSequence) -> Tensor:
    """Return the mean log-probability of a turn by a plain forward pass of the model over one sequence."""
    ids = torch.tensor([sequence.ids], device=model.device)
    span = sequence.spans[0]
    table = model(input_ids=ids, use_cache=False).logits[0, span.start - 1 : span.stop - 1].log_softmax(-1)
    mean: Tensor = table.gather(1, ids[0, span.start : span.stop, None]).mean()
    return mean


def model_of(family: str) -> Any:
    """A small random model of fp32; gemma2 caps its attention's scores, lower than usual, so that it matters."""
    model = make_small_model(family, 0).to(device())
    if family == "gemma2":
        model.set_attn_implementation("eager")  # the only one of its own that caps them
        model.config.attn_logit_softcapping = CAP
        for layer in model.model.layers:
            layer.self_attn.attn_logit_softcapping = CAP
    return model


def exact(family: str, precision: str, shape: Shape) -> Figures:
    """Compare trees and plain sequences with the model's own forward pass in fp32."""
    flat = [sequence for rows in make_turns(shape, 0) for sequence in rows]
    weights = torch.linspace(-1, 1, len(flat), device=device())
    model = model_of(family)
    with gradients(model) as expected_gradient:
        expected = torch.stack([plain_mean(model, sequence) for sequence in flat])
        torch.autograd.backward([(expected * weights).sum()])
    expected, gradient = expected.detach(), expected_gradient[0].float()
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    figures: Figures = {"spread": float(expected.std())}

    def difference(scorer: Scorer, prefix: str, budget: int) -> None:
        means, found = computed(scorer, flat, weights, budget)
        figures[f"{prefix}logprob_difference"] = float((means - expected).abs().max())
        figures[f"{prefix}gradient_difference"] = float((found - gradient).norm() / gradient.norm())

    scorer = scorer_in(precision, model, attention="flex")
    for name, budget in BUDGETS.items():
        difference(scorer, f"{name}_", budget)
    difference(scorer_in(precision, model, share=False), "plain_", BUDGETS["whole"])
    return figures | {
        "exact": is_exact(figures, precision),
        "attention": scorer.attention,
        "refused": scorer.flex_error,
        "means_by": "flex",
        "gradients_by": scorer.attention,
    }


def is_exact(figures: Figures, precision: str) -> bool:
    """Whether the trees are exact: in fp32 up to rounding, in bf16 up to twice the rounding of plain sequences."""
    limits = {
        what: GOALS[what] if precision == "fp32" else 2 * figures[f"plain_{what}"]
        for what in ("logprob_difference", "gradient_difference")
    }
    return all(figures[f"{name}_{what}"] <= limit for name in BUDGETS for what, limit in limits.items())


def scorer_in(precision: str, model: Any, **options: Any) -> Scorer:
    """A scorer that computes in a precision, where a GPU would compute fp32 weights in bf16."""
    scorer = Scorer(model, **options)
    scorer._mixed = precision == "mixed"
    return scorer


def computed(scorer: Scorer, flat: Sequence[TokenSequence], weights: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """Return the mean log-probability of each sequence, and the gradient of their weighted sum."""
    by = scorer.attention
    if scorer.max_shared_length:
        scorer.attention = "flex"  # also where it has no gradients
    means = [row[0] for row in group_logprobs(scorer, [[sequence] for sequence in flat], budget)]
    scorer.attention = by
    with gradients(scorer.model) as found:
        for pack in scorer.pack([[sequence] for sequence in flat], budget):
            scores = scorer([flat[i] for i in pack])
            torch.autograd.backward([(scores.sums / scores.counts * weights[pack]).sum()])
    return torch.tensor(means, device=weights.device), found[0].float()
