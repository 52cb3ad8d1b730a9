"""What a method costs in a study: the tokens that its agent generated, and the seconds of its steps.

Counted is what the method needs when it runs alone, so a step that several methods share counts in full for each. The
tokens are all that the agent's model wrote to learn from: dialogues, replies that were sampled at a turn and judged,
the dialogues of an online training, and thoughts. Evaluations are not counted; they are the same for all methods. Nor
is the validation during an online training, which does not choose its actor: it only gives the learning curve.
"""

from __future__ import annotations

from collections.abc import Iterable

from sweet.pipeline.steps import Step

TOKENS = "completion_tokens"
"""The metric of every stage that samples from the agent."""


def generated_tokens(steps: Iterable[Step]) -> int | None:
    """Return the tokens that the agent wrote in these steps; None where a server did not report them."""
    found = [step.metrics.get(TOKENS, 0) for step in steps]
    return None if None in found else sum(map(int, found))


def seconds(steps: Iterable[Step]) -> float:
    """Return the seconds of these steps, one after the other, without validation."""
    return sum(step.seconds - float(step.metrics.get("validation_seconds", 0.0)) for step in steps)
