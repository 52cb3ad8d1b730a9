"""The replies of a scripted human that knows only a task's facts: those whose cues occur in the question.

Cues match whole words in any case. If a question contains the cues of several facts, the human gives at most two of
them, in the order of the question, since the human of the original protocol answers in at most two sentences. A part of
an answer that is built in parts is no question: the human only notes it (`sweet.tasks.parts`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from sweet.tasks.base import Fact, Task
from sweet.tasks.parts import NOTED, part_of

UNKNOWN = "I do not know."
"""The reply to a question that no fact answers."""

MOST_FACTS = 2
"""Maximum number of facts in one reply."""


def reply_from_facts(task: Task, question: str) -> str:
    """Return the reply to `question`, the agent's last message; it depends on nothing else."""
    if part_of(task, question) is not None:
        return NOTED
    return " ".join(fact.answer for fact in facts_asked_for(task, question)) or UNKNOWN


def facts_asked_for(task: Task, question: str) -> list[Fact]:
    """Return the facts in the reply to `question`."""
    if part_of(task, question) is not None:
        return []
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
