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
    found: Speech = {}
    if side.rollouts is not None and (path := side.run.file(side.rollouts)).is_file():
        for one in read_jsonl(path, Trajectory):
            if one.task_id in tasks and one.session is None and _replies(one):
                found.setdefault(one.task_id, []).append(one)
    return found


def _replies(dialogue: Trajectory) -> list[str]:
    """Return what the human says after its request."""
    return [turn.content for turn in dialogue.dialogue_history[1:] if turn.role == "user" and turn.content.strip()]


def figures(side: Speech, other: Speech) -> dict[str, dict[str, list[float]]]:
    """Return the figures of the dialogues of a side, by name and task."""
    typos = _typos(side, other)
    found = {task: [_figures(one, typos) for one in rows] for task, rows in side.items()}
    names = next(iter(found.values()))[0]
    return {name: {task: [row[name] for row in rows] for task, rows in found.items()} for name in names}


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
    known = _spoken(other)
    for one in (*_all(side), *_all(other)):
        said = [turn.content for turn in one.dialogue_history if turn.role == "assistant"]
        known.update(_words(" ".join([one.task.problem_description, one.task.ground_truth, *said])))
    strange = sorted(word for word in _spoken(side) - known if len(word) >= _TYPO_LENGTH)[:_MOST_STRANGE]
    return {word for word in strange if get_close_matches(word, known, 1, 0.84)}


def _spoken(side: Speech) -> set[str]:
    return {word for one in _all(side) for reply in _replies(one) for word in _words(reply)}


def _unasked(dialogue: Trajectory) -> int:
    """Return how many replies have the number of a fact that the question did not ask for, by the fact's cues."""
    told, asked = 0, ""
    for turn in dialogue.dialogue_history[1:]:
        if turn.role == "assistant":
            asked = turn.content.casefold()
        elif turn.role == "user":
            facts = {fact: any(cue.casefold() in asked for cue in fact.cues) for fact in dialogue.task.facts}
            owed = {number for fact, is_asked in facts.items() if is_asked for number in _numbers(fact.answer)}
            more = {number for fact in facts for number in _numbers(fact.answer)} - owed
            told += bool(more & _numbers(turn.content))
    return told


def _all(side: Speech) -> Iterable[Trajectory]:
    return (one for rows in side.values() for one in rows)


def told_apart(sides: Sequence[Mapping[str, Mapping[str, Sequence[float]]]]) -> Interval | None:
    """Return the accuracy of the classifier with its interval over tasks; None with fewer than `LEAST_TASKS` tasks.

    Args:
        sides: the figures of both sides, over the same tasks.
    """
    import numpy as np

    names, tasks = sorted(sides[0]), sorted(sides[0]["replies"])
    if len(tasks) < LEAST_TASKS:
        return None
    of = [(task, y) for y, side in enumerate(sides) for task in tasks for _ in side["replies"][task]]
    x: Any = np.array([[v for side in sides for task in tasks for v in side[name][task]] for name in names]).T
    y, fold = np.array([one for _, one in of]), np.array([tasks.index(task) % FOLDS for task, _ in of])
    shares = np.array([np.mean(y == 0), np.mean(y == 1)])
    right = np.zeros(len(y))
    for number in range(FOLDS):
        own = fold != number
        mean, scale = x[own].mean(0), x[own].std(0) + 1e-9
        scaled = np.hstack([(x - mean) / scale, np.ones((len(x), 1))])
        weights = np.zeros(scaled.shape[1])
        for _ in range(STEPS):
            expected = 1 / (1 + np.exp(-np.clip(scaled[own] @ weights, -30, 30)))
            slope = scaled[own].T @ ((expected - y[own]) / shares[y[own]]) / own.sum()
            weights -= 0.3 * (slope + 0.01 * weights)
        right[~own] = (scaled[~own] @ weights > 0) == (y[~own] == 1)
    return clustered_mean(list(right / shares[y] / 2), [task for task, _ in of])
