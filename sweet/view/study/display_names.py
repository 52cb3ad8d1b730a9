"""Names and short descriptions of the methods, judges and kinds of turn of a study.

docs/results.md describes them in detail; a test compares the names.
"""

from __future__ import annotations

from collections.abc import Iterable

SWEET = "sweet"
PLUS = "sweet-plus"

GROUPS: dict[str, dict[str, str]] = {
    "methods": {
        "zero-shot": "the initial agent of all methods",
        "rft": "likelihood of the dialogues that succeeded",
        "multi-turn-dpo": "better against worse whole dialogues",
        SWEET: "better against worse replies of one turn, ranked by the critic",
        "sweet-pg-candidates": "a policy gradient of the critic's advantages of all replies of one turn",
        PLUS: "the same with another reference at ranking, clearer pairs and a summed likelihood",
        "sweet-lookahead": "pairs and actor of sweet-plus; replies are ranked by what comes next, without a critic",
        "sweet-anchored": "the same, and the likelihood of a reply at turns whose replies are all as good",
    },
    "learning from their own dialogues": {
        "grpo": "rewards of whole dialogues against the mean of their task",
        "rloo": "rewards against the mean of the task's other dialogues",
        "istar": "rewards of turns by a reward model that is trained in turns with the actor",
        "opsd": "likelihood under the agent that sees the reference solution",
        "sweet-pg": "the critic's advantages of the turns that were taken",
    },
    "sweet with one change": {
        "no-info": "the critic does not see the reference solution",
        "no-info-reference": "at ranking, the reference model does not see the reference solution",
        "normalize-none": "the critic sums log-ratios over tokens instead of averaging them",
        "regression": "the critic is a linear head on hidden states",
        "beta-0": "no preference: likelihood of the replies that the critic ranks first",
    },
    "published settings and protocol": {
        "paper-settings": "likelihood terms and pairs as in the paper",
        "upstream": "critic, ranking and actor follow the published code",
        "upstream-tuned": "the same with the likelihood terms and pairs of sweet",
    },
    "other judges for the critic": {
        "oracle": "the generator's knowledge of each reply instead of the critic",
        "random": "chance instead of the critic",
        "untrained": "the initial agent with the reference solution instead of the critic",
    },
}
"""Methods by group, in the order of display."""

METHODS = {name: what for group in GROUPS.values() for name, what in group.items()}

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
