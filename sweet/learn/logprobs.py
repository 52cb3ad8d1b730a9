"""Log-probabilities of supervised spans, with logits formed at supervised tokens only.

The hidden state in front of each supervised token goes through the output layer, in chunks, with the log-sum-exp in
fp32; everything else never becomes logits. Sequences are padded on the right and sorted by length under a budget of
tokens; a causal model never looks to the right, so no attention mask is needed and the fast causal kernels apply.

Sequences that share a prompt and differ in one reply (the candidates of a turn) are scored as trunk and branches: the
prompt once, its keys and values shared by all its replies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sweet.learn.tokens import TokenSequence

CHUNK_NUMBERS = 1 << 24
"""Logits that exist at once: 64 MiB in fp32."""

TOKEN_BUDGET = 4096
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
        self.shares = self._split and self._shares_prefixes()
        """Whether prompts can be computed once for several replies."""

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

    @torch.inference_mode()
    def _shares_prefixes(self) -> bool:
        """Whether a prompt computed once gives the same numbers, on prompts of two lengths."""
        ids = (torch.arange(9, device=self.device) % self._vocabulary)[None]
        try:
            branches = ids[:, 5:8].expand(3, -1)
            trunks = torch.stack([ids[0, :5], torch.cat([ids[0, :2], ids[0, 2:5]])])
            keep = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]], device=self.device)
            owner = torch.tensor([0, 1, 1], device=self.device)
            shared = self._branch_hidden(trunks, keep, branches, owner)
            whole = self._hidden(ids[:, :8])[:, 5:]
            short = self._hidden(ids[:, 2:8])[:, 3:]
            plain = torch.cat([whole, short, short])
            return bool(torch.allclose(shared.float(), plain.float(), rtol=2e-2, atol=2e-2))
        except (AttributeError, TypeError, ValueError, RuntimeError, NotImplementedError):
            return False

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

    def __call__(self, sequences: Sequence[TokenSequence]) -> SpanScores:
        """The spans of `sequences` in one forward, with gradients where they are enabled; order kept."""
        rows, columns, owners, counts = _positions(sequences)
        width = max(len(sequence.ids) for sequence in sequences)
        ids = torch.zeros(len(sequences), width, dtype=torch.long)
        for i, sequence in enumerate(sequences):
            ids[i, : len(sequence.ids)] = torch.tensor(sequence.ids)
        ids, rows, columns = ids.to(self.device), rows.to(self.device), columns.to(self.device)
        targets = ids[rows, columns]
        with self._precision():
            if self._split:
                picked = self._token_logprobs(self._hidden(ids)[rows, columns - 1], targets)
            else:
                logits = self.model(input_ids=ids, use_cache=False).logits[rows, columns - 1].float()
                picked = logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(1)
        sums = torch.zeros(len(counts), device=self.device).index_add(0, owners.to(self.device), picked)
        return SpanScores(sums, counts.to(self.device))

    def _branch_hidden(self, trunks: Tensor, keep: Tensor, branches: Tensor, owner: Tensor) -> Tensor:
        """States of branches behind their trunks: trunks [t, l] padded on the left, branches [b, m], owner [b]."""
        place = (keep.cumsum(1) - 1).clamp(min=0)
        made = self.model.base_model(input_ids=trunks, attention_mask=keep, position_ids=place, use_cache=True)
        cache = made.past_key_values
        cache.batch_select_indices(owner)
        mask = torch.cat([keep[owner], torch.ones_like(branches)], 1)
        ahead = keep.sum(1)[owner][:, None] + torch.arange(branches.shape[1], device=branches.device)
        states: Tensor = self.model.base_model(
            input_ids=branches, attention_mask=mask, position_ids=ahead, past_key_values=cache, use_cache=True
        ).last_hidden_state
        return states

    def branches(self, groups: Sequence[Sequence[TokenSequence]]) -> SpanScores:
        """The one span of each sequence, the sequences of a group sharing all ids before their span, in order."""
        flat = [sequence for group in groups for sequence in group]
        trunk_ids = [group[0].ids[: group[0].spans[0].start - 1] for group in groups]
        length = max(map(len, trunk_ids))
        trunks = torch.zeros(len(groups), length, dtype=torch.long)
        keep = torch.zeros(len(groups), length, dtype=torch.long)
        for i, ids in enumerate(trunk_ids):
            trunks[i, length - len(ids) :] = torch.tensor(ids)
            keep[i, length - len(ids) :] = 1
        width = max(s.spans[0].stop - s.spans[0].start for s in flat)
        inputs = torch.zeros(len(flat), width, dtype=torch.long)
        wanted = torch.full((len(flat), width), -1, dtype=torch.long)
        for i, sequence in enumerate(flat):
            span = sequence.spans[0]
            size = span.stop - span.start
            inputs[i, :size] = torch.tensor(sequence.ids[span.start - 1 : span.stop - 1])
            wanted[i, :size] = torch.tensor(sequence.ids[span.start : span.stop])
        owner = torch.tensor([i for i, group in enumerate(groups) for _ in group])
        rows, columns = (wanted >= 0).nonzero(as_tuple=True)
        targets = wanted[rows, columns].to(self.device)
        with self._precision():
            states = self._branch_hidden(*(t.to(self.device) for t in (trunks, keep, inputs, owner)))
            picked = self._token_logprobs(states[rows.to(self.device), columns.to(self.device)], targets)
        sums = torch.zeros(len(flat), device=self.device).index_add(0, rows.to(self.device), picked)
        return SpanScores(sums, (wanted >= 0).sum(1).to(self.device))


def _positions(sequences: Sequence[TokenSequence]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Row and column of every supervised token, the index of its span, and each span's token count."""
    spans = [(row, span) for row, sequence in enumerate(sequences) for span in sequence.spans]
    counts = torch.tensor([span.stop - span.start for _, span in spans], dtype=torch.long)
    if not len(counts) or int(counts.min()) < 1:
        raise ValueError("a sequence with nothing supervised")
    rows = torch.tensor([row for row, _ in spans]).repeat_interleave(counts)
    columns = torch.cat([torch.arange(span.start, span.stop) for _, span in spans])
    return rows, columns, torch.arange(len(spans)).repeat_interleave(counts), counts


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
    """Mean log-probability of the one span of each sequence, group by group.

    The sequences of a group must share every id before their span; prompts are computed once where the model allows.
    """
    if not scorer.shares:
        flat = [sequence for group in groups for sequence in group]
        means = iter([float(sums[0] / counts[0]) for sums, counts in span_logprobs(scorer, flat, budget)])
        return [[next(means) for _ in group] for group in groups]
    results: list[list[float]] = [[] for _ in groups]
    for batch in _group_batches(groups, budget):
        scores = scorer.branches([groups[i] for i in batch])
        means_of = torch.split((scores.sums / scores.counts).cpu(), [len(groups[i]) for i in batch])
        for index, part in zip(batch, means_of, strict=True):
            results[index] = part.tolist()
    return results


def _group_batches(groups: Sequence[Sequence[TokenSequence]], budget: int) -> Iterator[list[int]]:
    """Groups with replies and prompts of similar length, so many that the padded branches stay within `budget`."""
    widths = [max(s.spans[0].stop - s.spans[0].start for s in group) for group in groups]
    trunks = [group[0].spans[0].start for group in groups]
    batch: list[int] = []
    width = trunk = rows = 0
    for index in sorted(range(len(groups)), key=lambda i: (widths[i] // 8, trunks[i], i)):
        wide, long, more = max(width, widths[index]), max(trunk, trunks[index]), rows + len(groups[index])
        if batch and max(wide * more, long * (len(batch) + 1)) > budget:
            yield batch
            batch, wide, long, more = [], widths[index], trunks[index], len(groups[index])
        batch.append(index)
        width, trunk, rows = wide, long, more
    if batch:
        yield batch
