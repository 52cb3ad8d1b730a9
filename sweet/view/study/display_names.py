"""What the methods, judges and kinds of turn of a study are called, and what each of them is, in a few words.

docs/results.md says it at length; a test compares the names.
"""

from __future__ import annotations

from collections.abc import Iterable

SWEET = "sweet"

GROUPS: dict[str, dict[str, str]] = {
    "methods": {
        "zero-shot": "the agent that all others start from",
        "rft": "likelihood of the dialogues that succeeded",
        "multi-turn-dpo": "better against worse whole dialogues",
        SWEET: "better against worse replies of one turn, ranked by the critic",
    },
    "sweet with one change": {
        "no-info": "the critic does not see the reference solution",
        "normalize-none": "the critic sums log-ratios over tokens instead of averaging them",
        "regression": "the critic is a linear head on hidden states",
        "upstream": "critic, ranking and actor follow the published code",
        "beta-0": "no preference: likelihood of the replies that the critic puts first",
    },
    "other judges for the critic": {
        "oracle": "the generator's own knowledge of each reply in the critic's place",
        "random": "chance in the critic's place",
        "untrained": "the agent that all start from, shown the reference solution, in the critic's place",
    },
}
"""Methods under what they have in common, in the order in which they are shown."""

METHODS = {name: what for group in GROUPS.values() for name, what in group.items()}

JUDGES = {
    "critic": "critic",
    "no_info": "no-info critic",
    "oracle": "oracle",
    "random": "random",
}
"""Who picks the best of N, or credits turns."""

KINDS = {
    "useful": "useful question",
    "useless": "useless question",
    "repeated": "repeated question",
    "early": "early answer",
    "full": "full answer",
    "partial": "partial answer",
    "wrong": "wrong answer",
}
"""Of turns."""

FAMILIES = {
    "micro": "generated tasks",
    "micro-long": "generated tasks with long dialogues",
}
"""Of tasks: what a study of them is about."""

SMALL_AGENT = "an agent of a million parameters"
"""Who plays where no model is named."""


def about(family: str, model: str | None = None) -> str:
    """What the figures of a model on a family of tasks are, and are not; without a name the packaged agent."""
    tasks = FAMILIES.get(family, f"the generated tasks {family!r}")
    who = model or SMALL_AGENT
    return f"A small proof on {tasks} and {who}: these are not the paper's figures, and say nothing of large models."


def known_first(names: Iterable[str], order: Iterable[str]) -> list[str]:
    """The names that are known in their order, then the others as they come."""
    found = list(names)
    known = [name for name in order if name in found]
    return known + [name for name in found if name not in known]
