"""How the humans of two evaluations speak, such as people (`sweet play`) and a model that plays them.

Each figure of `ComparedStyle` is a mean over the replies of a dialogue, paired by task. Whether the two can be told
apart says a logistic regression on these figures: it learns from the dialogues of four fifths of the tasks and is asked
about the others, five times. Its accuracy counts both humans alike, so that chance is a half.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from statistics import fmean
from typing import Any

from sweet.runs.jsonl import read_jsonl
from sweet.scoring.results.evaluation import Evaluation
from sweet.stages.intervals import Interval, clustered_mean
from sweet.tasks.trajectory import Trajectory

_WORD, _NUMBER = re.compile(r"[^\W\d_]+"), re.compile(r"\d+")
_POLITE = {"please", "thank", "thanks", "sorry", "kindly", "welcome", "bitte", "danke", "gracias"}
_CORRECTING = {"actually", "correction", "meant", "mistake", "wait", "rather", "oops"}
_DECLINING = ("know", "mind", "idea", "matter", "sure", "care", "remember", "specified")
FOLDS, LEAST_TASKS, STEPS = 5, 10, 300
_TYPO_LENGTH, _MOST_STRANGE = 5, 2000


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(text))


FIGURES: Mapping[str, Callable[[str], float]] = {
    "words": lambda reply: len(_words(reply)),
    "sentences": lambda reply: float(sum(map(reply.count, ".!?\n")) > 1),
    "numbers": lambda reply: float(bool(_numbers(reply))),
    "questions": lambda reply: float("?" in reply),
    "polite": lambda reply: float(bool(_POLITE.intersection(_words(reply)))),
    "corrections": lambda reply: float(bool(_CORRECTING.intersection(_words(reply)))),
    "declines": lambda reply: float(any(word in _DECLINING for word in _words(reply))),
    "lower_case": lambda reply: float(reply[:1].islower()),
    "unfinished": lambda reply: float(not reply.rstrip().endswith((".", "!", "?"))),
}
"""By name, what is measured in a reply; `ComparedStyle` says what the names mean."""

Speech = dict[str, list[Trajectory]]
"""The dialogues with a reply of the human, by task."""


def speech(side: Evaluation, tasks: Collection[str]) -> Speech:
    """Return the dialogues of a side on these tasks in which the human replies."""
    by_task: Speech = {}
    if side.rollouts is not None and (path := side.run.file(side.rollouts)).is_file():
        for dialogue in read_jsonl(path, Trajectory):
            if dialogue.task_id in tasks and dialogue.session is None and _replies(dialogue):
                by_task.setdefault(dialogue.task_id, []).append(dialogue)
    return by_task


def _replies(dialogue: Trajectory) -> list[str]:
    """Return what the human says after its request."""
    return [turn.content for turn in dialogue.dialogue_history[1:] if turn.role == "user" and turn.content.strip()]


def figures(side: Speech, other: Speech) -> dict[str, dict[str, list[float]]]:
    """Return the figures of the dialogues of a side, by name and task."""
    typos = _typos(side, other)
    by_task = {task: [_figures(dialogue, typos) for dialogue in rows] for task, rows in side.items()}
    names = next(iter(by_task.values()))[0]
    return {name: {task: [row[name] for row in rows] for task, rows in by_task.items()} for name in names}


def _figures(dialogue: Trajectory, typos: Collection[str]) -> dict[str, float]:
    replies = _replies(dialogue)
    return {
        **{name: fmean(map(measure, replies)) for name, measure in FIGURES.items()},
        "typos": fmean(any(word in typos for word in _words(reply)) for reply in replies),
        "unasked": _unasked(dialogue) / len(replies),
        "replies": float(len(replies)),
    }


def _typos(side: Speech, other: Speech) -> set[str]:
    """Return the words that neither a task, an agent nor the other human has, and that are like one of theirs."""
    known_words = _spoken(other)
    for dialogue in (*_all(side), *_all(other)):
        replies = [turn.content for turn in dialogue.dialogue_history if turn.role == "assistant"]
        known_words.update(_words(" ".join([dialogue.task.problem_description, dialogue.task.ground_truth, *replies])))
    strange = sorted(word for word in _spoken(side) - known_words if len(word) >= _TYPO_LENGTH)[:_MOST_STRANGE]
    return {word for word in strange if get_close_matches(word, known_words, 1, 0.84)}


def _spoken(side: Speech) -> set[str]:
    return {word for dialogue in _all(side) for reply in _replies(dialogue) for word in _words(reply)}


def _unasked(dialogue: Trajectory) -> int:
    """Return how many replies have the number of a fact that the question did not ask for, by the fact's cues."""
    unasked, question = 0, ""
    for turn in dialogue.dialogue_history[1:]:
        if turn.role == "assistant":
            question = turn.content.casefold()
        elif turn.role == "user":
            facts = {fact: any(cue.casefold() in question for cue in fact.cues) for fact in dialogue.task.facts}
            owed = {number for fact, is_asked in facts.items() if is_asked for number in _numbers(fact.answer)}
            more = {number for fact in facts for number in _numbers(fact.answer)} - owed
            unasked += bool(more & _numbers(turn.content))
    return unasked


def _all(side: Speech) -> Iterable[Trajectory]:
    return (dialogue for rows in side.values() for dialogue in rows)


def told_apart(sides: Sequence[Mapping[str, Mapping[str, Sequence[float]]]]) -> Interval | None:
    """Return the accuracy of the classifier with its interval over tasks; None with fewer than `LEAST_TASKS` tasks.

    Args:
        sides: the figures of both sides, over the same tasks.
    """
    import numpy as np

    names, tasks = sorted(sides[0]), sorted(sides[0]["replies"])
    if len(tasks) < LEAST_TASKS:
        return None
    examples = [(task, y) for y, side in enumerate(sides) for task in tasks for _ in side["replies"][task]]
    x: Any = np.array([[v for side in sides for task in tasks for v in side[name][task]] for name in names]).T
    y, fold = np.array([label for _, label in examples]), np.array([tasks.index(task) % FOLDS for task, _ in examples])
    shares = np.array([np.mean(y == 0), np.mean(y == 1)])
    right = np.zeros(len(y))
    for number in range(FOLDS):
        train_mask = fold != number
        mean, scale = x[train_mask].mean(0), x[train_mask].std(0) + 1e-9
        scaled = np.hstack([(x - mean) / scale, np.ones((len(x), 1))])
        weights = np.zeros(scaled.shape[1])
        for _ in range(STEPS):
            probability = 1 / (1 + np.exp(-np.clip(scaled[train_mask] @ weights, -30, 30)))
            gradient = scaled[train_mask].T @ ((probability - y[train_mask]) / shares[y[train_mask]]) / train_mask.sum()
            weights -= 0.3 * (gradient + 0.01 * weights)
        right[~train_mask] = (scaled[~train_mask] @ weights > 0) == (y[~train_mask] == 1)
    return clustered_mean(list(right / shares[y] / 2), [task for task, _ in examples])
