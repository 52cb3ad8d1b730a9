"""The parameters of the generated datasets `micro`, `micro-long` and `micro-parts`, each a `Family`.

The first two are the same game at two lengths. In `micro` a task has three of the eight unstated rules, and the agent
five questions: asking for five of eight at random finds all three in one dialogue of six (10 in 56). In `micro-long` a
task has five of fourteen, and the agent nine questions, which at random find all five in one dialogue of 16 (126 in
2002). In both, an agent that knows the four or eight rules typical of each function can ask for all of them and finds
all.

In `micro-parts` a task has six of the fourteen rules, and the code is delivered line by line, in twenty turns
(`sweet.tasks.parts`). Nobody says whether a line is right, and none can be inserted later: a line that is written
before all rules that belong above it were asked for costs the task, many turns before the tests show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sweet.tasks.micro.rules import FUNCTIONS, RATE, RULES, Function

LONG_ONLY = ("smallest", "pack", "insurance", "halve", "service", "voucher")
"""The rules that only the long family has."""


@dataclass(frozen=True, eq=False)
class Family:
    """A generated dataset. Two are the same if they are the same object, which makes them keys.

    Attributes:
        name: the name of the dataset.
        unstated: the rules that no request states, in the order of the code.
        functions: the functions, each with the rules that are typical of it.
        rules_per_task: number of unstated rules of a task.
        questions: number of questions before the answer: one more than a function has typical rules, or four more.
        reply_tokens: maximum tokens of a reply: more than the longest answer has in the tokenizers in use.
        splits: number of tasks in each split.
        agent: the packaged model that plays it (`sweet.tasks.packaged`).
        part_lines: lines that one reply delivers at most; 0 if the answer is delivered as a whole.
        kind: of the tasks.
    """

    name: str
    unstated: tuple[str, ...]
    functions: tuple[Function, ...]
    rules_per_task: int
    questions: int
    reply_tokens: int
    splits: Mapping[str, int]
    agent: str
    part_lines: int = 0
    kind: str = "code"

    @property
    def turns(self) -> int:
        """Number of the agent's turns in a dialogue: its questions, a part for each line of a rule, and the answer."""
        parts = self.rules_per_task + 1 if self.part_lines else 0
        return self.questions + parts + 1


_UNSTATED = tuple(rule.name for rule in RULES if rule is not RATE)

MICRO = Family(
    name="micro",
    unstated=tuple(name for name in _UNSTATED if name not in LONG_ONLY),
    functions=FUNCTIONS,
    rules_per_task=3,
    questions=5,
    reply_tokens=128,
    splits=MappingProxyType({"train": 2000, "validation": 256, "test": 512}),
    agent="micro",
)

LONG = Family(
    name="micro-long",
    unstated=_UNSTATED,
    functions=tuple(replace(one, typical=(*one.typical, *one.more)) for one in FUNCTIONS),
    rules_per_task=5,
    questions=9,
    reply_tokens=192,
    splits=MappingProxyType({"train": 8000, "validation": 256, "test": 512}),
    agent="micro-parts",
)

PARTS = Family(
    name="micro-parts",
    unstated=_UNSTATED,
    functions=LONG.functions,
    rules_per_task=6,
    questions=12,
    reply_tokens=64,
    splits=MappingProxyType({"train": 4000, "validation": 256, "test": 512}),
    agent="micro-parts",
    part_lines=2,
)
"""Two lines: the first part has the signature too."""

FAMILIES = {family.name: family for family in (MICRO, LONG, PARTS)}
"""The families by the name of the dataset."""
