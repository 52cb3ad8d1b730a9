"""Log-probabilities of supervised spans, with logits formed at supervised tokens only.

The hidden state in front of each supervised token goes through the output layer, in chunks, with the log-sum-exp in
fp32; everything else never becomes logits. Sequences are padded on the right and sorted by length under a budget of
tokens; a causal model never looks to the right, so no attention mask is needed and the fast causal kernels apply.

Sequences that begin alike (the candidates of a turn, the turns of a dialogue, both sides of a preference) are computed
as one prefix tree (`sweet.learn.tree`, `sweet.learn.attention`): what they share once. What is alike is seen in the
ids; nobody has to say it. Whether a model can be computed so is tried on a few tokens; where it cannot, every sequence
is computed by itself, and so is one with pictures (`sweet.learn.vision_processor`): equal ids are not equal pictures,
and positions do not count along the path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sweet.errors import UsageError, first_line
from sweet.hints import stage
from sweet.learn.attention import Attention, planted
from sweet.learn.head import head_of, prefix_means
from sweet.learn.tokens import TokenSequence
from sweet.learn.tree import Grove, Tree, plant
from sweet.learn.vision_processor import image_inputs
from sweet.learn.work import Work, longest_shared, stands_in_tree, work_of

CHUNK_NUMBERS = 1 << 24
"""Logits that exist at once: 64 MiB in fp32."""

TOKEN_BUDGET = 2048
"""Tokens of one forward, padding included, where nobody says otherwise."""


@dataclass(frozen=True)
class SpanScores:
    """Sums of natural-log probabilities and token counts of spans, both of shape [spans], in the order of the spans.

    `values` [spans]: where the model has a regression head, its score of the turn that ends with the span.
    """

    sums: Tensor
    counts: Tensor
    values: Tensor | None = None


class Scorer:
    """A causal model seen as a scorer of spans.

    Args:
        model: a Hugging Face causal language model.
        chunk: logits that may exist at once.
        share: compute what sequences share once; False computes each by itself.
        device: where to compute; where the weights are, if not given.
        attention: how trees are attended over (`sweet.learn.attention`); where not given, by the fused kernel on a
            GPU. A model that the kernel cannot compute is computed block by block, and `refused` says why.

    The output layer is applied to selected hidden states, and the scaling or soft cap that some families add is read
    from the configuration; whether that gives the model's own logits is checked on a few tokens. Where it does not,
    the model's own forward is used: right for any model, with logits at every position.
    """

    def __init__(
        self,
        model: Any,
        chunk: int = CHUNK_NUMBERS,
        *,
        share: bool = True,
        device: torch.device | None = None,
        attention: Attention | None = None,
    ) -> None:
        self.model = model
        self.device: torch.device = device or next(model.parameters()).device
        # Weights that are trained stay fp32; a GPU computes with them in bf16, for the reference and the policy alike.
        self._mixed = self.device.type == "cuda" and model.dtype == torch.float32
        output = model.get_output_embeddings().weight
        self._vocabulary = int(getattr(output, "ds_shape", output.shape)[0])  # ZeRO-3 keeps shapes apart
        self._chunk = max(1, chunk // self._vocabulary)
        config = model.config.get_text_config()
        self._scale = float(getattr(config, "logit_scale", None) or 1.0)
        self._scale /= float(getattr(config, "logits_scaling", None) or 1.0)
        self._cap: float | None = getattr(config, "final_logit_softcapping", None)
        self._split = self._splits()
        self.attention: Attention = attention or ("flex" if self.device.type == "cuda" else "blocks")
        self.refused: str | None = None
        """Why the fused kernel, which was to be taken, is not; None where it is, or never was to be."""
        self.shares_up_to = self._longest_shared(config) if share else 0
        """The longest sequence that may stand in a prefix tree; 0 where none may."""
        self.head = head_of(model)
        self.reads_tokens = True
        """False where only the head is asked: no logits are formed, and the log-probabilities are NaN."""
        if self.head is not None and not self._split:
            raise UsageError(
                "The model does not show its last hidden states, so a regression head cannot read them.",
                where=str(model.config.get_text_config().model_type),
                fix=stage("train-critic", variant="advantage"),
            )
        self.work = Work()
        """What the forwards of this scorer have computed so far."""

    # The output layer ------------------------------------------------------------------------------------------

    def _logits(self, states: Tensor) -> Tensor:
        logits: Tensor = self.model.get_output_embeddings()(states).float()
        if self._scale != 1.0:
            logits = logits * self._scale
        return logits if self._cap is None else torch.tanh(logits / self._cap) * self._cap

    def _hidden(self, ids: Tensor, **more: Any) -> Tensor:
        states: Tensor = self.model.base_model(input_ids=ids, use_cache=False, **more).last_hidden_state
        return states

    @torch.no_grad()  # weights that ZeRO-3 fetches in inference mode could not be changed afterwards
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
        if not self._split:
            return 0
        if self.attention == "flex":
            self.refused = self._trial()
            if self.refused is not None:
                self.attention = "blocks"
        if self.attention == "blocks" and self._trial() is not None:
            self.refused = None  # then there is nothing to attend over
            return 0
        # A tree's mask takes the place of a sliding window, which is the same only within the window.
        window: int | None = getattr(config, "sliding_window", None)
        return window or sys.maxsize

    @torch.no_grad()
    def _trial(self) -> str | None:
        """Why a tree does not give the states of plain sequences, on a few tokens; None where it does."""
        ids = [number % self._vocabulary for number in range(9)]
        rows = [ids[:5] + ids[6:8], ids[:5] + ids[7:], ids[2:7]]
        exact = self.model.dtype == torch.float32 and not self._mixed
        slack = 1e-3 if exact else 3e-2
        # A kernel is compiled at its first call, and a compiler raises whatever its parts raise.
        usual = (AttributeError, KeyError, TypeError, ValueError, RuntimeError, NotImplementedError)
        expected = Exception if self.attention == "flex" else usual
        try:
            tree = plant(rows)
            with self._precision():
                states = self._planted(tree)[0].float()
                for row, path in zip(rows, tree.paths, strict=True):
                    alone = self._hidden(torch.tensor([row], device=self.device))[0].float()
                    # Negated, so that what is no number is not right either.
                    if not float((states[path] - alone).norm()) <= slack * float(alone.norm()):
                        return "it gives other numbers than the model's own attention"
                if self.attention == "flex":
                    self._try_backward(tree)
        except expected as error:
            return first_line(error)
        return None

    def _try_backward(self, tree: Tree) -> None:
        """The gradients of a tree's embeddings, which take a kernel of their own that may be refused."""
        found: list[Tensor] = []

        def leaf(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
            found.append(output.detach().requires_grad_())
            return found[0]

        hook = self.model.get_input_embeddings().register_forward_hook(leaf)
        try:
            with torch.enable_grad():
                torch.autograd.grad(self._planted(tree).float().sum(), found[0])
        finally:
            hook.remove()

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

    @property
    def compute_type(self) -> str:
        """What the numbers are computed in, by name."""
        kept = str(self.model.dtype).removeprefix("torch.")
        return f"{kept}, autocast bfloat16" if self._mixed else kept

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._mixed)

    # Spans -----------------------------------------------------------------------------------------------------

    def __call__(self, sequences: Sequence[TokenSequence]) -> SpanScores:
        """The spans of `sequences` in one forward, with gradients where they are enabled; order kept.

        Every span begins behind at least one id. What does not fit into memory at once is the caller's to part
        (`packs`).
        """
        tree = plant([sequence.ids for sequence in sequences])
        lengths = [len(sequence.ids) for sequence in sequences]
        shares_up_to = longest_shared(sequences, self.shares_up_to)
        shared = stands_in_tree(lengths, len(tree.ids), shares_up_to)
        self.work += work_of(lengths, len(tree.ids), shares_up_to)
        rows: list[int] = []
        columns: list[int] = []
        wanted: list[int] = []
        counts: list[int] = []
        for index, sequence in enumerate(sequences):
            path = tree.paths[index] if shared else range(len(sequence.ids))
            for span in sequence.spans:
                columns.extend(path[span.start - 1 : span.stop - 1])
                wanted.extend(sequence.ids[span.start : span.stop])
                counts.append(span.stop - span.start)
                rows.extend([0 if shared else index] * counts[-1])
        if min(counts, default=0) < 1:
            raise ValueError("a sequence with nothing supervised")
        size = torch.tensor(counts, device=self.device)
        at = (torch.tensor(rows, device=self.device), torch.tensor(columns, device=self.device))
        targets = torch.tensor(wanted, device=self.device)
        values = None
        with self._precision():
            if self._split:
                states = self._planted(tree) if shared else self._rows(sequences)
                if self.reads_tokens:
                    picked = self._token_logprobs(states[at], targets)
                else:
                    picked = torch.full((len(wanted),), torch.nan, device=self.device)
                if self.head is not None:
                    longest = max(lengths)
                    starts = range(0, len(sequences) * longest, longest)
                    paths = tree.paths if shared else [range(start, start + longest) for start in starts]
                    stops = [[span.end for span in sequence.spans] for sequence in sequences]
                    values = prefix_means(self.head(states).flatten(), paths, stops)
            else:
                ids = self._padded([sequence.ids for sequence in sequences])
                logits = self.model(input_ids=ids, use_cache=False).logits[at].float()
                picked = logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(1)
        owner = torch.arange(len(counts), device=self.device).repeat_interleave(size)
        return SpanScores(torch.zeros(len(counts), device=self.device).index_add(0, owner, picked), size, values)

    def _rows(self, sequences: Sequence[TokenSequence]) -> Tensor:
        """Hidden states of each sequence by itself: [sequences, longest, width]."""
        ids = self._padded([sequence.ids for sequence in sequences])
        pictures = [picture for sequence in sequences for picture in sequence.images]
        return self._hidden(ids, **image_inputs(self.model.base_model, pictures, ids))

    def _padded(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Rows of numbers as one tensor, zeros on the right."""
        width = max(map(len, rows))
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=self.device)

    def _planted(self, tree: Tree) -> Tensor:
        """Hidden states of every slot of a tree: [1, slots, width]."""
        ids = torch.tensor([tree.ids], device=self.device)
        positions = torch.tensor([tree.positions], device=self.device)
        with planted(self.model, tree, self.device, self.attention):
            return self._hidden(ids, position_ids=positions)

    def packs(self, bundles: Sequence[Sequence[TokenSequence]], budget: int) -> list[list[int]]:
        """Indices of bundles in groups, each for one forward of at most `budget` tokens (a larger bundle stands alone).

        What may be shared counts once, and bundles that begin alike come together. Sequences that cannot stand in a
        tree are grouped by length, padding counted.
        """
        return packs(bundles, budget, self.shares_up_to)


def packs(bundles: Sequence[Sequence[TokenSequence]], budget: int, shares_up_to: int) -> list[list[int]]:
    """`Scorer.packs` of a scorer that shares sequences up to this length."""
    longest = [max(len(sequence.ids) for sequence in bundle) for bundle in bundles]
    apart = [i for i, length in enumerate(longest) if length > longest_shared(bundles[i], shares_up_to)]
    together = sorted(set(range(len(bundles))) - set(apart))
    sizes = [longest[i] * len(bundles[i]) for i in apart]
    groups = [[apart[i] for i in batch] for batch in batches(sizes, budget)]
    grove = Grove()
    group: list[int] = []
    for index in sorted(together, key=lambda i: min(sequence.ids for sequence in bundles[i])):
        grove.add(sequence.ids for sequence in bundles[index])
        if group and grove.slots > budget:
            groups.append(group)
            group, grove = [], Grove()
            grove.add(sequence.ids for sequence in bundles[index])
        group.append(index)
    return [*groups, group] if group else groups


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


def span_logprobs(
    scorer: Scorer, sequences: Sequence[TokenSequence], budget: int = TOKEN_BUDGET
) -> list[tuple[Tensor, Tensor]]:
    """Sums and counts of the spans of each sequence, on the CPU, without gradients, in the order of `sequences`."""
    counts = (torch.tensor([span.stop - span.start for span in sequence.spans]) for sequence in sequences)
    return list(zip(_by_sequence(scorer, sequences, budget, lambda scores: scores.sums), counts, strict=True))


def span_values(scorer: Scorer, sequences: Sequence[TokenSequence], budget: int = TOKEN_BUDGET) -> list[Tensor]:
    """What the regression head says at the end of each span of each sequence, on the CPU, without gradients."""

    def values(scores: SpanScores) -> Tensor:
        if scores.values is None:
            raise ValueError("a model without a regression head")
        return scores.values

    return _by_sequence(scorer, sequences, budget, values)


@torch.inference_mode()
def _by_sequence(
    scorer: Scorer, sequences: Sequence[TokenSequence], budget: int, read: Callable[[SpanScores], Tensor]
) -> list[Tensor]:
    """What `read` takes of the scores [spans, …], sequence by sequence, computed in packs."""
    results = [torch.empty(0)] * len(sequences)
    for pack in scorer.packs([[sequence] for sequence in sequences], budget):
        scores = scorer([sequences[i] for i in pack])
        sizes = [len(sequences[i].spans) for i in pack]
        for index, part in zip(pack, torch.split(read(scores).cpu(), sizes), strict=True):
            results[index] = part.clone()
    return results


def group_logprobs(
    scorer: Scorer, groups: Sequence[Sequence[TokenSequence]], budget: int = TOKEN_BUDGET
) -> list[list[float]]:
    """Mean log-probability of the first span of each sequence, group by group."""
    flat = [sequence for group in groups for sequence in group]
    means = iter([float(sums[0] / counts[0]) for sums, counts in span_logprobs(scorer, flat, budget)])
    return [[next(means) for _ in group] for group in groups]
