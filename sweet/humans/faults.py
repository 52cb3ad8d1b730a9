"""Rules that detect faults in the reply of a model that plays the human: empty, echo, refusal, ended, leaked.

A dialogue with such a reply says nothing about the agent, so it ends and is counted separately. The rules prefer
precision: a human may quote a number or a short expression, and may repeat a word of the question. What leaks is
decided by `sweet.humans.leaks`, over all replies of the dialogue.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from sweet.gathering import Gathering
from sweet.humans.leaks.find import CPU_SECONDS, is_leak, is_source
from sweet.humans.role import words_of
from sweet.llm.base import RequestFailed
from sweet.sandbox.reader import Reader, Unreadable
from sweet.sandbox.reading import Reply
from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import HumanFault

ECHO_CHARACTERS = 20
"""Shorter replies may repeat the question legitimately ("the name?" - "the name")."""
LEAST_ANSWERS = 24
"""Answers in a row, yes or no, from which a reply spells out something: they are the bits of a text."""
_REFUSAL = re.compile(
    r"\W*(?:(?:i['\u2019]?m sorry|i am sorry|sorry|i apologi[sz]e|unfortunately)\W+)?(?:but\W+)?"
    r"(?:as an ai\b|as a (?:large )?language model\b"
    r"|i (?:can(?:no|['\u2019])t|am (?:not able|unable) to|won['\u2019]t)"
    r" (?:assist|help|comply|continue|engage|fulfil|participate|role-?play)\b)",
    re.IGNORECASE,
)
_BOOT = "import sys; sys.path += sys.argv[1:]; from sweet.humans.leaks.find import serve; serve()"
_searcher = Reader(_BOOT, cpu_seconds=CPU_SECONDS, longest=1 << 24)
_searches: WeakKeyDictionary[asyncio.AbstractEventLoop, Gathering[Sequence[Any], Reply | Unreadable]]
_searches = WeakKeyDictionary()
"""Of each event loop: what its dialogues ask at the same time goes to a thread, and to the process, at once. It saves a
twentieth of a rollout's processor time."""
_DELIVERS = re.compile(r"I\s+WANT\s+TO\s+ANSWER\s*:", re.IGNORECASE)


async def fault_of(reply: str, task: Task, dialogue: Sequence[Message]) -> HumanFault | None:
    """Return the fault of the human's `reply` to `dialogue`, whose last message is the agent's, or None.

    The search for leaks runs in a process of its own (`sweet.humans.leaks.find.serve`).

    Raises:
        RequestFailed: the search exceeds its limits.
    """
    if (fault := evident_fault(reply, dialogue)) is not None:
        return fault
    roles, contents = [message.role for message in dialogue], [message.content for message in dialogue]
    request = ("search", _references(task), task.problem_description, roles, contents, reply)
    loop = asyncio.get_running_loop()
    result = await _searches.setdefault(loop, Gathering(_search)).submit(request)
    if isinstance(result, Unreadable):
        raise RequestFailed(f"The human's reply cannot be searched for the reference: {result}.") from result
    return "leaked" if result[0] else None


async def _search(requests: list[Sequence[Any]]) -> list[Reply | Unreadable]:
    return await asyncio.to_thread(_searcher.ask_all, requests)


def leaks(reply: str, task: Task, dialogue: Sequence[Message]) -> bool:
    """Return whether `reply`, with the human's replies in `dialogue`, gives away the task's reference."""
    return any(is_leak(reference, task.problem_description, dialogue, reply) for reference in _references(task))


def evident_fault(reply: str, dialogue: Sequence[Message]) -> HumanFault | None:
    """Return a fault that needs no search, or None."""
    words = words_of(reply)
    if not words:
        return "empty"
    if _DELIVERS.search(reply):
        return "ended"
    if _REFUSAL.match(reply):
        return "refusal"
    if len(" ".join(words)) >= ECHO_CHARACTERS and words == words_of(dialogue[-1].content):
        return "echo"
    return "leaked" if are_answers(reply) else None


def are_answers(text: str) -> bool:
    """Return whether a text is nothing but many answers yes and no, as one letter each or in words."""
    letters = text.lower().replace("yes", "y").replace("no", "n")
    answers = [letter for letter in letters if letter.isalnum()]
    return len(answers) >= LEAST_ANSWERS and {"y", "n"} <= set(answers) <= {"y", "n", "e"}


def _references(task: Task) -> list[str]:
    """Return what must not be given away: the reference, and hidden information that is another program. A
    specification in plain words may be quoted."""
    hidden_programs = [task.hidden] if task.hidden != task.ground_truth and is_source(task.hidden) else []
    return [task.ground_truth, *hidden_programs]
