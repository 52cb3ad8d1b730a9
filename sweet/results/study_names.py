"""The words for judges, kinds of turns and families of tasks in a study; those for methods are in its settings."""

from __future__ import annotations

from collections.abc import Iterable

SWEET = "sweet"
PLUS = "sweet-plus"

JUDGES = {
    "critic": "critic",
    "no_info": "no-info critic",
    "oracle": "oracle",
    "random": "random",
    "untrained": "untrained",
}
"""The judges that choose the best of N, or credit turns."""

KINDS = {
    "useful": "useful question",
    "useless": "useless question",
    "repeated": "repeated question",
    "early": "early answer",
    "full": "full answer",
    "partial": "partial answer",
    "wrong": "wrong answer",
    "part": "right part of an answer",
    "early part": "early part",
    "wrong part": "wrong part",
    "lost": "after an early or wrong part",
}
"""Kinds of turns."""

FAMILIES = {
    "micro": "generated tasks",
    "micro-long": "generated tasks with long dialogues",
    "micro-parts": "generated tasks whose answers are built in parts",
}
"""Families of tasks."""

SMALL_AGENT = "an agent of a million parameters"
"""The agent if no model is named."""


def about(family: str, model: str | None = None) -> str:
    """Describe the scope of the results of a model on a family of tasks; without a model for the packaged agent."""
    tasks = FAMILIES.get(family, f"the generated tasks {family!r}")
    agent = model or SMALL_AGENT
    return f"A small proof on {tasks} and {agent}: not the results of the paper, and no evidence about large models."


def known_first(names: Iterable[str], order: Iterable[str]) -> list[str]:
    """Return the known names in the given order, then the others in their own order."""
    found = list(names)
    known = [name for name in order if name in found]
    return known + [name for name in found if name not in known]
