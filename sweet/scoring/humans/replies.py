"""What one reply of a human states, measured by rules: no model, and the same for people and simulated humans.

    facts       numbers and words of three or more letters in the reply that occur in the hidden information, and in
                neither the request nor the question: what the reply adds. Numbers up to twelve count as words too.
    unknown     it says that it does not know
    negates     it contains a negation
    polarity    of a yes/no question: whether the reply begins with a yes or a no; None where it does neither
    fault       what sweet.humans.faults finds, a leak apart from the others

Phrases are known in the languages of the packaged personas: English, German, Spanish, Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweet.humans.faults import fault_of
from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import Trajectory

_NUMBER_SAID = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_WORD_SAID = re.compile(r"[^\W\d_]{3,}")
_ANY_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
"""A word, or one character of a writing without blanks."""


def _known(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SMALL = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_FILLERS = _known(
    "the and for are was not with has have that this from but you your its can may will all any def return elif else "
    "while import none true false self class lambda print len max min int str"
)
"""Words that occur in most texts or in most code."""

_UNKNOWN = (
    *("do not know", "don't know", "not sure", "no idea", "not certain", "cannot say", "can't say"),
    *("weiß nicht", "weiß ich nicht", "weiss nicht", "keine ahnung", "no sé", "no lo sé", "no se sabe"),
    *("不知道", "不清楚", "不确定"),
)
_NEGATIONS = _known(
    "no not never none nothing without cannot neither nor nein nicht kein keine keinen nie ohne nunca nada sin "
    "tampoco ningún ninguna"
)
_CHINESE_NEGATIONS = ("不", "没", "無", "无")
_YES = _known("yes yeah yep correct right exactly sure indeed true ja genau richtig stimmt sí si correcto")
_NO = _known("no nope not incorrect wrong false never nein nicht falsch")
_ASKS_YES_OR_NO = _known(
    "is are was were do does did can could should shall will would has have had must may might am isn aren don doesn "
    "didn"
)


@dataclass(frozen=True)
class Exchange:
    """A question of the agent in its dialogue, and the human's reply.

    Attributes:
        said: the dialogue up to the question, without the agent's system prompt.
    """

    dialogue: str
    task: Task
    said: tuple[Message, ...]
    reply: str

    @property
    def question(self) -> str:
        return self.said[-1].content


@dataclass(frozen=True)
class Reply:
    """The measures of one reply."""

    words: int
    facts: frozenset[str]
    unknown: bool
    negates: bool
    polarity: bool | None
    leak: bool
    fault: bool

    @property
    def numbers(self) -> frozenset[str]:
        """The numbers among the facts."""
        return frozenset(fact for fact in self.facts if fact[0] in "0123456789")


def exchanges(trajectory: Trajectory) -> Iterator[Exchange]:
    """Yield each reply of the human to the agent, in order."""
    said: list[Message] = []
    for turn in trajectory.dialogue_history:
        if turn.role == "user" and said and said[-1].role == "assistant":
            yield Exchange(trajectory.id, trajectory.task, tuple(said), turn.content)
        said.append(Message(role=turn.role, content=turn.content))


def measure(exchange: Exchange, reply: str | None = None) -> Reply:
    """Return the measures of the recorded reply, or of another one to the same question."""
    text = exchange.reply if reply is None else reply
    task, question = exchange.task, exchange.question
    known = _stated(task.hidden) - _stated(task.problem_description) - _stated(question)
    words = _ANY_WORD.findall(text.lower())
    unknown = _says_unknown(text)
    fault = fault_of(text, task, exchange.said)
    return Reply(
        words=len(words),
        facts=frozenset(_stated(text) & known),
        unknown=unknown,
        negates=_negates(text, words),
        polarity=_polarity(words) if asks_yes_or_no(question) and not unknown else None,
        leak=fault == "leaked",
        fault=fault is not None and fault != "leaked",
    )


def asks_yes_or_no(question: str) -> bool:
    """Return whether the last question in a text is answered by yes or no."""
    before, mark, _ = question.rpartition("?")
    if not mark:
        return False
    start = max(before.rfind(sign) for sign in ".!?\n:,") + 1
    words = _ANY_WORD.findall(before[start:].lower())
    return bool(words) and words[0] in _ASKS_YES_OR_NO


def same_question(text: str) -> str:
    """Return what two texts of one question have in common: words, without case and spacing."""
    return " ".join(text.lower().split())


def jaccard(a: frozenset[str], b: frozenset[str]) -> float | None:
    """Return the share of what either states that both state; None where neither states anything."""
    return len(a & b) / len(a | b) if a | b else None


def _stated(text: str) -> set[str]:
    """Return the numbers, in one spelling each, and the words of a text."""
    lower = text.lower()
    numbers = {_spelled(number) for number in _NUMBER_SAID.findall(lower)}
    words = set(_WORD_SAID.findall(lower))
    return numbers | {str(_SMALL.index(word)) for word in words.intersection(_SMALL)} | (words - _FILLERS - {*_SMALL})


def _spelled(number: str) -> str:
    whole, _, part = number.partition(".")
    part = part.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{part}" if part else "")


def _says_unknown(text: str) -> bool:
    plain = " ".join(text.lower().replace("\u2019", "'").split())
    return any(phrase in plain for phrase in _UNKNOWN)


def _negates(text: str, words: Sequence[str]) -> bool:
    shortened = "n't" in text.lower().replace("\u2019", "'")
    return shortened or not _NEGATIONS.isdisjoint(words) or any(sign in text for sign in _CHINESE_NEGATIONS)


def _polarity(words: Sequence[str]) -> bool | None:
    first = words[0] if words else ""
    if first in _YES or first in ("是", "对", "對"):
        return True
    return False if first in _NO or first in ("不", "没", "否") else None
