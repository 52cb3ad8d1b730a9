"""Tables of dialogues for `--log-to`: a few of each step or evaluation, each a row with task, reward and text.

The tasks are those whose hashes come first, so that evaluations on the same tasks show the same ones. A long dialogue
has its beginning and its end. The texts are data of models and people: the pages that show them may read cells as
Markdown or HTML, so an invisible character (U+200B) breaks every mark that could become a tag, a link or an image.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweet.runs.jsonl import plain
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory

COLUMNS = ("step", "task", "human", "request", "reward", "outcome", "turns", "dialogue")

ROWS = 8
"""Dialogues of a table by default."""
LONGEST_REQUEST, LONGEST_DIALOGUE = 500, 8_000
"""Characters of a cell at most; of a longer text the middle is left out."""

Cell = str | int | float | None

_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|!(?=\[)|\](?=[(\[:])")
_BREAK = "\u200b"

_SPEAKER = {"user": "HUMAN", "assistant": "AGENT"}


@dataclass(frozen=True)
class DialogueTable:
    """A table of dialogues.

    Attributes:
        name: the key under which it is logged.
        step: of the training, or the round.
        rows: cells in the order of `COLUMNS`.
    """

    name: str
    step: int
    rows: list[list[Cell]]


def dialogue_table(name: str, step: int, scored: Iterable[tuple[Trajectory, Score | None]], most: int) -> DialogueTable:
    """Return a table of at most `most` dialogues: of each task the first, then the second, and so on."""
    by_task: dict[str, list[tuple[Trajectory, Score | None]]] = {}
    for trajectory, score in scored:
        by_task.setdefault(trajectory.task_id, []).append((trajectory, score))
    chosen: list[tuple[int, str, Trajectory, Score | None]] = []
    for task, dialogues in by_task.items():
        ordered = sorted(dialogues, key=lambda one: (one[0].sample or 0, one[0].id))
        chosen += [(place, _place(task), *one) for place, one in enumerate(ordered)]
    chosen.sort(key=lambda one: one[:2])
    return DialogueTable(name, step, [_row(step, trajectory, score) for *_, trajectory, score in chosen[:most]])


def harmless(text: str, most: int) -> str:
    """Return a text for a cell: at most about so many characters, without markup and without lone surrogates."""
    return _MARKUP.sub(rf"\g<0>{_BREAK}", plain(shortened(text, most)))


def shortened(text: str, most: int) -> str:
    """Return a text without its middle, where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def _row(step: int, trajectory: Trajectory, score: Score | None) -> list[Cell]:
    turns = trajectory.dialogue_history
    spoken = "\n\n".join(f"{_SPEAKER[turn.role]}:\n{turn.said}" for turn in turns)
    outcome = trajectory.outcome if score is None else score.outcome
    return [
        step,
        harmless(trajectory.task_id, LONGEST_REQUEST),
        harmless(trajectory.human or "", LONGEST_REQUEST),
        harmless(trajectory.task.problem_description, LONGEST_REQUEST),
        None if score is None or score.reward is None else float(score.reward),
        str(outcome),
        sum(turn.role == "assistant" for turn in turns),
        harmless(spoken, LONGEST_DIALOGUE),
    ]


def _place(task: str) -> str:
    return hashlib.sha256(task.encode(errors="replace")).hexdigest()


def pairs(dialogues: Sequence[Trajectory], scores: Iterable[Score]) -> list[tuple[Trajectory, Score | None]]:
    """Return each dialogue with its score; None where it has none."""
    by_id = {score.id: score for score in scores}
    return [(one, by_id.get(one.id)) for one in dialogues]
