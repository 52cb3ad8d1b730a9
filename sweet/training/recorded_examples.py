"""The examples of a training as its first attempt built them, in a file beside the checkpoint.

What a credit rule weighs by is computed: probabilities by a teacher, advantages by a critic, rewards by a model that
was trained for it. Several threads add in an order of their own, so a second computation differs in the last bits. A
training that is resumed therefore learns from the recorded weights, and ends with the weights of an uninterrupted one.
Examples without weights of tokens are computed exactly, and are not recorded.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from sweet.errors import UsageError
from sweet.files import write_whole
from sweet.learn.components import Example
from sweet.learn.job import EXAMPLES
from sweet.regular import open_regular
from sweet.training.examples import TrainingData
from sweet.training.reward_model import RewardFigures

FILE = "examples.json"
"""In the folder of the artifact, until the training is done."""


def as_recorded(
    path: Path, data: TrainingData, reward: RewardFigures | None, digest: str, *, resume: bool
) -> tuple[TrainingData, RewardFigures | None]:
    """Return the data with its examples as they are recorded; where none are, record them.

    Args:
        reward: what the training of a reward model did; recorded with the examples that it led to.
        digest: identifies the training.
        resume: whether an earlier attempt is continued; otherwise what it recorded is replaced.

    Raises:
        UsageError: the file cannot be read, or is of other examples.
    """
    if not any(example.terms for example in data.examples):
        return data, reward
    if not resume or not path.exists():
        content = {
            "digest": digest,
            "examples": EXAMPLES.dump_python(data.examples, mode="json"),
            "reward": None if reward is None else asdict(reward),
        }
        write_whole(path, json.dumps(content).encode())
        return data, reward
    anew = "train without --resume"
    try:
        with open_regular(path) as file:
            content = json.load(file)
        examples = EXAMPLES.validate_python(content["examples"])
        figures = None if content["reward"] is None else RewardFigures(**content["reward"])
        same = content["digest"] == digest
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The examples of the training cannot be read: {error}", where=path, fix=anew) from error
    if not same or [_of(example) for example in examples] != [_of(example) for example in data.examples]:
        what = "The training was started with other examples, or with other settings."
        raise UsageError(what, where=path, fix=anew)
    return replace(data, examples=examples), figures


def _of(example: Example) -> tuple[object, ...]:
    """Return what an example is made of, without its weights."""
    sizes = [(len(term.sampled), len(term.advantages), len(term.teacher), len(term.top_ids)) for term in example.terms]
    return example.name, example.chosen, example.rejected, example.group, example.goals, sizes
