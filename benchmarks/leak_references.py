"""The references that the benchmark of the leak detector gives away: own ones as in backends, and micro's.

`leak_texts/references.txt` has a request (`#### request`), what a human tells (`#: fact | fact`) and the function.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from benchmarks.leak_translators import TEXTS
from sweet.tasks.micro.family import FAMILIES
from sweet.tasks.micro.generator import load


class Reference(NamedTuple):
    """A function, the first message of the human, which shows its signature, and the facts as people tell them."""

    source: str
    request: str
    facts: tuple[str, ...]


@cache
def references(micro: int = 4) -> tuple[Reference, ...]:
    """Return all references, with the first `micro` test tasks of each family of micro tasks."""
    texts = (part.split("\n", 2) for part in (TEXTS / "references.txt").read_text().split("#### ")[1:])
    own = (Reference(source.strip(), request, tuple(told[3:].split(" | "))) for request, told, source in texts)
    tasks = (task for family in FAMILIES.values() for task in load("test", family)[:micro])
    said = (Reference(t.ground_truth, t.problem_description, tuple(fact.answer for fact in t.facts)) for t in tasks)
    return (*own, *said)
