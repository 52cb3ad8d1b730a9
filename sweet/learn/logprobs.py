"""Log-probabilities of supervised spans, with logits computed at supervised tokens only.

The hidden state before each supervised token goes through the output layer, in chunks, with the softmax in fp32; no
other logits are computed. These are the work that trees do not reduce: a reply's tokens belong to it alone. Sequences
are padded on the right and sorted by length under a token budget; a causal model does not attend to the right, so no
attention mask is needed and the fast causal kernels apply.

Sequences with a common prefix (the candidates of a turn, the turns of a dialogue, both sides of a preference) are
computed as one prefix tree (`sweet.learn.tree`, `sweet.learn.attention`), in which the shared part is computed once.
Common prefixes are found by comparing ids. Whether a model supports this is tested on a few tokens; if not, every
sequence is computed separately, and so is one with images (`sweet.learn.vision_processor`): equal ids are not equal
images, and positions do not follow the path.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sweet.errors import UsageError, first_line
from sweet.learn import blocks
from sweet.learn.attention import Attention, tree_attention
from sweet.learn.flex import FlexTree
from sweet.learn.head import get_head, prefix_means
from sweet.learn.sequences import Span, TokenSequence
from sweet.learn.tree import Forest, Tree, Work, build_tree, computed_work, longest_shared, uses_tree
from sweet.learn.vision_processor import VisionProcessor, blank_inputs, image_inputs

CHUNK_NUMBERS = 1 << 24
"""Maximum number of logits in memory at a time: 64 MiB in fp32."""

CACHED_NUMBERS = 1 << 20
"""The same without gradients on a CPU: 4 MiB, which its caches hold while the softmax passes over them several times.
Most positions of a prefix tree of replies are supervised, so that its logits fill the largest chunks."""

LEAST_ROWS = 256
"""Positions of such a chunk at least, whose products read all weights of the output layer once."""

CHECKED_BLOCK = 2
"""Slots of a block when a model is tested, so that its few tokens have several blocks and segments."""

TOKEN_BUDGET = 2048
"""Default budget of tokens in one forward pass, padding included."""


@dataclass(frozen=True)
class SpanScores:
    """Scores of spans, all of shape [spans].

    Attributes:
        sums: sums of natural-log probabilities, weighted if a span is in two parts (`Span.weights`).
        counts: numbers of tokens.
        values: the regression head's score of the turn that ends with the span; None for a model without one.
        states: the head's output for the state before each single id, [ids]; None for a model without one.
        token_logprobs: log-probabilities of the single ids, span after span, without weights, [ids].
        other_logprobs: log-probabilities of other ids at the same positions, [ids, k]; None if none were asked for.
        top_ids, top_logprobs: the most likely ids at the same positions, the most likely first, [ids, top]; None if
            none were asked for.
    """

    sums: Tensor
    counts: Tensor
    token_logprobs: Tensor
    values: Tensor | None = None
    states: Tensor | None = None
    other_logprobs: Tensor | None = None
    top_ids: Tensor | None = None
    top_logprobs: Tensor | None = None


class Scorer:
    """Computes log-probabilities of spans with a causal model.

    Args:
        model: a Hugging Face causal language model.
        chunk: maximum number of logits in memory at a time; CHUNK_NUMBERS by default.
        share: compute shared prefixes once; False computes each sequence separately.
        device: where to compute; by default where the weights are.
        attention: how attention over trees is computed (`sweet.learn.attention`); by default with the fused kernel on a
            GPU. A model that the kernel does not support is computed block by block, and `flex_error` says why.

    The output layer is applied to selected hidden states, with the scaling or soft cap of some model families read from
    the configuration; whether that gives the model's own logits is verified on a few tokens. If not, the model's own
    forward is used, which is right for any model but computes logits at every position.

    Raises:
        UsageError: the model has a regression head and does not expose its last hidden states.
    """

    def __init__(
        self,
        model: Any,
        chunk: int | None = None,
        *,
        share: bool = True,
        device: torch.device | None = None,
        attention: Attention | None = None,
    ) -> None:
        self.model = model
        self.device: torch.device = device or next(model.parameters()).device
        # Trained weights stay fp32; a GPU computes in bf16, for the reference as for the policy.
        self._mixed = self.device.type == "cuda" and model.dtype == torch.float32
        output = model.get_output_embeddings().weight
        self._vocabulary = int(getattr(output, "ds_shape", output.shape)[0])  # ZeRO-3 stores the shape separately
        self._chunk = max(1, (chunk or CHUNK_NUMBERS) // self._vocabulary)
        cached = max(LEAST_ROWS, CACHED_NUMBERS // self._vocabulary)
        self._chunk_without_gradients = min(self._chunk, cached) if self.device.type == "cpu" else self._chunk
        config = model.config.get_text_config()
        self._scale = float(getattr(config, "logit_scale", None) or 1.0)
        self._scale /= float(getattr(config, "logits_scaling", None) or 1.0)
        self._cap: float | None = getattr(config, "final_logit_softcapping", None)
        self._has_output_layer = self._check_split()
        self.attention: Attention = attention or ("flex" if self.device.type == "cuda" else "blocks")
        self.in_segments = self.device.type == "cpu"
        """Whether a tree is computed segment by segment if no gradients are needed."""
        self.flex_error: str | None = None
        """Why the fused kernel is not used although it should be; otherwise None."""
        self.max_shared_length = self._longest_shared(config) if share else 0
        """The maximum length of a sequence in a prefix tree; 0 computes each sequence separately."""
        self.head = get_head(model)
        self.computes_logprobs = True
        """False if only the regression head is needed: no logits are computed, and the log-probabilities are NaN."""
        if self.head is not None and not self._has_output_layer:
            raise UsageError(
                "The model does not expose its last hidden states, which a regression head needs.",
                where=str(model.config.get_text_config().model_type),
                fix="sweet train-critic --variant advantage",
            )
        self._vision: VisionProcessor | None = None
        self.work = Work()
        """What the forward passes of this scorer have computed so far."""

    def require_images(self, vision: VisionProcessor) -> None:
        """Run the vision tower in every forward pass from now on, and compute no prefix trees.

        In a pass whose sequences have no image, the tower computes an additional row with a blank image. Nothing is
        read of this row, so results do not change and its gradients are zero.
        """
        self._vision = vision
        self.max_shared_length = 0

    # Output layer ----------------------------------------------------------------------------------------------

    def _logits(self, states: Tensor) -> Tensor:
        logits: Tensor = self.model.get_output_embeddings()(states).float()
        if self._scale != 1.0:
            logits = logits * self._scale
        return logits if self._cap is None else torch.tanh(logits / self._cap) * self._cap

    def _hidden(self, ids: Tensor, **kwargs: Any) -> Tensor:
        states: Tensor = self.model.base_model(input_ids=ids, use_cache=False, **kwargs).last_hidden_state
        return states

    @torch.no_grad()  # weights that ZeRO-3 fetches in inference mode cannot be updated afterwards
    def _check_split(self) -> bool:
        """Whether hidden states and output layer give the model's own logits."""
        ids = (torch.arange(4, device=self.device) % self._vocabulary)[None]
        try:
            expected = self.model(input_ids=ids, use_cache=False).logits.float()
            tolerance = 1e-3 if self.model.dtype == torch.float32 else 5e-2
            return bool(torch.allclose(self._logits(self._hidden(ids)), expected, rtol=tolerance, atol=tolerance))
        except (AttributeError, TypeError, RuntimeError):
            return False

    def _longest_shared(self, config: Any) -> int:
        if not self._has_output_layer:
            return 0
        if self.attention == "flex":
            self.flex_error = self._check_tree()
            if self.flex_error is not None:
                self.attention = "blocks"
        if self.attention == "blocks" and self._check_tree() is not None:
            self.flex_error = None  # trees are not used at all
            return 0
        # A tree's mask replaces a sliding window, which is equivalent only within the window.
        window: int | None = getattr(config, "sliding_window", None)
        return min(window or sys.maxsize, _longest_unscaled(config))

    @torch.no_grad()
    def _check_tree(self) -> str | None:
        """Why a tree does not give the states of plain sequences, tested on a few tokens; None if it does."""
        ids = [number % self._vocabulary for number in range(9)]
        rows = [ids[:5] + ids[6:8], ids[:5] + ids[7:], ids[2:]]  # of one length, so that no padding is needed
        is_fp32 = self.model.dtype == torch.float32 and not self._mixed
        tolerance = 1e-3 if is_fp32 else 3e-2
        # A kernel is compiled at its first call, and the compiler may raise any exception.
        usual_errors = (AttributeError, KeyError, TypeError, ValueError, RuntimeError, NotImplementedError)
        exceptions = Exception if self.attention == "flex" else usual_errors
        try:
            tree = build_tree(rows)
            with self._precision():
                states = self._tree_states(tree, CHECKED_BLOCK)[0].float()
                sequence_states = self._hidden(torch.tensor(rows, device=self.device)).float()
                for expected, path in zip(sequence_states, tree.paths, strict=True):
                    # Negated, so that NaN counts as different.
                    if not float((states[path] - expected).norm()) <= tolerance * float(expected.norm()):
                        return "its results differ from those of the model's own attention"
                if self.attention == "flex":
                    self._try_backward(tree)
        except exceptions as error:
            return first_line(error)
        return None

    def _try_backward(self, tree: Tree) -> None:
        """Compute the gradients of a tree's embeddings, whose kernel may not be supported."""
        captured: list[Tensor] = []

        def capture(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
            captured.append(output.detach().requires_grad_())
            return captured[0]

        hook = self.model.get_input_embeddings().register_forward_hook(capture)
        try:
            with torch.enable_grad():
                torch.autograd.grad(self._tree_states(tree).float().sum(), captured[0])
        finally:
            hook.remove()

    def _token_logprobs(self, states: Tensor, targets: Tensor, top: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """log p(target) for each state, and the `top` most likely ids with theirs. states [n, width], targets [n, k] ->
        [n, k] fp32, [n, top] ids, [n, top] fp32."""

        def chunk(part: Tensor, targets_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # In one fused kernel, forward and backward, which takes a half of the time of a log-sum-exp of torch.
            logprobs = self._logits(part).log_softmax(1)
            return logprobs.gather(1, targets_), *_most_likely(logprobs, top)

        with_gradients = torch.is_grad_enabled()
        size = self._chunk if with_gradients else self._chunk_without_gradients
        chunks = self.chunks(len(states), size)
        if chunks == 1:
            return chunk(states, targets)
        pairs = zip(states.tensor_split(chunks), targets.tensor_split(chunks), strict=True)
        if with_gradients:
            # The logits of a chunk are recomputed in the backward pass instead of being stored.
            rows = [checkpoint(chunk, part, targets_, use_reentrant=False) for part, targets_ in pairs]
        else:
            rows = [chunk(part, targets_) for part, targets_ in pairs]
        logprobs, ids, values = (torch.cat(columns) for columns in zip(*rows, strict=True))
        return logprobs, ids, values

    def chunks(self, positions: int, size: int) -> int:
        """Return in how many chunks of at most `size` the logits of these positions are computed."""
        return max(1, -(-positions // size))

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._mixed)

    # Spans -----------------------------------------------------------------------------------------------------

    def __call__(self, sequences: Sequence[TokenSequence], other_ids: Tensor | None = None, top: int = 0) -> SpanScores:
        """Score the spans of `sequences` in one forward pass, in order, with gradients if enabled.

        Every span must start after at least one id. The caller divides sequences into batches that fit into memory
        (`pack`).

        Args:
            other_ids: [ids, k] other ids to score at the position of each supervised id.
            top: number of most likely ids to return at each of these positions; at most the vocabulary is returned.

        Raises:
            ValueError: a sequence has no supervised token.
        """
        tree = build_tree([sequence.ids for sequence in sequences])
        lengths = [len(sequence.ids) for sequence in sequences]
        max_shared_length = longest_shared(sequences, self.max_shared_length)
        shared = uses_tree(lengths, len(tree.ids), max_shared_length)
        self.work += computed_work(lengths, len(tree.ids), max_shared_length)
        rows: list[int] = []
        columns: list[int] = []
        target_ids: list[int] = []
        for index, sequence in enumerate(sequences):
            path = tree.paths[index] if shared else range(len(sequence.ids))
            for span in sequence.spans:
                columns.extend(path[span.start - 1 : span.stop - 1])
                target_ids.extend(sequence.ids[span.start : span.stop])
                rows.extend([0 if shared else index] * (span.stop - span.start))
        spans = [span for sequence in sequences for span in sequence.spans]
        if min((span.stop - span.start for span in spans), default=0) < 1:
            raise ValueError("a sequence has no supervised token")
        positions = (torch.tensor(rows, device=self.device), torch.tensor(columns, device=self.device))
        targets = torch.tensor(target_ids, device=self.device)[:, None]
        if other_ids is not None:
            targets = torch.cat([targets, other_ids.to(self.device)], dim=1)
        values = state_values = None
        top_ids = top_logprobs = torch.empty(len(targets), 0)
        with self._precision():
            if self._has_output_layer:
                states = self._tree_states(tree) if shared else self._sequence_states(sequences)
                if self.computes_logprobs:
                    logprobs, top_ids, top_logprobs = self._token_logprobs(states[positions], targets, top)
                else:
                    logprobs = torch.full(targets.shape, torch.nan, device=self.device)
                if self.head is not None:
                    longest = max(lengths)
                    starts = range(0, len(sequences) * longest, longest)
                    paths = tree.paths if shared else [range(start, start + longest) for start in starts]
                    stops = [[span.end for span in sequence.spans] for sequence in sequences]
                    head_values = self.head(states)
                    values, state_values = prefix_means(head_values.flatten(), paths, stops), head_values[positions]
            else:
                ids = self._pad([sequence.ids for sequence in sequences])
                all_logprobs = self.model(input_ids=ids, use_cache=False).logits[positions].float().log_softmax(1)
                logprobs = all_logprobs.gather(1, targets)
                top_ids, top_logprobs = _most_likely(all_logprobs, top)
        token_logprobs = logprobs[:, 0]
        other_logprobs = None if other_ids is None else logprobs[:, 1:]
        scores = SpanScores(*span_sums(spans, token_logprobs), token_logprobs, values, state_values, other_logprobs)
        return replace(scores, top_ids=top_ids, top_logprobs=top_logprobs) if top else scores

    def _sequence_states(self, sequences: Sequence[TokenSequence]) -> Tensor:
        """Hidden states of each sequence computed separately: [sequences, longest, width]."""
        rows = [sequence.ids for sequence in sequences]
        pictures = [picture for sequence in sequences for picture in sequence.images]
        if self._vision is not None and not pictures:
            ids = self._pad([*rows, self._vision.blank_ids])
            return self._hidden(ids, **blank_inputs(self.model.base_model, self._vision, ids))[: len(rows)]
        ids = self._pad(rows)
        return self._hidden(ids, **image_inputs(self.model.base_model, pictures, ids))

    def _pad(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Rows of numbers as one tensor, padded with zeros on the right."""
        width = max(map(len, rows))
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=self.device)

    def _tree_states(self, tree: Tree, block: int | None = None) -> Tensor:
        """Hidden states of every slot of a tree: [1, slots, width]. `block`: as for `tree_attention`."""
        ids = torch.tensor([tree.ids], device=self.device)
        positions = torch.tensor([tree.positions], device=self.device)

        def states(slots: slice) -> Tensor:
            with self._precision():
                return self._hidden(ids[:, slots], position_ids=positions[:, slots])

        with tree_attention(self.model, tree, self.device, self.attention, block) as layout:
            if isinstance(layout, FlexTree):
                return states(slice(None))
            size = len(tree.ids)
            if self.in_segments and not torch.is_grad_enabled():
                size = blocks.SEGMENT_BLOCKS * (block or blocks.BLOCK)
            parts = [states(slots) for slots in layout.segments(size)]
            return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def pack(self, bundles: Sequence[Sequence[TokenSequence]], budget: int) -> list[list[int]]:
        """Divide bundles into groups, each for one forward pass of at most `budget` tokens (a larger bundle is a group
        by itself).

        Shared prefixes count once, and bundles with a common prefix are grouped. Sequences that cannot be in a tree are
        grouped by length, counting padding.

        Returns:
            Groups of indices of `bundles`.
        """
        return pack_bundles(bundles, budget, self.max_shared_length)


def span_sums(spans: Sequence[Span], logprobs: Tensor) -> tuple[Tensor, Tensor]:
    """The weighted sum of each span's log-probabilities, and its number of ids, [spans] each. logprobs: [ids]."""
    counts = torch.tensor([span.stop - span.start for span in spans], device=logprobs.device)
    weights = [weight for span in spans for weight in span.weights]
    if any(weight != 1.0 for weight in weights):
        logprobs = logprobs * torch.tensor(weights, device=logprobs.device)
    owner = torch.arange(len(spans), device=logprobs.device).repeat_interleave(counts)
    return torch.zeros(len(spans), device=logprobs.device).index_add(0, owner, logprobs), counts


def _longest_unscaled(config: Any) -> int:
    """The maximum length of sequences whose rotary frequencies do not depend on their length, in a tree on the longest
    of them."""
    rotary: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    by_layers = [rotary, *(values for values in rotary.values() if isinstance(values, dict))]
    lengths = [
        values.get("original_max_position_embeddings") or config.max_position_embeddings
        for values in by_layers
        if values.get("rope_type") in ("dynamic", "longrope")
    ]
    return min(lengths, default=sys.maxsize)


@torch.no_grad()
def _most_likely(logprobs: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The most likely ids, the most likely first, and their log-probabilities. [n, vocabulary] -> [n, top] each."""
    if not top:
        return torch.empty(len(logprobs), 0, dtype=torch.long, device=logprobs.device), logprobs[:, :0].detach()
    values, ids = logprobs.topk(min(top, logprobs.shape[1]), dim=1)
    return ids, values


def pack_bundles(bundles: Sequence[Sequence[TokenSequence]], budget: int, max_shared_length: int) -> list[list[int]]:
    """`Scorer.pack` for a scorer with this `max_shared_length`."""
    longest = [max(len(sequence.ids) for sequence in bundle) for bundle in bundles]
    unshared = [i for i, length in enumerate(longest) if length > longest_shared(bundles[i], max_shared_length)]
    shared_indices = sorted(set(range(len(bundles))) - set(unshared))
    sizes = [longest[i] * len(bundles[i]) for i in unshared]
    groups = [[unshared[i] for i in batch] for batch in batches(sizes, budget)]
    forest = Forest()
    group: list[int] = []
    for index in sorted(shared_indices, key=lambda i: min(sequence.ids for sequence in bundles[i])):
        forest.add(sequence.ids for sequence in bundles[index])
        if group and forest.slots > budget:
            groups.append(group)
            group, forest = [], Forest()
            forest.add(sequence.ids for sequence in bundles[index])
        group.append(index)
    return [*groups, group] if group else groups


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Batches of indices of similar length whose padded size is at most `budget` (a longer sequence is a batch by
    itself)."""
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
def sequence_scores(
    scorer: Scorer, sequences: Sequence[TokenSequence], budget: int = TOKEN_BUDGET, *, top: int = 0
) -> list[SpanScores]:
    """The scores of each sequence, on the CPU, without gradients, computed in packs of at most `budget` tokens.

    Args:
        top: as for `Scorer.__call__`.
    """
    results: dict[int, SpanScores] = {}
    for pack in scorer.pack([[sequence] for sequence in sequences], budget):
        scores = scorer([sequences[i] for i in pack], top=top)
        spans, ids = [len(sequences[i].spans) for i in pack], [sequences[i].supervised for i in pack]
        parts = {
            name: torch.split(values.cpu(), spans if name in ("sums", "counts", "values") else ids)
            for name, values in vars(scores).items()
            if values is not None
        }
        for place, index in enumerate(pack):
            results[index] = SpanScores(**{name: part[place].clone() for name, part in parts.items()})
    return [results[index] for index in range(len(sequences))]


def span_logprobs(
    scorer: Scorer, sequences: Sequence[TokenSequence], budget: int = TOKEN_BUDGET
) -> list[tuple[Tensor, Tensor]]:
    """Sums and counts of the spans of each sequence, each [spans]; see `sequence_scores`."""
    return [(scores.sums, scores.counts) for scores in sequence_scores(scorer, sequences, budget)]


def span_values(scorer: Scorer, sequences: Sequence[TokenSequence], budget: int = TOKEN_BUDGET) -> list[Tensor]:
    """The regression head's output at the end of each span of each sequence, each [spans]; see `sequence_scores`.

    Raises:
        ValueError: the model has no regression head.
    """
    if scorer.head is None:
        raise ValueError("the model has no regression head")
    return [scores.values for scores in sequence_scores(scorer, sequences, budget) if scores.values is not None]


def scorer_of(model: Any, *, share: bool) -> Scorer:
    """Return what computes log-probabilities by a model; a model that is one already, as at a service, is itself."""
    return model if isinstance(model, Scorer) else Scorer(model, share=share)


def group_logprobs(
    scorer: Scorer, groups: Sequence[Sequence[TokenSequence]], budget: int = TOKEN_BUDGET
) -> list[list[float]]:
    """Mean log-probability, in nats per token, of the first span of each sequence, group by group."""
    flat = [sequence for group in groups for sequence in group]
    means = iter([float(sums[0] / counts[0]) for sums, counts in span_logprobs(scorer, flat, budget)])
    return [[next(means) for _ in group] for group in groups]
