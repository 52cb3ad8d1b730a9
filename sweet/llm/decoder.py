"""A causal language model with a multi-row cache: extend some rows by tokens, get the logits of the next token, and
sample it.

The engine needs a single operation: rows `[first, first + k)` hold sequences with `cached` tokens each, and new tokens
are appended to them. New tokens are padded on the right, where causal attention does not see the padding. The mask over
[rows, new tokens, columns] is computed here from the positions, because the library would derive it from column
numbers, which mean something else in this cache. If all rows start at column 0, no mask is needed.

That a model accepts positions and masks this way is verified: `Decoder` compares its logits once with plain forward
passes of single sequences, and refuses a model that fails (for example because it derives positions from the padding
mask).

A token is sampled for each row by the inverse of the cumulative distribution at one uniform number, drawn from the
row's own generator, so a request's seed determines its reply whatever else is in the batch. Softmax, cumulative sum and
search are computed once for the whole batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from sweet.errors import UsageError
from sweet.llm.kvcache import SlotCache, Window


class Decoder:
    """Runs the model. Must be used by one thread at a time.

    Attributes:
        context: the maximum sequence length in tokens; None if the model does not define one.

    Raises:
        UsageError: the model's logits with the cache differ from those without it.
    """

    def __init__(self, model: Any, name: str) -> None:
        self.model = model
        self.name = name
        self.cache = SlotCache()
        self.device: torch.device = next(model.parameters()).device
        config = model.config.get_text_config(decoder=True)
        self.vocabulary: int = model.get_input_embeddings().weight.shape[0]
        context = getattr(config, "max_position_embeddings", None)
        self.context: int | None = int(context) if isinstance(context, int) and context > 0 else None
        self._masks = _mask_kinds(config, self.context)
        self._window = int(config.sliding_window) if "sliding_attention" in self._masks else 0
        accepted = inspect.signature(model.forward).parameters
        self._accepts_positions = "position_ids" in accepted
        # transformers 5.24 renamed the argument.
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"
        self._last: torch.Tensor | None = None
        head = model.get_output_embeddings()
        self._hook = head.register_forward_pre_hook(self._select_last) if head is not None else None
        self._verify()

    def close(self) -> None:
        """Free the cache and restore the model."""
        if self._hook is not None:
            self._hook.remove()
        self.cache.clear()

    @torch.inference_mode()
    def extend(self, first: int, tokens: Sequence[list[int]], cached: Sequence[int]) -> torch.Tensor:
        """Append `tokens[i]` to row `first + i`, which already holds `cached[i]` tokens.

        Returns:
            The logits after each row's last token, [rows, vocabulary].
        """
        rows, longest = len(tokens), max(map(len, tokens))
        width = max(h + len(t) for h, t in zip(cached, tokens, strict=True))
        empty = not any(cached)
        # Padded with the row's last token: some models warn about the padding token if there is no mask.
        padded = [[*t, *t[-1:] * (longest - len(t))] for t in tokens]
        ids = torch.tensor(padded, device=self.device)
        start = torch.tensor(cached, device=self.device)[:, None]
        positions = start + torch.arange(longest, device=self.device)
        # Padding may extend past the width. It is written behind the row's last column and never attended to.
        attended = width if empty else max(cached) + longest
        self.cache.reserve(first + rows, attended)
        self.cache.window = Window(first, rows, None if empty else positions, attended)
        settings: dict[str, Any] = {self._cache_argument: self.cache}
        if not empty or self._window:
            settings["attention_mask"] = self._mask(positions, attended)
        if self._accepts_positions:
            # Padding beyond the maximum context length would have no valid position.
            limit = None if self.context is None else self.context - 1
            settings["position_ids"] = positions if limit is None else positions.clamp(max=limit)
        if longest > 1:
            self._last = torch.tensor([len(t) - 1 for t in tokens], device=self.device)
        try:
            output = self.model(input_ids=ids, use_cache=True, **settings)
        finally:
            last, self._last = self._last, None
        logits: torch.Tensor = output.logits
        if logits.shape[1] > 1:
            assert last is not None
            return logits[torch.arange(rows, device=self.device), last]
        return logits[:, 0]

    def _select_last(self, _: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
        """Hook before the output layer: keep each row's last token, so that logits are computed for it alone."""
        if self._last is None or inputs[0].dim() != 3 or inputs[0].shape[1] == 1:
            return None
        hidden = inputs[0]
        rows = torch.arange(hidden.shape[0], device=hidden.device)
        return (hidden[rows, self._last][:, None], *inputs[1:])

    def _mask(self, positions: torch.Tensor, width: int) -> Any:
        """0 where a new token may attend, the lowest finite number elsewhere (minus infinity would turn padding into
        NaN)."""
        dtype = self.model.dtype
        column = torch.arange(width, device=self.device)
        ahead = column > positions[:, None, :, None]
        hidden = torch.finfo(dtype).min
        zero = torch.zeros((), dtype=dtype, device=self.device)
        full = zero.expand(ahead.shape).masked_fill(ahead, hidden)
        if not self._window:
            return full
        windowed = full.masked_fill(column <= positions[:, None, :, None] - self._window, hidden)
        masks = {"full_attention": full, "sliding_attention": windowed}
        return masks if len(self._masks) > 1 else masks[self._masks[0]]

    @torch.inference_mode()
    def _verify(self) -> None:
        """Compare with plain forward passes; refuse the model if they differ."""
        reason, cause = "its logits with a cache differ from those without one", None
        try:
            if self._agrees():
                return
        except Exception as error:
            reason, cause = str(error) or type(error).__name__, error
        self.close()
        raise UsageError(
            f"The embedded engine cannot run the model {self.name}: {reason}.",
            where=self.name,
            fix="serve it with vllm (sweet serve-sim --engine vllm) and name the server's address",
        ) from cause

    def _agrees(self) -> bool:
        some = max(2, min(self.vocabulary, 97))
        padding = getattr(self.model.config, "pad_token_id", None)
        texts = [[(7 * i + 3 * n) % some for i in range(n)] for n in (5, 9)]
        texts = [[(id + 1) % some if id == padding else id for id in text] for text in texts]
        expected = []
        for text in texts:
            logits = self.model(input_ids=torch.tensor([text], device=self.device), use_cache=False).logits[0]
            expected.append((logits[-2], logits[-1]))
        before = self.extend(0, [text[:-1] for text in texts], [0, 0])
        after = self.extend(0, [text[-1:] for text in texts], [len(text) - 1 for text in texts])
        return all(
            _close(before[row], last_but_one) and _close(after[row], last)
            for row, (last_but_one, last) in enumerate(expected)
        )


