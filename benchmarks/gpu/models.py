"""Llamas with random weights in the shapes of models of 135M, 1B and 4B parameters, and the dialogues they compute.

Operations of a forward pass are counted as those that are necessary (arXiv 2204.02311, appendix B, with arXiv
2001.08361, section 2.1): 2 for each weight of the layers and each token that is computed, 2 for each weight of the
output layer and each supervised token, and in each layer 4 for each unit of the heads' width and each position that a
token sees: attention of a causal model, or of a path of a tree, not of the whole square. A backward pass has twice as
many, and without the gradients of frozen weights as many; what is computed again in it (gradient checkpointing) is not
counted. A tree computes a shared prefix once, so its MFU is one of computed tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.gpu.machine import device
from benchmarks.synthetic import Shape
from sweet.learn.components import Example, Objective
from sweet.learn.logprobs import Scorer, SpanScores
from sweet.learn.loop import LoopSettings
from sweet.learn.recompute import recompute_layers
from sweet.learn.sequences import Pool, Span, TokenSequence
from sweet.learn.tree import build_tree


@dataclass(frozen=True)
class Size:
    """The shape of a Llama with grouped query heads, of its dialogues, and the tokens of a micro-batch."""

    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    head: int
    shape: Shape
    budget: int


LONG = Shape(opening=600, reply=200, answer=60)
SIZES = {
    "tiny": Size(64, 128, 2, 4, 2, 16, Shape(1, 2, 4, 40, 12, 8, 512), 512),
    "135m": Size(576, 1536, 30, 9, 3, 64, replace(LONG, vocabulary=49152), 16384),
    "1b": Size(2048, 8192, 16, 32, 8, 64, replace(LONG, vocabulary=128256), 16384),
    "4b": Size(2560, 9728, 36, 32, 8, 128, replace(LONG, vocabulary=151936), 16384),
}
"""The shapes of SmolLM2-135M, Llama 3.2 1B and Qwen3 4B, each with its vocabulary and its embedding as output layer."""

RECOMPUTED = {"1b", "4b"}
"""Sizes whose layers are recomputed in the backward pass by default (`RECOMPUTE_THRESHOLD`)."""


def config_of(size: Size) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=size.shape.vocabulary,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_heads,
        head_dim=size.head,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        pad_token_id=0,
    )


def random_model(size: Size, dtype: torch.dtype, *, recompute: bool = False) -> Any:
    """Build a model on the device; the same weights each time.

    Args:
        dtype: of the weights.
        recompute: compute layers again in the backward pass.
    """
    from transformers import LlamaForCausalLM

    make: Any = LlamaForCausalLM
    torch.manual_seed(0)
    with torch.device(device()):
        model = make(config_of(size)).eval().to(dtype)
    if recompute:
        recompute_layers(model)
    return model


class CountingScorer(Scorer):
    """A scorer that counts operations as the module's docstring says, and the tokens of all sequences.

    What it has counted of some sequences is looked up when they come again, as they do where a warm-up was before, so
    that counting takes no time of what is measured. The sequences must live as long as the scorer.
    """

    operations = 0.0
    tokens = 0
    frozen = False
    """Whether the weights get no gradients, as under an adapter, whose own weights are so few that they do not
    count."""

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model, **options)
        self._necessary: dict[tuple[int, ...], tuple[int, int]] = {}

    def __call__(
        self, sequences: Sequence[TokenSequence], others: torch.Tensor | None = None, top: int = 0
    ) -> SpanScores:
        key = tuple(map(id, sequences))
        if key not in self._necessary:
            self._necessary[key] = self._count(sequences)
        forward, attention = self._necessary[key]
        gradients = torch.is_grad_enabled()
        self.operations += forward * (1 if not gradients else 2 if self.frozen else 3)
        self.operations += attention * (3 if gradients else 1)
        self.tokens += sum(len(sequence.ids) for sequence in sequences)
        return super().__call__(sequences, others, top)

    def _count(self, sequences: Sequence[TokenSequence]) -> tuple[int, int]:
        """The operations of a forward pass: those of weights, and those of attention."""
        config = self.model.config
        layer = config.hidden_size * config.head_dim * 2 * (config.num_attention_heads + config.num_key_value_heads)
        layer += 3 * config.hidden_size * config.intermediate_size
        output = config.vocab_size * config.hidden_size
        supervised = sum(span.stop - span.start for sequence in sequences for span in sequence.spans)
        depths: Sequence[int] = [place for sequence in sequences for place in range(len(sequence.ids))]
        if self.max_shared_length:
            depths = build_tree([sequence.ids for sequence in sequences]).positions
        visible = sum(depths) + len(depths)
        heads = config.num_attention_heads * config.head_dim
        weights = 2 * layer * config.num_hidden_layers * len(depths) + 2 * output * supervised
        return weights, 4 * config.num_hidden_layers * heads * visible


def make_preferences(shape: Shape) -> tuple[list[TokenSequence], list[Example]]:
    """Return whole dialogues: the best one of each task and four others, which leave it at different turns."""
    pool, examples = Pool(), []
    for number in range(2 * shape.dialogues):
        best = _dialogue(shape, [(number, 0)] * shape.turns)
        chosen = pool.put((number, 0), [best])
        for other in range(1, 5):
            branch = other * shape.turns // 5
            authors = [(number, 0) if turn < branch else (number, other) for turn in range(shape.turns)]
            rejected = pool.put((number, other), [_dialogue(shape, authors)])
            examples.append(Example(f"{number}-{other}", chosen, rejected, group=str(number)))
    return pool.sequences, examples


def _dialogue(shape: Shape, authors: Sequence[tuple[int, int]]) -> TokenSequence:
    """Draw a dialogue from one seed per turn. Every reply is supervised."""

    def ids(count: int, *seed: int) -> list[int]:
        draw = torch.Generator().manual_seed(hash(seed))
        return [int(i) for i in torch.randint(3, shape.vocabulary, (count,), generator=draw)]

    row, spans = ids(shape.opening, authors[0][0]), []
    for turn, author in enumerate(authors):
        spans.append(Span(len(row), len(row) + shape.reply, turn))
        row += ids(shape.reply + shape.answer, *author, turn)
    return TokenSequence(tuple(row), tuple(spans))


@dataclass(frozen=True)
class Training:
    """What is trained: a size of model, the pairs or preferences, and whether layers are recomputed.

    The learning rate is large enough for the losses of later steps to depend on the gradients of earlier ones.
    """

    size: Size
    pool: list[TokenSequence]
    examples: list[Example]
    objective: Objective
    recompute: bool
    batch: int = 8
    lr: float = 1e-5

    def settings(self, lr: float) -> LoopSettings:
        return LoopSettings(
            lr=lr, epochs=1, batch=self.batch, token_budget=self.size.budget, warmup=0.0, floor=1.0, together=None
        )
