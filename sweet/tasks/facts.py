"""What a human says who knows a task's facts and nothing else: the fact whose cue stands in the question.

Cues match whole words in any case. A question may touch several facts; the human tells at most two, in the order in
which the question names them, as the human of the original protocol answers in at most two sentences.
"""

from __future__ import annotations

import re
from functools import lru_cache

from sweet.tasks.base import Fact, Task

UNKNOWN = "I do not know."
"""The reply to a question that no fact answers."""

MOST_FACTS = 2
"""So many facts are told in one reply at most."""


def tell(task: Task, question: str) -> str:
    """The reply to `question`; depends on nothing else."""
    return " ".join(fact.answer for fact in asked_for(task, question)) or UNKNOWN


def asked_for(task: Task, question: str) -> list[Fact]:
    """The facts that the reply to `question` tells."""
    found: list[tuple[int, int]] = []
    for index, fact in enumerate(task.facts):
        starts = [match.start() for cue in fact.cues if (match := _cue(cue).search(question))]
        if starts:
            found.append((min(starts), index))
    return [task.facts[index] for _, index in sorted(found)[:MOST_FACTS]]


@lru_cache(maxsize=4096)
def _cue(cue: str) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in cue.split())
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)