def _close(logits: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two rows of logits give the same distribution, within the precision of the model's type."""
    allowed = 1e-3 if logits.dtype == torch.float32 else 0.05
    difference = logits.float().softmax(-1) - expected.float().softmax(-1)
    return bool(difference.abs().max() <= allowed)


def _mask_kinds(config: Any, context: int | None) -> tuple[str, ...]:
    """The kinds of attention that the model's layers have.

    A model with one kind accepts one mask; a model with two accepts a mapping from kind to mask.
    """
    window = getattr(config, "sliding_window", None)
    if not window or getattr(config, "use_sliding_window", True) is False or (context and window >= context):
        return ("full_attention",)
    layers = getattr(config, "layer_types", None)
    return tuple(sorted(set(layers))) if layers else ("sliding_attention",)


# Sampling -------------------------------------------------------------------------------------------------------------

_MAX_UNIFORM = 1.0 - 2.0**-22
"""Uniform numbers are kept below this, so that their product with a sum near 1 stays below the sum in float32."""


def sample(
    logits: torch.Tensor,
    temperatures: Sequence[float],
    top_ps: Sequence[float],
    uniforms: Sequence[float],
) -> tuple[list[int], list[float]]:
    """Sample one id for each row.

    Args:
        logits: [rows, vocabulary].
        temperatures, top_ps: of each row; temperature 0 is greedy.
        uniforms: one number in [0, 1) for each row.

    Returns:
        The sampled ids, and the natural log-probability of each under the unmodified distribution (temperature 1, no
        nucleus). It is NaN for a row whose logits are not finite.
    """
    logits = logits.float()
    logprobs = logits.log_softmax(-1)
    if not any(temperatures):
        ids = logits.argmax(-1)
    else:
        scale = logits.new_tensor([[t or 1.0] for t in temperatures])
        unscaled = all(t in (0.0, 1.0) for t in temperatures)
        probabilities = logprobs.exp() if unscaled else (logits / scale).softmax(-1)
        if any(p < 1.0 for p in top_ps):
            probabilities = _nucleus(probabilities, logits.new_tensor([[p] for p in top_ps]))
        sums = probabilities.cumsum(-1)
        threshold = logits.new_tensor([[min(u, _MAX_UNIFORM)] for u in uniforms]) * sums[:, -1:]
        ids = torch.searchsorted(sums, threshold, right=True)[:, 0].clamp_(max=logits.shape[1] - 1)
        if not all(temperatures):
            greedy = torch.tensor([not t for t in temperatures], device=logits.device)
            ids = torch.where(greedy, logits.argmax(-1), ids)
    chosen = logprobs.gather(1, ids[:, None])[:, 0]
    return ids.tolist(), chosen.tolist()


def top_logprobs(logits: torch.Tensor, count: int) -> list[tuple[tuple[int, float], ...]]:
    """For each row of `logits` [rows, vocabulary] its `count` most likely ids with log-probabilities, in descending
    order."""
    top = logits.float().log_softmax(-1).topk(min(count, logits.shape[1]))
    return [tuple(zip(*row, strict=True)) for row in zip(top.indices.tolist(), top.values.tolist(), strict=True)]


def _nucleus(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Zero the tokens outside the smallest set whose probabilities sum to `top_p`; the most likely token always
    remains."""
    ordered, order = probabilities.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    nucleus = ordered.masked_fill((before >= top_p) & (before > 0), 0.0)
    return torch.zeros_like(probabilities).scatter_(1, order, nucleus)
