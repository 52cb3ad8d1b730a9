"""Answers that are built in parts, over several turns of a dialogue.

A task with `part_lines` has such an answer. A reply that begins with `PART:` delivers its next lines; the scripted
human acknowledges them without saying whether they are right. What was delivered stays: the answer that is scored is
all parts in the order in which they came, and then what follows `I WANT TO ANSWER:`. Of each only the first
`part_lines` lines count, so that no reply can deliver the whole. A line that belongs before a delivered one is
therefore lost to an agent that did not ask in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sweet.tasks.base import Message, Task
from sweet.tasks.markers import ANSWER_MARKER, PART_MARKER

NOTED = "Noted."
"""The scripted human's reply to a part, whatever it contains."""

_FENCES = ("```", "~~~")


def part_of(task: Task, content: str) -> str | None:
    """Return the lines that the visible part of a reply delivers, or None if it delivers none."""
    before, mark, after = content.partition(PART_MARKER)
    return _counted(task, after) if task.part_lines and mark and not before.strip() else None


def parts_of(task: Task, dialogue: Sequence[Message]) -> list[str]:
    """Return the parts that were delivered in a dialogue, in their order."""
    parts = (part_of(task, message.content) for message in dialogue if message.role == "assistant")
    return [part for part in parts if part]


def assembled(task: Task, dialogue: Sequence[Message], answer: str) -> str:
    """Return the whole answer: the parts delivered in `dialogue`, then `answer`, which may itself be marked as a part.

    Without `part_lines` it is `answer`.
    """
    if not task.part_lines:
        return answer
    last = part_of(task, answer)
    pieces = [*parts_of(task, dialogue), _counted(task, answer) if last is None else last]
    return "\n".join(piece for piece in pieces if piece)


def undelivered(task: Task, parts: Sequence[str]) -> str:
    """Return the lines of the reference solution that these parts do not have, in their order."""
    delivered = Counter(line for part in parts for line in part.split("\n"))
    left = []
    for line in _lines(task.ground_truth):
        if delivered[line] > 0:
            delivered[line] -= 1
        else:
            left.append(line)
    return "\n".join(left)


def reference_from(task: Task, dialogue: Sequence[Message]) -> list[Message]:
    """Return the reference solution as the answer; of one that is built in parts, each line that is left as a part."""
    if not task.part_lines:
        return [Message(role="assistant", content=f"{ANSWER_MARKER}\n{task.ground_truth}")]
    left, noted = undelivered(task, parts_of(task, dialogue)), Message(role="user", content=NOTED)
    parts = [Message(role="assistant", content=f"{PART_MARKER}\n{line}") for line in left.split("\n")]
    return [message for part in parts for message in (part, noted)][:-1]


def share_of(task: Task, part: str) -> float:
    """Return the lines of a part over the lines of the reference solution."""
    return len(_lines(part)) / len(_lines(task.ground_truth))


def _counted(task: Task, text: str) -> str:
    """Return the lines of a delivery that count, without the fences and empty lines around them."""
    return "\n".join(_lines(text)[: task.part_lines])


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n") if line.strip() and not line.lstrip().startswith(_FENCES)]
