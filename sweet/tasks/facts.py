"""The replies of a scripted human that knows only a task's facts: those whose cues occur in the question; and the value
of a question by the facts that it asks for.

Cues match whole words in any case; in scripts without spaces between words, anywhere. If a question contains the cues
of several facts, the human gives at most two of them, in the order of the question, since the human of the original
protocol answers in at most two sentences. A part of an answer that is built in parts is no question: the human only
notes it (`sweet.tasks.parts`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from sweet.tasks.base import Fact, Task
from sweet.tasks.parts import NOTED, part_of

UNKNOWN = "I do not know."
"""The reply to a question that no fact answers."""

MOST_FACTS = 2
"""Maximum number of facts in one reply."""

VALUES = {
    "full": 2.0,
    "partial": 1.0,
    "useful": 1.0,
    "useless": -0.5,
    "repeated": -0.5,
    "early": -1.0,
    "wrong": -1.0,
}
"""The values of the kinds of reply of an agent (`sweet.tasks.base.Credit`). Answers: `full` is right, with all facts
known; `partial`, on the last turn, is right but for what unknown facts would add; `early` is given while a fact is
unknown and could be asked for; `wrong` is any other. Questions: `useful` asks for an unknown fact; `repeated` was asked
before, or asks only for known facts; `useless` is any other."""


def reply_from_facts(task: Task, question: str) -> str:
    """Return the reply to `question`, the agent's last message; it depends on nothing else."""
    if part_of(task, question) is not None:
        return NOTED
    return " ".join(fact.answer for fact in facts_asked_for(task, question)) or UNKNOWN


def facts_asked_for(task: Task, question: str) -> list[Fact]:
    """Return the facts in the reply to `question`."""
    if part_of(task, question) is not None:
        return []
    matches: list[tuple[int, int]] = []
    for index, fact in enumerate(task.facts):
        starts = [match.start() for cue in fact.cues if (match := _cue(cue).search(question))]
        if starts:
            matches.append((min(starts), index))
    return [task.facts[index] for _, index in sorted(matches)[:MOST_FACTS]]


def unknown_facts(task: Task, questions: Sequence[str]) -> list[Fact]:
    """Return the facts that none of the questions asked for."""
    known_topics = {fact.topic for question in questions for fact in facts_asked_for(task, question)}
    return [fact for fact in task.facts if fact.topic not in known_topics]


def kind_of_question(task: Task, question: str, earlier_questions: Sequence[str]) -> str:
    """Return the kind of a question after those that were asked: `useful`, `repeated` or `useless`."""
    unknown = {fact.topic for fact in unknown_facts(task, earlier_questions)}
    topics = {fact.topic for fact in facts_asked_for(task, question)}
    if topics & unknown:
        return "useful"
    return "repeated" if topics or question.strip() in map(str.strip, earlier_questions) else "useless"


_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
"""The letters of Thai, Lao, Burmese, Khmer, Japanese and Chinese."""


@lru_cache(maxsize=4096)
def _cue(cue: str) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in cue.split())
    return re.compile(rf"(?<![^\W{_UNSPACED}]){words}(?![^\W{_UNSPACED}])", re.IGNORECASE)
