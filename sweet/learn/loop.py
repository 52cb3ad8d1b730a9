"""The training loop, the same for every objective.

A step processes `batch` examples regardless of what fits into memory and of the number of ranks: they are divided into
micro-batches under a token budget and over the ranks, and each micro-batch contributes the losses of its examples
divided by the size of the batch, so the gradient depends on neither division (`update_weights`). The order of examples
is drawn from (seed, epoch). A checkpoint has everything needed to repeat a step exactly (weights, optimizer, position,
random state, log-probabilities of the reference, sums for the epoch's metrics), so a loop that was interrupted and
resumed ends with the same weights as an uninterrupted one. One is written at the end of an epoch or every few steps,
when a loop is asked to stop, and when the last one is old.
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
from sweet.learn.batches import bundles, epoch_order, rank_groups, step_share, token_count
from sweet.learn.components import Counts, Example, Objective
from sweet.learn.engine import Engine, parameter_count, peak_flops, scores_in_shares, trainable_weights
from sweet.learn.interrupts import SAVE_SECONDS, SAVE_SHARE, stopped
from sweet.learn.logprobs import TOKEN_BUDGET
from sweet.learn.lora import base_alone
from sweet.learn.losses import Reference, losses
from sweet.learn.metrics import PASS_FLOPS, WEIGHT_FLOPS, MetricSums, MicroBatchSums, Record, max_turns, rounded, speeds
from sweet.learn.sequences import TokenSequence
from sweet.learn.tree import Work
from sweet.learn.weights import BestCheckpoint

SMALLER_RATE = "a smaller --lr, without --resume"
"""What a user can do about a loss that is not finite."""


@dataclass(frozen=True)
class LoopSettings:
    """Training hyperparameters.

    Attributes:
        lr: peak learning rate.
        batch: examples per optimizer step.
        token_budget: tokens of a micro-batch.
        warmup: share of all steps with a linearly increasing rate.
        floor: final learning rate as a share of `lr`.
        clip: maximum gradient norm.
        weight_decay: of matrices.
        save_every: steps between checkpoints; None saves one after each epoch.
        save_seconds: after that time one is saved in any case.
        together: the most examples of a group that stay adjacent when they are shuffled (`epoch_order`): a step then
            computes more shared prefixes once, and its examples are less varied.
        share: compute once what the sequences of a micro-batch share.
        keep_best: keep the weights of the epoch with the best held-out accuracy (`sweet.learn.weights`) instead
            of the last.
    """

    lr: float
    epochs: int
    batch: int
    seed: int = 0
    token_budget: int = TOKEN_BUDGET
    warmup: float = 0.03
    floor: float = 0.1
    clip: float = 1.0
    weight_decay: float = 0.0
    save_every: int | None = None
    save_seconds: float = SAVE_SECONDS
    together: int | None = 1
    share: bool = True
    keep_best: bool = False

    def steps_per_epoch(self, examples: int) -> int:
        return math.ceil(examples / self.batch)

    def steps(self, examples: int) -> int:
        """Steps of a training on this many examples."""
        return self.steps_per_epoch(examples) * self.epochs


@dataclass
class Loop:
    """One training, which updates a model in memory.

    Args:
        model: a Hugging Face causal model in the precision its weights are to be stored in.
        pool: the token sequences.
        examples: the training examples.
        heldout: preferences to evaluate on after each epoch, never trained on.
        digest: identifies the training; a checkpoint of another one is refused.
        checkpoint: the checkpoint file.
        on_reference: called when the reference log-probabilities are computed and training begins.
        on_step: called with the metrics of each step, as they are written to the metrics file. It may wait, which does
            not count as time of the training.
        stop: whether to stop after this step; asked on each rank, and one that says so stops all.
        make_engine: creates the engine from the model and the maximum gradient norm.

    Raises:
        ValueError: `keep_best` without a checkpoint or held-out preferences.
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
    stop: Callable[[], bool] = lambda: False
    make_engine: Callable[[Any, float], Engine] = Engine
    _epoch: int = 0
    _sums: MetricSums = field(default_factory=MetricSums)
    _heldout_accuracy: float | None = None
    _reference: Reference | None = None
    _callback_seconds: float = 0.0
    _save_deadline: float = math.inf

    def __post_init__(self) -> None:
        # With dropout, policy and reference would differ even with equal weights.
        self.model.eval()
        # Count before the engine is created: it may keep only a part of the weights in this process.
        self.parameters = parameter_count(self.model.parameters())
        self.trained = parameter_count(trainable_weights(self.model).values())
        self.engine = self.make_engine(self.model, self.settings.clip)
        self.engine.weight_decay = self.settings.weight_decay
        self.scorer = self.engine.scorer
        self.scorer.computes_logprobs = self.objective.needs_tokens
        if not self.settings.share:
            self.scorer.max_shared_length = 0
        self.steps_per_epoch = self.settings.steps_per_epoch(len(self.examples))
        self.steps = self.settings.steps(len(self.examples))
        self.flops = PASS_FLOPS * self.parameters + WEIGHT_FLOPS * self.trained
        peak = peak_flops(self.scorer.device)
        self.peak = peak * self.engine.world if peak else None
        self._most_turns = max_turns(self.pool) if self.objective.needs_reference else 0
        self.best: BestCheckpoint | None = None
        if self.settings.keep_best:
            if self.checkpoint is None or not self.heldout:
                raise ValueError("keep_best requires a checkpoint and held-out preferences")
            self.best = BestCheckpoint(self.engine, self.checkpoint)

    def reference(self) -> Reference | None:
        """Log-probabilities under the initial model; None if the objective needs none. Call it before the first
        step."""
        if not self.objective.needs_reference:
            return None
        with base_alone(self.model):
            budget = 2 * self.settings.token_budget
            return scores_in_shares(self.engine, self.scorer, self.pool, budget, lambda scores: scores.sums)

    def run(self, *, resume: bool = False) -> Record:
        """Train to the end, starting from the checkpoint if `resume` is set and one exists.

        Returns:
            Metrics of the last epoch and of the whole training, by the names of `sweet.training.metrics.TrainMetrics`.

        Raises:
            SweetError: a loss or gradient is not finite.
            Interrupted: `stop` asked for it; the checkpoint has the step.
        """
        first_step = self._load_checkpoint() if resume else 0
        if not first_step:
            self._reference = self.reference()
        self.on_reference()
        started, tokens, work = time.monotonic(), 0, Work()
        self._save_deadline = started + self.settings.save_seconds
        order: list[int] = []
        for step in range(first_step, self.steps):
            epoch, index = divmod(step, self.steps_per_epoch)
            if not order or index == 0:
                order = epoch_order(self.examples, self.settings.seed, epoch, together=self.settings.together)
            if epoch != self._epoch:
                self._epoch, self._sums = epoch, MetricSums()
            batch = [self.examples[i] for i in order[index * self.settings.batch : (index + 1) * self.settings.batch]]
            work += self._step(step, batch)
            tokens += token_count(self.pool, batch)
            self._finish_step(step + 1)
        return self._summary(tokens, work, time.monotonic() - started - self._callback_seconds)

    def final_weights(self) -> dict[str, torch.Tensor] | None:
        """After `run`: the resulting trained weights by name, complete, on rank 0; None on the others."""
        if self.best is None or self.best.step == self.steps:
            return self.engine.weights()
        return self.best.weights()

    # One step --------------------------------------------------------------------------------------------------

    def _step(self, step: int, examples: list[Example]) -> Work:
        """Run one optimizer step and return the work of all ranks."""
        started = time.monotonic()
        lr = learning_rate(step, self.steps, self.settings)
        sums, norm = update_weights(
            self.engine,
            self.objective,
            self.pool,
            examples,
            self._reference,
            lr,
            token_budget=self.settings.token_budget,
            turn_count=self._most_turns,
            what=f"step {step + 1}",
        )
        self._sums.add(sums)
        work, seconds = sums.work, time.monotonic() - started
        record = {
            "step": step + 1,
            "epoch": step // self.steps_per_epoch + 1,
            **sums.means(preference=self.objective.compares),
            "lr": lr,
            "grad_norm": norm,
            **speeds(token_count(self.pool, examples), work, seconds, self.flops, self.peak),
        }
        self._report(rounded(record))
        return work

    def _report(self, record: Record) -> None:
        began = time.monotonic()
        self.on_step(record)
        self._callback_seconds += time.monotonic() - began

    # After a step ----------------------------------------------------------------------------------------------

    def _finish_step(self, steps_done: int) -> None:
        """Evaluate at the end of an epoch, save a checkpoint when due, and stop when asked to."""
        epoch_ended = steps_done % self.steps_per_epoch == 0
        if epoch_ended and self.heldout:
            self._heldout_accuracy = self.evaluate(self.heldout, self._reference)
            self._report({"step": steps_done, "heldout_accuracy": rounded(self._heldout_accuracy)})
            if self.best is not None:
                self.best.update(steps_done, self._heldout_accuracy)
        stop, due = self.engine.sum_over_ranks([self.stop(), time.monotonic() >= self._save_deadline])
        save_every = self.settings.save_every or self.steps_per_epoch
        if self.checkpoint is not None and (stop or due or steps_done % save_every == 0 or steps_done == self.steps):
            self._save(self.checkpoint, steps_done)
        if stop and steps_done < self.steps:
            raise stopped(steps_done)

    def _save(self, path: Path, steps_done: int) -> None:
        began = time.monotonic()
        sums = {"epoch": self._epoch, **vars(self._sums)}
        state = {"step": steps_done, "digest": self.digest, "sums": sums, "heldout": self._heldout_accuracy}
        if self._reference is not None:
            state["reference"] = [logprobs.tolist() for logprobs in self._reference]
        if self.best is not None:
            state["best"] = self.best.state()
        self.engine.save(path, state)
        if self.best is not None:
            self.best.remove_outdated()
        now = time.monotonic()
        self._save_deadline = now + max(self.settings.save_seconds, (now - began) / SAVE_SHARE)

    def _load_checkpoint(self) -> int:
        if self.checkpoint is None or not self.checkpoint.exists():
            return 0
        state = self.engine.load(self.checkpoint, self.digest)
        sums = dict(state["sums"])
        self._epoch, self._sums = sums.pop("epoch"), MetricSums(**sums)
        self._heldout_accuracy = state["heldout"]
        if self.best is not None:
            self.best.restore(state["best"])
        if "reference" in state:
            self._reference = list(map(torch.tensor, state["reference"]))
        return int(state["step"])

    @torch.inference_mode()
    def evaluate(self, examples: Sequence[Example], reference: Reference | None) -> float:
        """The share of preferences that the model orders correctly."""
        correct = 0
        groups = self.scorer.pack(bundles(self.pool, examples), 2 * self.settings.token_budget)
        for group, is_counted in rank_groups(groups, self.engine.rank, self.engine.world):
            group_losses = losses(self.scorer, self.objective, self.pool, [examples[i] for i in group], reference)
            correct += int((group_losses.chosen > group_losses.rejected).sum()) * is_counted
        return self.engine.sum_over_ranks([correct])[0] / len(examples)

    def _summary(self, tokens: int, work: Work, seconds: float) -> Record:
        summary: Record = {
            "steps": self.steps,
            **self._sums.means(preference=self.objective.compares),
            **speeds(tokens, work, seconds, self.flops, self.peak),
            "seconds": seconds,
            "heldout_accuracy": self.best.accuracy if self.best else self._heldout_accuracy,
            "best_step": self.best.step if self.best else None,
        }
        return {name: rounded(value) for name, value in summary.items()}


