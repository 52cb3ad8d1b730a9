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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sweet.learn.components import Example
from sweet.learn.losses import Losses
from sweet.learn.sequences import TokenSequence
from sweet.learn.tree import Work

Record = dict[str, Any]

PASS_FLOPS, WEIGHT_FLOPS = 4, 2
"""Operations per parameter and token: for forward and activation gradients, and in addition if it is trained."""

OF_TOKENS = ("ratio", "difference", "surprise", "clipped", "masked")
"""The sums over weighted tokens, as in `TokenStatistics`."""

MEASURED = ("loss", "right", "margin", *OF_TOKENS)
COUNTED = ("compared", "weighted", "tokens_computed", "padding")
"""The sums of `MetricSums`: those that a device computes, and those that are known without it."""


@dataclass
class MetricSums:
    """Sums over some examples: of a step, or of the steps of an epoch. They are stored in checkpoints.

    Attributes:
        sums: by the names of `MEASURED` and `COUNTED`. `compared` is the number of examples with two sides, which
            `right` (the chosen side is higher) and `margin` are of; `weighted` the number of tokens that a token
            component weighted, which `OF_TOKENS` are of.
        advantages, turns: by position (`turn_positions`): the sum of advantages, and their number.
    """

    examples: int = 0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*MEASURED, *COUNTED), 0.0))
    advantages: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)

    def __getitem__(self, name: str) -> float:
        return self.sums[name]

    @property
    def work(self) -> Work:
        return Work(round(self["tokens_computed"]), round(self["padding"]))

    def over_ranks(self, examples: int, sum_over_ranks: Callable[[Sequence[float]], list[float]]) -> MetricSums:
        """The sums of `examples` examples, of which each rank has a part."""
        totals = sum_over_ranks([*self.sums.values(), *self.advantages, *self.turns])
        middle = len(self.sums) + len(self.advantages)
        sums = dict(zip(self.sums, totals, strict=False))
        return MetricSums(examples, sums, totals[len(sums) : middle], totals[middle:])

    def add(self, other: MetricSums) -> None:
        """Add the sums of a step."""
        self.examples += other.examples
        self.sums = {name: value + other[name] for name, value in self.sums.items()}
        zeros = [0.0] * len(other.turns)
        self.advantages = list(map(sum, zip(self.advantages or zeros, other.advantages, strict=True)))
        self.turns = list(map(sum, zip(self.turns or zeros, other.turns, strict=True)))

    def means(self, *, preference: bool) -> Record:
        """Loss, accuracy, margin and advantages by turn; None for metrics that require a preference, and for accuracy
        and margin where no example has two sides. Where tokens were weighted, also means over these: `ratio` of pi/mu,
        `difference` of |log pi - log mu|, `surprise` of -log mu, and the shares that the policy gradient `clipped` and
        `masked`."""
        compared, weighted = self["compared"] if preference else 0, self["weighted"]
        by_turn = [total / turns if turns else None for total, turns in zip(self.advantages, self.turns, strict=True)]
        half = len(by_turn) // 2
        return {
            "loss": self["loss"] / max(self.examples, 1),
            "accuracy": self["right"] / compared if compared else None,
            "margin": self["margin"] / compared if compared else None,
            "advantage_chosen": by_turn[:half] if by_turn else None,
            "advantage_rejected": by_turn[half:] if by_turn else None,
            **({name: self[name] / weighted for name in OF_TOKENS} if weighted else {}),
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
    """The sums of a step's micro-batches on one rank, kept on the device until they are fetched together.

    Attributes:
        groups: the examples of each micro-batch.
    """

    def __init__(self, turn_count: int, device: torch.device) -> None:
        self._turn_count, self._device = turn_count, device
        self._measured: list[Tensor] = []
        self._counted = [0] * len(COUNTED)
        self._turns = [0] * (2 * turn_count)
        self.groups: list[list[Example]] = []

    def add(self, pool: Sequence[TokenSequence], examples: list[Example], losses: Losses, work: Work) -> None:
        """Add a micro-batch: its losses, and the work of its forward pass."""
        compared = [bool(example.rejected) for example in examples]
        margins = (losses.chosen - losses.rejected).detach() * torch.tensor(compared, device=self._device)
        measured = [losses.loss.detach().sum(), (margins > 0).sum().to(margins.dtype), margins.sum()]
        of_tokens = torch.zeros(len(OF_TOKENS), device=self._device)
        advantages = torch.zeros(2 * self._turn_count, device=self._device)
        weighted = 0
        if losses.statistics is not None:
            weighted = losses.statistics.tokens
            of_tokens = torch.stack([getattr(losses.statistics, name) for name in OF_TOKENS])
        if losses.advantages is not None:
            positions, counts = turn_positions(pool, examples, self._turn_count)
            advantages.index_add_(0, torch.tensor(positions, device=self._device), losses.advantages)
            self._turns = list(map(sum, zip(self._turns, counts, strict=True)))
        self.groups.append(examples)
        self._measured.append(torch.cat([torch.stack(measured), of_tokens, advantages]))
        counted = (sum(compared), weighted, work.tokens, work.padding)
        self._counted = list(map(sum, zip(self._counted, counted, strict=True)))

    def fetch(self) -> tuple[MetricSums, list[float]]:
        """The sums, and the loss of each micro-batch. This is the only synchronisation with the device."""
        rows: list[list[float]] = torch.stack(self._measured).tolist() if self._measured else []
        totals = [sum(column) for column in zip(*rows, strict=True)] or [0.0] * (len(MEASURED) + len(self._turns))
        sums = dict(zip((*MEASURED, *COUNTED), (*totals[: len(MEASURED)], *self._counted), strict=True))
        return MetricSums(0, sums, totals[len(MEASURED) :], list(self._turns)), [row[0] for row in rows]


def speeds(tokens: int, work: Work, seconds: float, flops: int, peak: float | None) -> Record:
    """Token counts, ratios and speeds of `seconds` of work.

    Args:
        tokens: as if each sequence were computed separately.
        flops: operations per token, forward and backward.
        peak: operations per second of all devices together, if known.
    """
    seconds = max(seconds, 1e-9)

    def utilisation(count: int) -> float | None:
        return flops * count / seconds / peak if peak and count else None

    return {
        "tokens": tokens,
        "tokens_computed": work.tokens,
        "sharing": tokens / work.tokens if work.tokens else None,
        "padding": work.padding / work.positions if work.positions else None,
        "tokens_per_second": tokens / seconds if tokens else None,
        "tokens_computed_per_second": work.tokens / seconds if work.tokens else None,
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
