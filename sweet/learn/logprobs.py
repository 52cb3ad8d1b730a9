"""Log-probabilities of supervised spans, with logits formed at supervised tokens only.

The hidden state in front of each supervised token goes through the output layer, in chunks, with the log-sum-exp in
fp32; everything else never becomes logits. Sequences are padded on the right and sorted by length under a budget of
tokens; a causal model never looks to the right, so no attention mask is needed and the fast causal kernels apply.

Sequences that begin alike (the candidates of a turn, both sides of a preference) are computed as one prefix tree
(`sweet.learn.tree`): what they share once. Whether a model's attention takes such a mask is tried on a few tokens;
where it does not, every sequence is computed by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sweet.learn.tokens import TokenSequence
from sweet.learn.tree import Tree, common, plant

CHUNK_NUMBERS = 1 << 24
"""Logits that exist at once: 64 MiB in fp32."""

TOKEN_BUDGET = 2048
"""Tokens of one forward, padding included, where nobody says otherwise."""


@dataclass(frozen=True)
class SpanScores:
    """Sums of natural-log probabilities and token counts of spans, both of shape [spans], in the order of the spans."""

    sums: Tensor
    counts: Tensor


class Scorer:
    """A causal model seen as a scorer of spans.

    Args:
        model: a Hugging Face causal language model.
        chunk: logits that may exist at once.

    The output layer is applied to selected hidden states, and the scaling or soft cap that some families add is read
    from the configuration; whether that gives the model's own logits is checked on a few tokens. Where it does not,
    the model's own forward is used: right for any model, with logits at every position.
    """

    def __init__(self, model: Any, chunk: int = CHUNK_NUMBERS) -> None:
        self.model = model
        self.device: torch.device = next(model.parameters()).device
        # Weights that are trained stay fp32; a GPU computes with them in bf16, for the reference and the policy alike.
        self._mixed = self.device.type == "cuda" and model.dtype == torch.float32
        self._vocabulary = int(model.get_output_embeddings().weight.shape[0])
        self._chunk = max(1, chunk // self._vocabulary)
        config = model.config.get_text_config()
        self._scale = float(getattr(config, "logit_scale", None) or 1.0)
        self._scale /= float(getattr(config, "logits_scaling", None) or 1.0)
        self._cap: float | None = getattr(config, "final_logit_softcapping", None)
        self._split = self._splits()
        self.shares_up_to = self._longest_shared(config)
        """The longest sequence that may stand in a prefix tree; 0 where the model's attention takes no such mask."""

    # The output layer ------------------------------------------------------------------------------------------

    def _logits(self, states: Tensor) -> Tensor:
        logits: Tensor = self.model.get_output_embeddings()(states).float() * self._scale
        return logits if self._cap is None else torch.tanh(logits / self._cap) * self._cap

    def _hidden(self, ids: Tensor, **more: Any) -> Tensor:
        states: Tensor = self.model.base_model(input_ids=ids, use_cache=False, **more).last_hidden_state
        return states

    @torch.inference_mode()
    def _splits(self) -> bool:
        """Whether hidden states and output layer give the model's own logits."""
        ids = (torch.arange(4, device=self.device) % self._vocabulary)[None]
        try:
            own = self.model(input_ids=ids, use_cache=False).logits.float()
            slack = 1e-3 if self.model.dtype == torch.float32 else 5e-2
            return bool(torch.allclose(self._logits(self._hidden(ids)), own, rtol=slack, atol=slack))
        except (AttributeError, TypeError, RuntimeError):
            return False

    def _longest_shared(self, config: Any) -> int:
        if not self._split or not self._shares_prefixes():
            return 0
        # A tree's mask takes the place of a sliding window, which is the same only within the window.
        window: int | None = getattr(config, "sliding_window", None)
        return window or sys.maxsize

    @torch.inference_mode()
    def _shares_prefixes(self) -> bool:
        """Whether a tree gives the same states as plain sequences, on a few tokens."""
        ids = [number % self._vocabulary for number in range(9)]
        rows = [ids[:5] + ids[6:8], ids[:5] + ids[7:], ids[2:7]]
        try:
            tree = plant(rows)
            states = self._forest([tree])[0]
            for row, path in zip(rows, tree.paths, strict=True):
                alone = self._hidden(torch.tensor([row], device=self.device))[0]
                if not torch.allclose(states[path].float(), alone.float(), rtol=2e-2, atol=2e-2):
                    return False
        except (AttributeError, TypeError, ValueError, RuntimeError, NotImplementedError):
            return False
        return True

    def _token_logprobs(self, states: Tensor, targets: Tensor) -> Tensor:
        """log p(target) for each state. states [n, width], targets [n] -> [n], fp32."""

        def chunk(part: Tensor, wanted: Tensor) -> Tensor:
            logits = self._logits(part)
            return logits.gather(1, wanted[:, None])[:, 0] - logits.logsumexp(1)

        if len(states) <= self._chunk:
            return chunk(states, targets)
        pieces = zip(torch.split(states, self._chunk), torch.split(targets, self._chunk), strict=True)
        if torch.is_grad_enabled():
            # The logits of a chunk are formed again in the backward pass instead of being kept.
            return torch.cat([checkpoint(chunk, part, wanted, use_reentrant=False) for part, wanted in pieces])
        return torch.cat([chunk(part, wanted) for part, wanted in pieces])

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._mixed)

    # Spans -----------------------------------------------------------------------------------------------------

    def __call__(self, sequences: Sequence[TokenSequence], groups: Sequence[Sequence[int]] | None = None) -> SpanScores:
        """The spans of `sequences` in one forward, with gradients where they are enabled; order kept.

        Args:
            sequences: what to score; every span begins behind at least one id.
            groups: indices of sequences that begin alike, every index once; each group is computed as one prefix tree
                where the model allows. None computes each sequence by itself.
        """
        groups = self._groups(sequences, groups)
        trees = [plant([sequences[i].ids for i in group]) for group in groups]
        where = {
            index: (row, path)
            for row, (group, tree) in enumerate(zip(groups, trees, strict=True))
            for index, path in zip(group, tree.paths, strict=True)
        }
        rows: list[int] = []
        columns: list[int] = []
        wanted: list[int] = []
        counts: list[int] = []
        for index, sequence in enumerate(sequences):
            row, path = where[index]
            for span in sequence.spans:
                columns.extend(path[span.start - 1 : span.stop - 1])
                wanted.extend(sequence.ids[span.start : span.stop])
                counts.append(span.stop - span.start)
                rows.extend([row] * counts[-1])
        if min(counts, default=0) < 1:
            raise ValueError("a sequence with nothing supervised")
        size = torch.tensor(counts, device=self.device)
        at = (torch.tensor(rows, device=self.device), torch.tensor(columns, device=self.device))
        targets = torch.tensor(wanted, device=self.device)
        with self._precision():
            if self._split:
                picked = self._token_logprobs(self._forest(trees)[at], targets)
            else:
                logits = self.model(input_ids=self._padded([t.ids for t in trees]), use_cache=False).logits[at].float()
                picked = logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(1)
        owner = torch.arange(len(counts), device=self.device).repeat_interleave(size)
        return SpanScores(torch.zeros(len(counts), device=self.device).index_add(0, owner, picked), size)

    def _groups(
        self, sequences: Sequence[TokenSequence], groups: Sequence[Sequence[int]] | None
    ) -> Sequence[Sequence[int]]:
        """The groups, or every sequence by itself where prompts cannot be shared."""
        if groups is not None and self.shares_up_to >= max(len(sequence.ids) for sequence in sequences):
            return groups
        return [[index] for index in range(len(sequences))]

    def _padded(self, rows: Sequence[list[int]]) -> Tensor:
        """Rows of numbers as one tensor, zeros on the right."""
        width = max(map(len, rows))
        return torch.tensor([row + [0] * (width - len(row)) for row in rows], device=self.device)

    def _forest(self, trees: Sequence[Tree]) -> Tensor:
        """Hidden states of every slot, one tree a row: [trees, slots, width]."""
        ids = self._padded([tree.ids for tree in trees])
        if not any(tree.branches for tree in trees):
            return self._hidden(ids)
        slots = torch.arange(ids.shape[1], device=self.device)
        ends = self._padded([tree.ends for tree in trees])
        seen = (slots[None, None, :] <= slots[None, :, None]) & (slots[None, :, None] < ends[:, None, :])
        # Padding sees itself: a row of nothing but -inf would become NaN.
        seen |= torch.eye(len(slots), dtype=torch.bool, device=self.device)
        kind = torch.bfloat16 if self._mixed else self.model.dtype
        mask = torch.zeros(seen.shape, dtype=kind, device=self.device).masked_fill_(~seen, torch.finfo(kind).min)
        return self._hidden(
            ids, attention_mask=mask[:, None], position_ids=self._padded([tree.positions for tree in trees])
        )


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices in batches of similar length whose padded size stays within `budget` (a longer one stands alone)."""
    batch: list[int] = []
    width = 0
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batch and max(width, lengths[index]) * (len(batch) + 1) > budget:
            yield batch
            batch, width = [], 0
        batch.append(index)
        width = max(width, lengths[index])
    if batch:
        yield batch


@torch.inference_mode()
def span_logprobs(
    scorer: Scorer, sequences: Sequence[TokenSequence], budget: int = TOKEN_BUDGET
) -> list[tuple[Tensor, Tensor]]:
    """Sums and counts of the spans of each sequence, on the CPU, without gradients, in the order of `sequences`."""
    results: list[tuple[Tensor, Tensor]] = [(torch.empty(0), torch.empty(0))] * len(sequences)
    for batch in batches([len(sequence.ids) for sequence in sequences], budget):
        scores = scorer([sequences[i] for i in batch])
        sizes = [len(sequences[i].spans) for i in batch]
        parts = zip(batch, torch.split(scores.sums.cpu(), sizes), torch.split(scores.counts.cpu(), sizes), strict=True)
        for index, sums, counts in parts:
            results[index] = (sums.clone(), counts.clone())
    return results


@torch.inference_mode()
def group_logprobs(
    scorer: Scorer, groups: Sequence[Sequence[TokenSequence]], budget: int = TOKEN_BUDGET
) -> list[list[float]]:
    """Mean log-probability of the first span of each sequence, group by group.

    What the sequences of a group share is computed once; a group larger than `budget` is computed in parts.
    """
    parts: list[tuple[int, list[int]]] = []
    for number, group in enumerate(groups):
        parts += [(number, part) for part in _cut(group, list(range(len(group))), budget)]
    sizes = [_slots(groups[number], part) for number, part in parts]
    results = [[0.0] * len(group) for group in groups]
    for batch in batches(sizes, budget):
        rows = [(number, index) for i in batch for number, part in [parts[i]] for index in part]
        sequences = [groups[number][index] for number, index in rows]
        ends = list(accumulate(len(parts[i][1]) for i in batch))
        alike = [range(end - len(parts[i][1]), end) for i, end in zip(batch, ends, strict=True)]
        first = list(accumulate((len(sequence.spans) for sequence in sequences), initial=0))[:-1]
        scores = scorer(sequences, alike)
        means = (scores.sums / scores.counts)[first].tolist()
        for (number, index), mean in zip(rows, means, strict=True):
            results[number][index] = mean
    return results


def _slots(group: Sequence[TokenSequence], part: Sequence[int]) -> int:
    """How many slots the tree of a part has."""
    rows = sorted(group[i].ids for i in part)
    return len(rows[0]) + sum(len(b) - common(a, b) for a, b in pairwise(rows))


def _cut(group: Sequence[TokenSequence], part: list[int], budget: int) -> list[list[int]]:
    """The part in halves until each fits `budget`, or stands alone."""
    if len(part) == 1 or _slots(group, part) <= budget:
        return [part]
    half = len(part) // 2
    return _cut(group, part[:half], budget) + _cut(group, part[half:], budget)
