"""What a method costs in a study: the tokens that its agent generated, and the seconds of its steps.

Counted is what the method needs when it runs alone, so a step that several methods share counts in full for each. The
tokens are all that the agent's model wrote to learn from: dialogues, replies that were sampled at a turn and judged,
the dialogues of an online training, and thoughts. Evaluations are not counted; they are the same for all methods. Nor
is the validation during an online training, which does not choose its actor: it only gives the learning curve.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sweet.pipeline.steps import Step, StepCache
from sweet.ranking.metrics import tokens_written
from sweet.runs.jsonl import read_jsonl
from sweet.stages.rows import CandidateRow

TOKENS = "completion_tokens"
"""The metric of every stage that samples from the agent."""


def generated_tokens(steps: Iterable[Step], cache: StepCache) -> int | None:
    """Return the tokens that the agent wrote in these steps; None where a server did not report them."""
    total = 0
    for step in steps:
        tokens = _of_step(step, cache)
        if tokens is None:
            return None
        total += tokens
    return total


def seconds(steps: Iterable[Step]) -> float:
    """Return the seconds of these steps, one after the other, without validation."""
    return sum(step.seconds - float(step.metrics.get("validation_seconds", 0.0)) for step in steps)


def _of_step(step: Step, cache: StepCache) -> int | None:
    if TOKENS in step.metrics:
        tokens = step.metrics[TOKENS]
        return None if tokens is None else int(tokens)
    if step.attempt.stage != "rank" or step.attempt.config.get("replies"):
        return 0
    return _of_candidates(cache.file(step))


def _of_candidates(path: Path) -> int | None:
    """Count the tokens of a ranking by an earlier version, whose metrics do not have them."""
    total = 0
    for row in read_jsonl(path, CandidateRow):
        tokens = tokens_written(row)
        if tokens is None:
            return None
        total += tokens
    return total
