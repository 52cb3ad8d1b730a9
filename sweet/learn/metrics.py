"""What is counted while a model is trained, and the figures that come of it.

A micro-batch leaves its sums on the device (`PartSums`); they are fetched once a step, summed over the ranks, and
become the step's row and a part of the epoch's sums, which are in the checkpoint. Nothing here computes a forward.

Three ways to count tokens stand side by side. `tokens`: those of both sides of the examples, as if each sequence were
computed by itself. `tokens_computed`: the positions that were computed, a shared prefix once; their ratio is `sharing`.
`padding`: the share of the computed rows that held no token. Model FLOPs utilisation takes 6 operations a parameter and
token, forward and backward (arXiv 2001.08361, section 2.1), or 4 where the parameter is frozen: `mfu` of the tokens
that were learned from, which sharing may lift above what the device really did, `mfu_computed` of those that were
computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sweet.learn.data import Example, Losses
from sweet.learn.tokens import TokenSequence
from sweet.learn.work import Work

Record = dict[str, Any]

PASS_FLOPS, WEIGHT_FLOPS = 4, 2
"""Operations a parameter and token: of the forward and of handing gradients down, and more where it is trained."""


@dataclass(frozen=True)
class Summary:
    """What came out of training: figures of the last epoch, and of the whole.

    Attributes:
        heldout_accuracy: that of the weights that were kept; best_step the step that they are of, where those of the
            best epoch are.
        advantage_chosen, advantage_rejected: the mean advantage of the agent's first, second, … turn over the last
            epoch, nats a token; None where no side had that turn.
        reference_cached, reference_computed: sequences whose reference log-probabilities were found, and computed.
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
    reference_cached: int | None = None
    reference_computed: int | None = None

    def as_metrics(self) -> Record:
        return {name: rounded(value) for name, value in vars(self).items()}


@dataclass
class MetricSums:
    """Sums over some examples: of a step, or of the steps of an epoch.

    Attributes:
        advantages, turns: by place (`turn_places`): the sum of advantages, and how many there are.
    """

    examples: int = 0
    loss: float = 0.0
    right: float = 0.0
    margin: float = 0.0
    tokens_computed: int = 0
    padding: int = 0
    advantages: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)

    def flat(self) -> list[float]:
        """The sums of what each rank counts for itself, as `filled` reads them."""
        return [self.loss, self.right, self.margin, self.tokens_computed, self.padding, *self.advantages, *self.turns]

    @classmethod
    def from_flat(cls, examples: int, flat: Sequence[float]) -> MetricSums:
        """Sums of so many examples from what `flat` gave, after it was summed over the ranks."""
        loss, right, margin, tokens, padding, *rest = flat
        positions = len(rest) // 2
        turns = [round(count) for count in rest[positions:]]
        return cls(examples, loss, right, margin, round(tokens), round(padding), rest[:positions], turns)

    def add(self, other: MetricSums) -> None:
        """Take in the sums of a step."""
        self.examples += other.examples
        self.loss += other.loss
        self.right += other.right
        self.margin += other.margin
        self.tokens_computed += other.tokens_computed
        self.padding += other.padding
        positions = len(other.turns)
        self.advantages = [a + b for a, b in zip(self.advantages or [0.0] * positions, other.advantages, strict=True)]
        self.turns = [a + b for a, b in zip(self.turns or [0] * positions, other.turns, strict=True)]

    def means(self, *, preference: bool) -> Record:
        """Loss, accuracy, margin and advantages by turn; None where there is no preference."""
        count = max(self.examples, 1)
        by_turn = [total / turns if turns else None for total, turns in zip(self.advantages, self.turns, strict=True)]
        half = len(by_turn) // 2
        return {
            "loss": self.loss / count,
            "accuracy": self.right / count if preference else None,
            "margin": self.margin / count if preference else None,
            "advantage_chosen": by_turn[:half] if by_turn else None,
            "advantage_rejected": by_turn[half:] if by_turn else None,
        }


def turn_positions(
    pool: Sequence[TokenSequence], examples: Sequence[Example], turn_count: int
) -> tuple[list[int], list[int]]:
    """Where the advantage of each span of these examples is counted, and how often each place is used.

    Spans in the order of `Losses.advantages`. Place n is the agent's turn n of a chosen side, place most + n of a
    rejected one; a dialogue begins with its human, so the turn at index i of a history is the agent's turn i // 2.
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
    """How many turns of the agent a side may have, `most` of `turn_places`."""
    return max((span.turn // 2 + 1 for sequence in pool for span in sequence.spans), default=0)


class MicroBatchSums:
    """The sums of a step's micro-batches on one rank, left on the device until they are fetched together."""

    def __init__(self, turn_count: int, device: torch.device) -> None:
        self._turn_count, self._device = turn_count, device
        self._sums: list[Tensor] = []
        self._advantages = torch.zeros(2 * turn_count, device=device)
        self._turns = [0] * (2 * turn_count)
        self._work = Work()
        self.groups: list[list[Example]] = []

    def add(self, pool: Sequence[TokenSequence], examples: list[Example], losses: Losses, work: Work) -> None:
        """Take in a micro-batch: its losses, and what its forward computed."""
        margins = (losses.chosen - losses.rejected).detach()
        self._sums.append(
            torch.stack([losses.loss.detach().sum(), (margins > 0).sum().to(margins.dtype), margins.sum()])
        )
        self.groups.append(examples)
        self._work += work
        if losses.advantages is not None:
            positions, counts = turn_positions(pool, examples, self._turn_count)
            self._advantages.index_add_(0, torch.tensor(positions, device=self._device), losses.advantages)
            self._turns = [a + b for a, b in zip(self._turns, counts, strict=True)]

    def fetch(self) -> tuple[MetricSums, list[list[float]]]:
        """The sums, and loss, right ones and margins of each micro-batch: the one time the device is waited for."""
        if not self._sums:
            return MetricSums(advantages=[0.0] * 2 * self._turn_count, turns=self._turns), []
        flat: list[float] = torch.cat([torch.stack(self._sums).flatten(), self._advantages]).tolist()
        cut = 3 * len(self._sums)
        parts = [flat[i : i + 3] for i in range(0, cut, 3)]
        loss, right, margin = (sum(column) for column in zip(*parts, strict=True))
        work = self._work
        return MetricSums(0, loss, right, margin, work.tokens, work.padding, flat[cut:], self._turns), parts


def speeds(tokens: int, work: Work, seconds: float, flops: int, peak: float | None) -> Record:
    """Tokens, ratios and speeds of what took so many seconds.

    Args:
        flops: operations a token, forward and backward.
        peak: operations a second of all devices together, where that is known.
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
    """Floats to six digits, in lists and mappings too."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