def learning_rate(step: int, steps: int, settings: LoopSettings) -> float:
    """The learning rate of a step: linear warm-up over the first `warmup` of all steps, then a cosine down to `floor`
    times the rate."""
    warmup_steps = max(1, math.ceil(settings.warmup * steps))
    if step < warmup_steps:
        return settings.lr * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, steps - warmup_steps)
    return settings.lr * (settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def update_weights(
    engine: Engine,
    objective: Objective,
    pool: Sequence[TokenSequence],
    examples: Sequence[Example],
    reference: Reference | None,
    lr: float,
    *,
    token_budget: int,
    turn_count: int = 0,
    what: str,
    fix: str = SMALLER_RATE,
) -> tuple[MetricSums, float | None]:
    """Update the weights once; return the sums over the examples on all ranks, and what `Engine.step` returns.
    All ranks call it together, with the same arguments.

    Args:
        reference: by sequence of the pool; None if the objective compares with no model.
        token_budget: tokens of a micro-batch.
        turn_count: agent turns of the longest sequence of the pool (`max_turns`) if there is a reference.
        what: what is updated, for errors.
        fix: of these errors.

    Raises:
        SweetError: a loss or the gradient is not finite; the weights are as before.
    """
    scorer = engine.scorer
    micro_batch_sums = MicroBatchSums(turn_count, scorer.device)
    share = step_share(pool, examples, scorer.pack, token_budget, engine.rank, engine.world)
    counts = Counts.of(examples)
    for number, (group, is_counted) in enumerate(share):
        micro_batch, work_before = [examples[i] for i in group], scorer.work
        micro_batch_losses = losses(scorer, objective, pool, micro_batch, reference, counts)
        engine.backward(micro_batch_losses.loss.sum() * is_counted / len(examples), last=number == len(share) - 1)
        if is_counted:
            micro_batch_sums.add(pool, micro_batch, micro_batch_losses, scorer.work - work_before)
    totals, part_losses = micro_batch_sums.fetch()
    for micro_batch, loss in zip(micro_batch_sums.groups, part_losses, strict=True):
        if not math.isfinite(loss):
            raise _not_finite("loss", what, micro_batch, fix)
    sums = totals.over_ranks(len(examples), engine.sum_over_ranks)
    norm = engine.step(lr)
    if norm is not None and not math.isfinite(norm):
        raise _not_finite("gradient", what, examples, fix)
    return sums, norm


def _not_finite(quantity: str, what: str, examples: Sequence[Example], fix: str) -> SweetError:
    names = ", ".join(example.name for example in examples[:8])
    return SweetError(f"The {quantity} of {what} is not a finite number.", where=names, fix=fix)
