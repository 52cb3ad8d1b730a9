"""A forward pass of Llama models on a CPU, for the rows of the engine's cache.

It computes what `LlamaForCausalLM.forward` of transformers computes, from the same parameters, with fewer and larger
operations: with a small model the calls of a decoding step take longer than the arithmetic. The new tokens of all rows
are packed, without padding, so rows that are decoded and prompts that are prefilled share one pass. Only attention
takes the rows apart: the leading rows with one new token each attend by two batched products and a softmax (torch's
fused attention makes two small products for each row and head instead), the others padded and in the same way, or by
that fused attention where they have many scores. In the last layer only the last token of each row attends, because
nobody needs the states of the others.
`sweet.llm.decoder` compares the logits with those of transformers, and otherwise uses its forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch
from torch.nn import functional

from sweet.llm.kvcache import SlotCache, Window

SMALL = 1 << 20
"""Scores that are computed at once, 4 MiB in a CPU's caches; fused attention does not store more of them in memory."""


def is_llama(model: Any) -> bool:
    """Whether `LlamaPass` computes this model: a Llama of the library with weights in float32 on a CPU, no part of
    which was replaced."""
    from transformers.activations import SiLUActivation
    from transformers.models.llama import modeling_llama as llama

    names = ("ForCausalLM", "Model", "DecoderLayer", "Attention", "MLP", "RMSNorm", "RotaryEmbedding")
    parts = {getattr(llama, f"Llama{name}") for name in names}
    parts |= {torch.nn.Embedding, torch.nn.Linear, torch.nn.ModuleList, SiLUActivation}
    return (
        type(model) is llama.LlamaForCausalLM
        and model.config.hidden_act == "silu"
        and all(type(module) in parts for module in model.modules())
        and all(p.dtype == torch.float32 and p.device.type == "cpu" for p in model.parameters())
    )


