"""One update of a model's weights by a batch of examples, the same in every training.

The examples are divided into micro-batches under a token budget and over the ranks. Each micro-batch contributes the
losses of its examples divided by the size of the batch, so the gradient depends on neither division.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sweet.errors import SweetError
from sweet.hints import Hint, option
from sweet.learn.batches import step_share
from sweet.learn.components import Counts, Example, Objective
from sweet.learn.data import Reference, losses
from sweet.learn.engine import Engine
from sweet.learn.metrics import MetricSums, MicroBatchSums
from sweet.learn.tokens import TokenSequence

SMALLER_RATE = Hint("a smaller ", option("lr"), ", then ", option("resume", True))
"""What a user can do about a loss that is not finite."""


def update_weights(
    engine: Engine,
    objective: Objective,
    pool: Sequence[TokenSequence],
    examples: Sequence[Example],
    reference: Reference | None,
    lr: float,
    *,
    token_budget: int,
    turns: int = 0,
    of: str,
    fix: Hint | str = SMALLER_RATE,
) -> tuple[MetricSums, float]:
    """Update the weights once; return the sums over the examples on all ranks, and the norm of the gradient before
    clipping. All ranks call it together, with the same arguments.

    Args:
        reference: by sequence of the pool; None if the objective compares with no model.
        token_budget: tokens of a micro-batch.
        turns: agent turns of the longest sequence of the pool (`max_turns`) if there is a reference.
        of: what is updated, for errors.
        fix: of these errors.

    Raises:
        SweetError: a loss or the gradient is not finite; the weights are as before.
    """
    scorer = engine.scorer
    own = MicroBatchSums(turns, scorer.device)
    share = step_share(pool, examples, scorer.pack, token_budget, engine.rank, engine.world)
    counts = Counts.of(examples)
    for number, (group, counted) in enumerate(share):
        part, before = [examples[i] for i in group], scorer.work
        found = losses(scorer, objective, pool, part, reference, counts)
        engine.backward(found.loss.sum() * counted / len(examples), last=number == len(share) - 1)
        if counted:
            own.add(pool, part, found, scorer.work - before)
    totals, by_part = own.fetch()
    for part, (loss, *_) in zip(own.groups, by_part, strict=True):
        if not math.isfinite(loss):
            raise _not_finite("loss", of, part, fix)
    sums = MetricSums.from_flat(len(examples), engine.sum_over_ranks(totals.flat()))
    norm = engine.step(lr)
    if not math.isfinite(norm):
        raise _not_finite("gradient", of, examples, fix)
    return sums, norm


def _not_finite(what: str, of: str, examples: Sequence[Example], fix: Hint | str) -> SweetError:
    names = ", ".join(example.name for example in examples[:8])
    return SweetError(f"The {what} of {of} is not a finite number.", where=names, fix=fix)
