"""Examples whose tokens are weighted, for tests of the token components."""

from __future__ import annotations

import random
from typing import Any

import torch

from sweet.learn.components import Distillation, Example, Objective, PolicyGradient, TokenTerms
from sweet.learn.logprobs import Scorer, sequence_scores
from sweet.learn.sequences import Pool
from tests.learn.builders import build_model
from tests.learn.test_loop import make_data

TOP = 3
"""The teacher's ids at each token."""

BOTH = Objective(None, 0.1, policy=PolicyGradient(0.2, 0.28), distil=Distillation(0.5))
"""Policy gradient, distillation and likelihood together."""


def weighted_data(tokenizer: Any, count: int = 9, seed: int = 0) -> tuple[Pool, list[Example]]:
    """Dialogues of which one in four has advantages, one a teacher of sampled tokens, one a teacher's most likely ids
    and advantages, and one nothing but its likelihood. They were sampled by a model near `build_model`."""
    pool, pairs = make_data(tokenizer, count)
    draw = random.Random(seed)
    rows = len(tokenizer)
    policy = logprobs_of(build_model(rows), pool)

    def terms(kind: int, index: int) -> TokenTerms:
        size = len(policy[index])

        def logprobs() -> tuple[float, ...]:
            return tuple(value + draw.uniform(-0.4, 0.4) for value in policy[index])

        def top() -> tuple[tuple[int, ...], tuple[float, ...]]:
            return tuple(draw.sample(range(rows), TOP)), tuple(draw.uniform(-6, -2) for _ in range(TOP))

        advantages = tuple(draw.uniform(-2, 2) for _ in range(size)) if kind in (0, 2) else ()
        if kind != 2:
            return TokenTerms(logprobs(), advantages, logprobs() if kind == 1 else ())
        ids, values = zip(*(top() for _ in range(size)), strict=True)
        return TokenTerms(logprobs(), advantages, logprobs(), ids, values)

    examples = []
    for number, pair in enumerate(pairs):
        given = () if number % 4 == 3 else tuple(terms(number % 4, index) for index in pair.chosen)
        examples.append(Example(pair.name, pair.chosen, terms=given, likelihood=float(number % 3)))
    return pool, examples


def logprobs_of(model: Any, pool: Pool) -> list[list[float]]:
    """The log-probabilities of the supervised ids of each sequence under a model."""
    with torch.no_grad():
        return [scores.token_logprobs.tolist() for scores in sequence_scores(Scorer(model), pool.sequences)]
