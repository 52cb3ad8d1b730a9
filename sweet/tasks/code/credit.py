"""What a reply to a code task is worth, as the task itself knows it: what a critic's order is held against.

A task with facts knows which of them a question brings out (its cues), and so which are told at any point of a
dialogue, whatever words the human used. A question is good where it brings out a fact that was not told. To answer is
good once all facts are told, and on the last turn, where nothing can be asked any more; the answer's code must then be
the reference, on the last turn less the lines of facts that were not told. Code is compared as syntax trees.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sweet.tasks.base import Credit, Fact, Message, Move, Task
from sweet.tasks.code.extract import extract_code, parsed
from sweet.tasks.code.scoring import asked_names
from sweet.tasks.facts import asked_for

VALUES = {
    "full": 2.0,
    "partial": 1.0,
    "useful": 1.0,
    "useless": -0.5,
    "repeated": -0.5,
    "early": -1.0,
    "wrong": -1.0,
}
"""The kinds of reply. Answers: `full` is the reference, all facts told; `partial` on the last turn the reference, in
which only lines of untold facts may be missing; `early` comes while something is untold and could be asked; `wrong` is
any other. Questions: `useful` brings out a fact that was not told; `repeated` was asked before, or brings out only what
was told; `useless` is any other."""


@dataclass(frozen=True)
class Statement:
    """A statement of a source.

    Attributes:
        tree: its syntax tree, as text.
        line: its text, where it stands on one line.
    """

    tree: str
    line: str | None


def credit(task: Task, observation: Sequence[Message], move: Move, *, last: bool) -> Credit | None:
    """What the move is worth after the observation; None for a task without facts."""
    if not task.facts:
        return None
    questions = [message.content for message in observation if message.role == "assistant"]
    told = {fact.topic for question in questions for fact in asked_for(task, question)}
    if move.answer is None:
        kind = _question(task, move.content, questions, told)
    else:
        kind = _answer(task, move.answer, [fact for fact in task.facts if fact.topic not in told], last)
    return Credit(kind, VALUES[kind])


def _question(task: Task, question: str, asked: Sequence[str], told: Collection[str]) -> str:
    found = {fact.topic for fact in asked_for(task, question)}
    if not found.issubset(told):
        return "useful"
    return "repeated" if found or question.strip() in map(str.strip, asked) else "useless"


def _answer(task: Task, answer: str, untold: Sequence[Fact], last: bool) -> str:
    if untold and not last:
        return "early"
    source = extract_code(answer, asked_names(task))
    ours = [] if source is None else statements(source)
    reference = statements(task.ground_truth)
    if not ours or not _is_less(ours, reference, {fact.line.strip() for fact in untold if fact.line}):
        return "wrong"
    return "partial" if untold else "full"


def _is_less(ours: Sequence[Statement], reference: Sequence[Statement], lines: Collection[str]) -> bool:
    """Whether ours is the reference, in which statements that are such lines may be missing."""
    rest = list(reversed(ours))
    for statement in reference:
        if rest and rest[-1].tree == statement.tree:
            rest.pop()
        elif statement.line not in lines:
            return False
    return not rest


@lru_cache(maxsize=4096)
def statements(source: str) -> tuple[Statement, ...]:
    """The statements of a source in their order, those of its functions one by one; none where it has no tree."""
    tree = parsed(source)
    found: list[Statement] = []
    try:
        for node in tree.body if tree else ():
            body: list[ast.stmt] = []
            if isinstance(node, ast.FunctionDef):
                body, node.body = node.body, []
            found.append(_statement(node, source, ""))
            found += [_statement(one, source, "  ") for one in body]
    except RecursionError:
        return ()
    return tuple(found)


def _statement(node: ast.stmt, source: str, inside: str) -> Statement:
    alone = node.lineno == node.end_lineno
    return Statement(inside + ast.dump(node), ast.get_source_segment(source, node) if alone else None)
