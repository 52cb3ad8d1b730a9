"""Training metrics.

A micro-batch leaves its sums on the device (`MicroBatchSums`); they are fetched once per step and summed over the
ranks, and become the step's row and part of the epoch's sums, which are saved in the checkpoint. Nothing here runs a
forward pass.

Tokens are counted in three ways. `tokens`: those of both sides of the examples, as if each sequence were computed
separately. `tokens_computed`: the computed positions, a shared prefix once; their ratio is `sharing`. `padding`: the
share of the computed positions without a token. Model FLOPs utilisation counts 6 operations per parameter and token,
forward and backward (arXiv 2001.08361, section 2.1), or 4 if the parameter is frozen: `mfu` of `tokens`, which sharing
may raise above what the device really did, `mfu_computed` of `tokens_computed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sweet.learn.components import Example
from sweet.learn.losses import Losses
from sweet.learn.tokens import TokenSequence
from sweet.learn.tree import Work

Record = dict[str, Any]

PASS_FLOPS, WEIGHT_FLOPS = 4, 2
"""Operations per parameter and token: for forward and activation gradients, and in addition if it is trained."""


_OF_TOKENS = ("ratio", "difference", "surprise", "clipped", "masked")
"""The sums over weighted tokens, as in `TokenStatistics`."""


@dataclass(frozen=True)
class Summary:
    """The result of a training: metrics of the last epoch, and of the whole training.

    Attributes:
        heldout_accuracy: of the resulting weights; `best_step` is their step if those of the best epoch are kept.
        advantage_chosen, advantage_rejected: the mean advantage of the agent's first, second, … turn over the last
            epoch, nats per token; None for turns that no side had.
        ratio, difference, surprise, clipped, masked: of the weighted tokens (`MetricSums.means`); None without any.
        reference_cached, reference_computed: sequences whose reference log-probabilities were cached, and computed.
    """

    steps: int
    loss: float
    accuracy: float | None
    margin: float | None
    tokens: int
    tokens_computed: int
    sharing: float | None
    padding: float | None
    tokens_per_second: float
    tokens_computed_per_second: float
    mfu: float | None
    mfu_computed: float | None
    seconds: float
    heldout_accuracy: float | None
    best_step: int | None = None
    advantage_chosen: list[float | None] | None = None
    advantage_rejected: list[float | None] | None = None
    ratio: float | None = None
    difference: float | None = None
    surprise: float | None = None
    clipped: float | None = None
    masked: float | None = None
    reference_cached: int | None = None
    reference_computed: int | None = None

    def as_metrics(self) -> Record:
        absent = {name for name in _OF_TOKENS if getattr(self, name) is None}
        return {name: rounded(value) for name, value in vars(self).items() if name not in absent}


@dataclass
class MetricSums:
    """Sums over some examples: of a step, or of the steps of an epoch. The field names are stored in checkpoints.

    Attributes:
        advantages, turns: by position (`turn_positions`): the sum of advantages, and their number.
        compared: number of examples with two sides, which `right` and `margin` are of.
        weighted: number of tokens that a token component weighted (`TokenStatistics`).
        ratio, difference, surprise, clipped, masked: sums over these.
    """

    examples: int = 0
    loss: float = 0.0
    right: float = 0.0
    margin: float = 0.0
    tokens_computed: int = 0
    padding: int = 0
    advantages: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    compared: int = 0
    weighted: int = 0
    ratio: float = 0.0
    difference: float = 0.0
    surprise: float = 0.0
    clipped: float = 0.0
    masked: float = 0.0

    def flat(self) -> list[float]:
        """The values that differ between ranks as a list, as `from_flat` expects them."""
        sums = [self.loss, self.right, self.margin, self.compared, self.tokens_computed, self.padding]
        tokens = [self.weighted, *(getattr(self, name) for name in _OF_TOKENS)]
        return [*sums, *tokens, *self.advantages, *self.turns]

    @classmethod
    def from_flat(cls, examples: int, flat: Sequence[float]) -> MetricSums:
        """The sums of `examples` examples from the result of `flat`, summed over the ranks."""
        loss, right, margin, compared, tokens, padding, weighted, *rest = flat
        of_tokens, rest = rest[: len(_OF_TOKENS)], rest[len(_OF_TOKENS) :]
        positions = len(rest) // 2
        turns = [round(count) for count in rest[positions:]]
        by_position = (rest[:positions], turns)
        counts = round(compared), round(weighted)
        return cls(examples, loss, right, margin, round(tokens), round(padding), *by_position, *counts, *of_tokens)

    def add(self, other: MetricSums) -> None:
        """Add the sums of a step."""
        self.examples += other.examples
        self.loss += other.loss
        self.right += other.right
        self.margin += other.margin
        self.compared += other.compared
        self.tokens_computed += other.tokens_computed
        self.padding += other.padding
        self.weighted += other.weighted
        for name in _OF_TOKENS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        positions = len(other.turns)
        self.advantages = [a + b for a, b in zip(self.advantages or [0.0] * positions, other.advantages, strict=True)]
        self.turns = [a + b for a, b in zip(self.turns or [0] * positions, other.turns, strict=True)]

    def means(self, *, preference: bool) -> Record:
        """Loss, accuracy, margin and advantages by turn; None for metrics that require a preference, and for accuracy
        and margin where no example has two sides. Where tokens were weighted, also means over these: `ratio` of pi/mu,
        `difference` of |log pi - log mu|, `surprise` of -log mu, and the shares that the policy gradient `clipped` and
        `masked`."""
        count = max(self.examples, 1)
        compared = self.compared if preference else 0
        by_turn = [total / turns if turns else None for total, turns in zip(self.advantages, self.turns, strict=True)]
        half = len(by_turn) // 2
        return {
            "loss": self.loss / count,
            "accuracy": self.right / compared if compared else None,
            "margin": self.margin / compared if compared else None,
            "advantage_chosen": by_turn[:half] if by_turn else None,
            "advantage_rejected": by_turn[half:] if by_turn else None,
            **({name: getattr(self, name) / self.weighted for name in _OF_TOKENS} if self.weighted else {}),
        }


def turn_positions(
    pool: Sequence[TokenSequence], examples: Sequence[Example], turn_count: int
) -> tuple[list[int], list[int]]:
    """The position under which the advantage of each span of these examples is counted, and the count of each position.

    Spans are in the order of `Losses.advantages`. Position n is the agent's turn n of a chosen side, position
    turn_count + n of a rejected one. A dialogue begins with the human, so the turn at index i of a history is the
    agent's turn i // 2.
    """
    positions = [
        side * turn_count + span.turn // 2
        for example in examples
        for side, indices in enumerate((example.chosen, example.rejected))
        for index in indices
        for span in pool[index].spans
    ]
    counts = [0] * (2 * turn_count)
    for position in positions:
        counts[position] += 1
    return positions, counts


def max_turns(pool: Sequence[TokenSequence]) -> int:
    """The maximum number of agent turns of a side, `turn_count` of `turn_positions`."""
    return max((span.turn // 2 + 1 for sequence in pool for span in sequence.spans), default=0)


class MicroBatchSums:
    """The sums of a step's micro-batches on one rank, kept on the device until they are fetched together."""

    def __init__(self, turn_count: int, device: torch.device) -> None:
        self._turn_count, self._device = turn_count, device
        self._sums: list[Tensor] = []
        self._advantages = torch.zeros(2 * turn_count, device=device)
        self._turns = [0] * (2 * turn_count)
        self._weighted = self._compared = 0
        self._of_tokens = torch.zeros(len(_OF_TOKENS), device=device)
        self._work = Work()
        self.groups: list[list[Example]] = []

    def add(self, pool: Sequence[TokenSequence], examples: list[Example], losses: Losses, work: Work) -> None:
        """Add a micro-batch: its losses, and the work of its forward pass."""
        compared = [bool(example.rejected) for example in examples]
        margins = (losses.chosen - losses.rejected).detach() * torch.tensor(compared, device=self._device)
        self._compared += sum(compared)
        self._sums.append(
            torch.stack([losses.loss.detach().sum(), (margins > 0).sum().to(margins.dtype), margins.sum()])
        )
        self.groups.append(examples)
        self._work += work
        if losses.statistics is not None:
            self._weighted += losses.statistics.tokens
            self._of_tokens += torch.stack([getattr(losses.statistics, name) for name in _OF_TOKENS])
        if losses.advantages is not None:
            positions, counts = turn_positions(pool, examples, self._turn_count)
            self._advantages.index_add_(0, torch.tensor(positions, device=self._device), losses.advantages)
            self._turns = [a + b for a, b in zip(self._turns, counts, strict=True)]

    def fetch(self) -> tuple[MetricSums, list[list[float]]]:
        """The sums, and loss, correct preferences and margin of each micro-batch. This is the only synchronisation with
        the device."""
        if not self._sums:
            return MetricSums(advantages=[0.0] * 2 * self._turn_count, turns=self._turns), []
        sums = torch.stack(self._sums).flatten()
        flat: list[float] = torch.cat([sums, self._of_tokens, self._advantages]).tolist()
        cut, end = 3 * len(self._sums), 3 * len(self._sums) + len(_OF_TOKENS)
        parts = [flat[i : i + 3] for i in range(0, cut, 3)]
        loss, right, margin = (sum(column) for column in zip(*parts, strict=True))
        work, counts = (self._work.tokens, self._work.padding), (self._compared, self._weighted)
        found = MetricSums(0, loss, right, margin, *work, flat[end:], self._turns, *counts, *flat[cut:end])
        return found, parts


def speeds(tokens: int, work: Work, seconds: float, flops: int, peak: float | None) -> Record:
    """Token counts, ratios and speeds of `seconds` of work.

    Args:
        tokens: as if each sequence were computed separately.
        flops: operations per token, forward and backward.
        peak: operations per second of all devices together, if known.
    """
    seconds = max(seconds, 1e-9)

    def utilisation(count: int) -> float | None:
        return flops * count / seconds / peak if peak else None

    return {
        "tokens": tokens,
        "tokens_computed": work.tokens,
        "sharing": tokens / work.tokens if work.tokens else None,
        "padding": work.padding / work.positions if work.positions else None,
        "tokens_per_second": tokens / seconds,
        "tokens_computed_per_second": work.tokens / seconds,
        "mfu": utilisation(tokens),
        "mfu_computed": utilisation(work.tokens),
    }


def rounded(value: Any) -> Any:
    """Round floats to six digits, also in lists and mappings."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
