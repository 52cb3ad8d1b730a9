"""The references that the benchmark of the leak detector gives away: own ones as in backends, and micro's.

`leak_texts/references.txt` has a request and its function each; a line `#### request` begins them.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.leak_translators import TEXTS
from sweet.tasks.micro.family import FAMILIES
from sweet.tasks.micro.generator import load


class Reference(NamedTuple):
    """A function, and the first message of the human, which shows its signature."""

    source: str
    request: str


def references(micro: int = 4) -> list[Reference]:
    """Return all references, with the first `micro` test tasks of each family of micro tasks."""
    texts = (part.partition("\n") for part in (TEXTS / "references.txt").read_text().split("#### ")[1:])
    own = [Reference(source.strip(), request) for request, _, source in texts]
    tasks = [task for family in FAMILIES.values() for task in load("test", family)[:micro]]
    return own + [Reference(task.ground_truth, task.problem_description) for task in tasks]