@dataclass(frozen=True)
class _Tokens:
    """The new tokens of some rows, packed.

    Attributes:
        rows, columns: [tokens], where each is stored in the cache; the column is its position.
        single: number of leading rows with one new token.
        padded: [tokens of the other rows], their places among these rows padded to `longest`.
        first, last: of all rows.
        masks: of the single rows, [rows, 1, 1, columns], and of the others, [rows, 1, longest, columns]; added to the
            scores. None if these other rows hold nothing yet, so that their attention is causal.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    single: int
    padded: torch.Tensor
    longest: int
    first: int
    last: int
    masks: tuple[torch.Tensor, torch.Tensor | None]


class _Joined:
    """Linear layers with the same input, computed by one product. Their weights become parts of one tensor."""

    def __init__(self, *layers: torch.nn.Linear) -> None:
        self._sizes = [layer.out_features for layer in layers]
        self._weight = self._joined([layer.weight for layer in layers])
        biases = [layer.bias for layer in layers if layer.bias is not None]
        self._bias = self._joined(biases) if biases else None

    def _joined(self, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
        joined = torch.cat([parameter.detach() for parameter in parameters])
        for parameter, part in zip(parameters, torch.split(joined, self._sizes), strict=True):
            parameter.data = part  # new weights are copied into it (`EmbeddedEngine.update`)
        return joined

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.split(functional.linear(x, self._weight, self._bias), self._sizes, -1)


class LlamaPass:
    """Runs one model (`is_llama`) with a cache."""

    def __init__(self, model: Any, cache: SlotCache) -> None:
        self.model = model
        self.cache = cache
        self.heads: int = model.config.num_attention_heads
        self.shared: int = self.heads // model.config.num_key_value_heads
        self.epsilon: float = model.config.rms_norm_eps
        layers = model.model.layers
        attentions = [layer.self_attn for layer in layers]
        self._inputs = [_Joined(each.q_proj, each.k_proj, each.v_proj) for each in attentions]
        self._gates = [_Joined(layer.mlp.gate_proj, layer.mlp.up_proj) for layer in layers]

    def extend(self, first: int, tokens: Sequence[list[int]], cached: Sequence[int]) -> torch.Tensor:
        """Append tokens to rows and return the logits after each row's last one; see `Decoder.extend`."""
        base = self.model.model
        new = self._pack(first, tokens, cached)
        hidden = base.embed_tokens(torch.tensor([id for row in tokens for id in row]))
        cos, sin = (turn[0, :, None] for turn in base.rotary_emb(hidden, new.columns[None]))
        for number, layer in enumerate(base.layers):
            attention, mlp = layer.self_attn, layer.mlp
            x = self._normed(layer.input_layernorm, hidden)
            query, key, value = (part.view(len(hidden), -1, attention.head_dim) for part in self._inputs[number](x))
            slot = self.cache.layer(number)
            slot.store(_rotated(key, cos, sin), value, new.rows, new.columns)
            if number == len(base.layers) - 1 and len(hidden) > len(tokens):
                # Of the other tokens only the keys and values are needed from here on.
                ends = torch.tensor([len(row) for row in tokens]).cumsum(0) - 1
                hidden, query, cos, sin = (each[ends] for each in (hidden, query, cos, sin))
                new = replace(new, single=len(tokens), masks=(_mask(new.columns[ends, None]), None))
            attended = self._attend(_rotated(query, cos, sin).mul_(attention.scaling), slot.keys, slot.values, new)
            hidden = _added(hidden, attention.o_proj, attended)
            x = self._normed(layer.post_attention_layernorm, hidden)
            gate, up = self._gates[number](x)
            hidden = _added(hidden, mlp.down_proj, functional.silu(gate).mul_(up))
        logits: torch.Tensor = self.model.lm_head(self._normed(base.norm, hidden))
        return logits

    def _pack(self, first: int, tokens: Sequence[list[int]], cached: Sequence[int]) -> _Tokens:
        single = sum(1 for _ in takewhile(lambda row: len(row) == 1, tokens))
        others = range(single, len(tokens))
        longest = max((len(tokens[i]) for i in others), default=0)
        start = torch.tensor(cached)
        width = max((cached[i] for i in others), default=0) + longest
        self.cache.set_window(Window(first, len(tokens), None, max(width, max(cached) + 1)))
        counts = torch.tensor([len(row) for row in tokens])
        rows = torch.arange(len(tokens)).repeat_interleave(counts)
        within = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
        begun = any(cached[single:])
        return _Tokens(
            rows=rows + first,
            columns=start[rows] + within,
            single=single,
            padded=(rows[single:] - single) * longest + within[single:],
            longest=longest,
            first=first,
            last=first + len(tokens),
            masks=(
                _mask(start[:single, None]),
                _mask(start[single:, None] + torch.arange(longest)) if begun else None,
            ),
        )

    def _normed(self, norm: Any, hidden: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(hidden, hidden.shape[-1:], norm.weight, self.epsilon)

    def _attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, new: _Tokens) -> torch.Tensor:
        """What each token attends to, [tokens, heads * head size].

        Args:
            query: [tokens, heads, head size], scaled.
            keys, values: the layer's buffers, [rows, heads with keys of their own, columns, head size].
        """
        parts = []
        middle = new.first + new.single
        if new.single:
            mask = new.masks[0]
            key, value = (t[new.first : middle, :, : mask.shape[-1]] for t in (keys, values))
            # The heads that share keys are the rows of one product.
            grouped = query[: new.single].view(new.single, -1, self.shared, query.shape[-1])
            parts.append(_weighed(grouped, key, value, mask).view(new.single, -1))
        if new.last > middle:
            other = new.masks[1]
            width = new.longest if other is None else other.shape[-1]
            key, value = (t[middle : new.last, :, :width] for t in (keys, values))
            if self.shared > 1:
                key, value = (t.repeat_interleave(self.shared, 1) for t in (key, value))
            count = new.last - middle
            padded = query.new_zeros(count * new.longest, *query.shape[1:])
            padded[new.padded] = query[new.single :]
            queries = padded.view(count, new.longest, *query.shape[1:]).transpose(1, 2)
            if other is not None and len(padded) * self.heads * width <= SMALL:
                attended = _weighed(queries, key, value, other)
            else:
                attended = functional.scaled_dot_product_attention(
                    queries, key, value, attn_mask=other, is_causal=other is None, scale=1.0
                )
            parts.append(attended.transpose(1, 2).reshape(count * new.longest, -1)[new.padded])
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _weighed(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attention by two batched products and a softmax; `mask` is added to the scores."""
    scores = torch.matmul(query, key.transpose(2, 3)).add_(mask)
    return torch.matmul(scores.softmax(-1), value)


def _mask(positions: torch.Tensor) -> torch.Tensor:
    """0 where a token at these positions [rows, tokens] may attend, the lowest finite number elsewhere: [rows, 1,
    tokens, columns]."""
    if not positions.numel():
        return positions.new_zeros(0, dtype=torch.float32)
    ahead = torch.arange(int(positions.max()) + 1) > positions[:, None, :, None]
    return torch.zeros(ahead.shape).masked_fill_(ahead, torch.finfo(torch.float32).min)


def _rotated(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions: [tokens, heads, head size] turned by [tokens, 1, head size]."""
    low, high = states.chunk(2, -1)
    return torch.addcmul(states * cos, torch.cat((-high, low), -1), sin)


def _added(hidden: torch.Tensor, layer: Any, inputs: torch.Tensor) -> torch.Tensor:
    """`hidden` plus the layer's output."""
    added = torch.addmm(hidden, inputs, layer.weight.t())
    return added if layer.bias is None else added.add_(layer.bias)
