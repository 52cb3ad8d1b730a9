"""The training loop: the same for every objective.

A step takes `batch` examples whatever fits into memory at once: they are grouped into micro-batches under a token
budget, and each micro-batch contributes its examples' losses divided by the size of the step, so the gradient does not
depend on the grouping, nor on how many ranks share the work (`sweet.learn.shares`). The order of examples is drawn from
(seed, epoch). What a step needs to be repeated exactly (weights, optimizer, position, random state, sums for the
epoch's figures) is in the checkpoint, so a loop that was stopped and resumed ends in the same weights as one that was
not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sweet.errors import SweetError
from sweet.learn.data import Example, Objective, Reference, losses
from sweet.learn.engine import Engine, TorchEngine, peak_flops
from sweet.learn.logprobs import TOKEN_BUDGET, span_logprobs
from sweet.learn.shares import own_groups, own_share
from sweet.learn.tokens import TokenSequence

Record = dict[str, Any]


@dataclass(frozen=True)
class LoopSettings:
    """How to train. `save_every` counts steps; None saves a checkpoint after each epoch.

    `together` shuffles kin (`Example.kin`) as one, so that a step computes once what its examples share; its examples
    are then less varied. `share` computes once what the sequences of a micro-batch share.
    """

    lr: float
    epochs: int
    batch: int
    seed: int = 0
    token_budget: int = TOKEN_BUDGET
    warmup: float = 0.03
    floor: float = 0.1
    clip: float = 1.0
    save_every: int | None = None
    together: bool = False
    share: bool = True

    def steps_per_epoch(self, examples: int) -> int:
        return math.ceil(examples / self.batch)

    def steps(self, examples: int) -> int:
        """Steps of a training on this many examples."""
        return self.steps_per_epoch(examples) * self.epochs


@dataclass(frozen=True)
class Summary:
    """What came out of training: figures of the last epoch, and of the whole."""

    steps: int
    loss: float
    accuracy: float | None
    margin: float | None
    tokens: int
    tokens_per_second: float
    mfu: float | None
    seconds: float
    heldout_accuracy: float | None

    def as_metrics(self) -> Record:
        return {name: _rounded(value) for name, value in vars(self).items()}


@dataclass
class _Sums:
    """Running sums of an epoch."""

    epoch: int = 0
    examples: int = 0
    loss: float = 0.0
    right: float = 0.0
    margin: float = 0.0


@dataclass
class Loop:
    """One training, from a model in memory to the same model trained.

    Args:
        model: a Hugging Face causal model in the precision its weights are to be kept in.
        pool: the token sequences.
        examples: what to train on.
        heldout: preferences to measure on after each epoch, never trained on.
        digest: what this training is; a checkpoint of another is refused.
        checkpoint: the file the state is kept in.
        on_reference: told when the reference log-probabilities are there and training begins.
        on_step: told the figures of each step, as they are written to the metrics file.
        make_engine: makes what moves the model, from it and the norm that gradients are clipped to.
    """

    model: Any
    pool: Sequence[TokenSequence]
    examples: Sequence[Example]
    objective: Objective
    settings: LoopSettings
    digest: str = ""
    heldout: Sequence[Example] = ()
    checkpoint: Path | None = None
    on_reference: Callable[[], None] = lambda: None
    on_step: Callable[[Record], None] = lambda _record: None
    make_engine: Callable[[Any, float], Engine] = TorchEngine
    _sums: _Sums = field(default_factory=_Sums)
    _heldout: float | None = None

    def __post_init__(self) -> None:
        # Dropout would make policy and reference differ where their weights do not.
        self.model.eval()
        # An engine may leave no more of the weights in this process than its share.
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.engine = self.make_engine(self.model, self.settings.clip)
        self.scorer = self.engine.scorer
        self.scorer.reads_tokens = self.objective.needs_tokens
        if not self.settings.share:
            self.scorer.part()
        self.steps_per_epoch = self.settings.steps_per_epoch(len(self.examples))
        self.steps = self.settings.steps(len(self.examples))

    def reference(self) -> Reference | None:
        """Log-probabilities under the model as it is now, before the first step; None where none are needed."""
        if not self.objective.needs_reference:
            return None
        budget = 2 * self.settings.token_budget
        found: dict[int, torch.Tensor] = {}
        groups = self.scorer.packs([[sequence] for sequence in self.pool], budget)
        for group, counts in own_groups(groups, self.engine.rank, self.engine.world):
            scored = span_logprobs(self.scorer, [self.pool[i] for i in group], budget)
            if counts:
                found.update(zip(group, (sums for sums, _ in scored), strict=True))
        known = {index: sums for part in self.engine.gather(found) for index, sums in part.items()}
        return [known[index] for index in range(len(self.pool))]

    def run(self, *, resume: bool = False) -> Summary:
        """Train to the end, from the checkpoint where `resume` says so and there is one."""
        reference = self.reference()
        self.on_reference()
        done = self._restore() if resume else 0
        began, tokens = time.monotonic(), 0
        order: list[int] = []
        for step in range(done, self.steps):
            epoch, place = divmod(step, self.steps_per_epoch)
            if not order or place == 0:
                order = self._order(epoch)
            if epoch != self._sums.epoch:
                self._sums = _Sums(epoch)
            chosen = order[place * self.settings.batch : (place + 1) * self.settings.batch]
            tokens += self._step(step, [self.examples[i] for i in chosen], reference)
            self._close(step + 1, reference)
        return self._summary(tokens, time.monotonic() - began)

    # One step --------------------------------------------------------------------------------------------------

    def _step(self, step: int, examples: list[Example], reference: Reference | None) -> int:
        began = time.monotonic()
        lr = learning_rate(step, self.steps, self.settings)
        sizes = [sum(len(self.pool[i].ids) for i in example.sides) for example in examples]
        loss = right = margin = 0.0
        share = own_share(sizes, lambda hand: self._packed(examples, hand), self.engine.rank, self.engine.world)
        for number, (group, counts) in enumerate(share):
            part = [examples[i] for i in group]
            found = losses(self.scorer, self.objective, self.pool, part, reference)
            self.engine.backward(found.loss.sum() * counts / len(examples), last=number == len(share) - 1)
            loss += float(found.loss.detach().sum()) * counts
            gap = (found.chosen - found.rejected).detach()
            right += float((gap > 0).sum()) * counts
            margin += float(gap.sum()) * counts
            if not math.isfinite(loss):
                raise self._diverged(step, part, "loss")
        loss, right, margin = self.engine.total([loss, right, margin])
        norm = self.engine.step(lr)
        if not math.isfinite(norm):
            raise self._diverged(step, examples, "gradient")
        sums, size = self._sums, len(examples)
        sums.examples += size
        sums.loss += loss
        sums.right += right
        sums.margin += margin
        tokens = self._tokens(examples)
        preference = self.objective.compares
        record = {
            "step": step + 1,
            "epoch": step // self.steps_per_epoch + 1,
            "loss": loss / size,
            "accuracy": right / size if preference else None,
            "margin": margin / size if preference else None,
            "lr": lr,
            "grad_norm": norm,
            "tokens": tokens,
            "tokens_per_second": tokens / max(time.monotonic() - began, 1e-9),
        }
        self.on_step({name: _rounded(value) for name, value in record.items()})
        return tokens

    def _packs(self, examples: Sequence[Example], budget: int) -> list[list[int]]:
        """The examples in micro-batches, those that share something together."""
        return self.scorer.packs([[self.pool[i] for i in example.sides] for example in examples], budget)

    def _packed(self, examples: Sequence[Example], hand: Sequence[int]) -> list[list[int]]:
        """The examples of a hand, named by their indices, in micro-batches."""
        packs = self._packs([examples[i] for i in hand], self.settings.token_budget)
        return [[hand[i] for i in pack] for pack in packs]

    def _tokens(self, examples: Sequence[Example]) -> int:
        return sum(len(self.pool[i].ids) for example in examples for i in example.sides)

    def _order(self, epoch: int) -> list[int]:
        random = torch.Generator().manual_seed((self.settings.seed << 16) + epoch)
        order: list[int] = torch.randperm(len(self.examples), generator=random).tolist()
        if not self.settings.together:
            return order
        kin: dict[str, list[int]] = {}
        for index in order:
            kin.setdefault(self.examples[index].kin, []).append(index)
        return [index for group in kin.values() for index in group]

    def _diverged(self, step: int, examples: Sequence[Example], what: str) -> SweetError:
        names = ", ".join(example.name for example in examples[:8])
        return SweetError(
            f"The {what} of step {step + 1} is not a finite number.", where=names, fix="a smaller --lr, then --resume"
        )

    # After a step ----------------------------------------------------------------------------------------------

    def _close(self, done: int, reference: Reference | None) -> None:
        """Measure at the end of an epoch, and save where it is time to."""
        ended = done % self.steps_per_epoch == 0
        if ended and self.heldout:
            self._heldout = self.measure(self.heldout, reference)
            self.on_step({"step": done, "heldout_accuracy": _rounded(self._heldout)})
        every = self.settings.save_every or self.steps_per_epoch
        if self.checkpoint is not None and (done % every == 0 or done == self.steps):
            state = {"step": done, "digest": self.digest, "sums": vars(self._sums), "heldout": self._heldout}
            self.engine.save(self.checkpoint, state)

    def _restore(self) -> int:
        if self.checkpoint is None or not self.checkpoint.exists():
            return 0
        state = self.engine.load(self.checkpoint, self.digest)
        self._sums = _Sums(**state["sums"])
        self._heldout = state["heldout"]
        return int(state["step"])

    @torch.inference_mode()
    def measure(self, examples: Sequence[Example], reference: Reference | None) -> float:
        """The share of preferences that the model orders rightly."""
        right = 0
        groups = self._packs(examples, 2 * self.settings.token_budget)
        for group, counts in own_groups(groups, self.engine.rank, self.engine.world):
            found = losses(self.scorer, self.objective, self.pool, [examples[i] for i in group], reference)
            right += int((found.chosen > found.rejected).sum()) * counts
        return self.engine.total([right])[0] / len(examples)

    def _summary(self, tokens: int, seconds: float) -> Summary:
        sums, preference = self._sums, self.objective.compares
        speed = tokens / max(seconds, 1e-9)
        peak = peak_flops(self.scorer.device)
        count = max(sums.examples, 1)
        return Summary(
            steps=self.steps,
            loss=sums.loss / count,
            accuracy=sums.right / count if preference else None,
            margin=sums.margin / count if preference else None,
            tokens=tokens,
            tokens_per_second=speed,
            mfu=6 * self.parameters * speed / (peak * self.engine.world) if peak else None,
            seconds=seconds,
            heldout_accuracy=self._heldout,
        )


def learning_rate(step: int, steps: int, settings: LoopSettings) -> float:
    """Linear warm-up over the first `warmup` of all steps, then a cosine down to `floor` times the rate."""
    warm = max(1, math.ceil(settings.warmup * steps))
    if step < warm:
        return settings.lr * (step + 1) / warm
    share = (step - warm) / max(1, steps - warm)
    return settings.lr * (settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * share)))


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
