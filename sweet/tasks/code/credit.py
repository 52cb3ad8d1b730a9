"""The value of a reply to a code task by the task's own facts, as a baseline for critics.

The cues of the facts determine which facts a question asks for, and so which are known at any point of a dialogue,
whatever the human said. A question is good if it asks for a fact that is not known. An answer is good if all facts are
known, or on the last turn; its code must then be the reference, on the last turn without the lines of unknown facts.
Code is compared as syntax trees.

Where the answer is built in parts (`sweet.tasks.parts`), a part is good if it has the next statements of the reference
and the facts behind them are known. After any other part the task is lost, whatever follows, and all replies are equal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sweet.tasks import facts
from sweet.tasks.base import Credit, Fact, Message, Move, Task
from sweet.tasks.code.reader import Statement, read_task, statements, statements_of_answer
from sweet.tasks.facts import kind_of_question, unknown_facts
from sweet.tasks.parts import assembled, part_of, parts_of

VALUES = facts.VALUES | {"part": 1.0, "early part": -1.0, "wrong part": -1.0, "lost": 0.0}
"""The kinds of reply: those of every task with facts, where `full` and `partial` answers are the reference, `partial`
ones possibly without lines of unknown facts. Parts: `part` continues the reference; `early part` has lines of the
reference, but omits one of an unknown fact that belongs before them, or guesses one; `wrong part` is any other; `lost`
is any reply after an early or wrong part."""


def credit(task: Task, observation: Sequence[Message], move: Move, *, last: bool) -> Credit | None:
    """Return the value of the move after the observation; None for a task without facts."""
    if not task.facts:
        return None
    questions = [message.content for message in observation if message.role == "assistant"]
    unknown = unknown_facts(task, questions)
    sent = _part_trees(task, observation)
    if sent != [statement.tree for statement in statements(task.ground_truth)[: len(sent)]]:
        kind = "lost"
    elif move.answer is not None:
        kind = _answer(task, assembled(task, observation, move.answer), unknown, last)
    elif part_of(task, move.content) is not None:
        delivered = _part_trees(task, [*observation, Message(role="assistant", content=move.content)])
        kind = _part(task, sent, delivered, unknown)
    else:
        kind = kind_of_question(task, move.content, questions)
    return Credit(kind, VALUES[kind])


def _answer(task: Task, answer: str, unknown: Sequence[Fact], last: bool) -> str:
    if unknown and not last:
        return "early"
    written = statements_of_answer(answer, read_task(task).names)
    reference = statements(task.ground_truth)
    if not written or not _matches(written, reference, {fact.line.strip() for fact in unknown if fact.line}):
        return "wrong"
    return "partial" if unknown else "full"


def _part_trees(task: Task, dialogue: Sequence[Message]) -> list[str]:
    """Return the trees of the statements in the parts that were delivered; an empty one if they are no code."""
    parts = parts_of(task, dialogue)
    if not parts:
        return []
    source = "\n".join(parts)
    # The line of a signature alone is no code: it gets a body, which is left out again.
    parsed = statements(source) or statements(f"{source} pass")[:-1]
    return [statement.tree for statement in parsed] or [""]


def _part(task: Task, before: Sequence[str], after: Sequence[str], unknown: Sequence[Fact]) -> str:
    """Return the kind of a part, by what was delivered before it and with it (`_part_trees`)."""
    new, rest = after[len(before) :], statements(task.ground_truth)[len(before) :]
    trees = [statement.tree for statement in rest]
    if not new or not set(new) <= set(trees):
        return "wrong part"
    guessable = {fact.line.strip() for fact in unknown if fact.line}
    if any(statement.line in guessable for statement in rest[: trees.index(new[-1]) + 1]):
        return "early part"
    return "part" if new == trees[: len(new)] else "wrong part"


def _matches(written: Sequence[Statement], reference: Sequence[Statement], optional: Collection[str]) -> bool:
    """Return whether the statements are those of the reference, of which `optional` lines may be missing."""
    rest = list(reversed(written))
    for statement in reference:
        if rest and rest[-1].tree == statement.tree:
            rest.pop()
        elif statement.line not in optional:
            return False
    return not rest
