"""The parameters of the generated datasets `micro` and `micro-long`, each a `Family`.

Both are the same game at two lengths. In `micro` a task has three of the eight unstated rules, and the agent five
questions: asking for five of eight at random finds all three in one dialogue of six (10 in 56). In `micro-long` a task
has five of fourteen, and the agent nine questions, which at random find all five in one dialogue of 16 (126 in 2002).
In both, an agent that knows the four or eight rules typical of each function can ask for all of them and finds all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sweet.tasks.micro.rules import FUNCTIONS, RATE, RULES, Function

LONG_ONLY = ("smallest", "pack", "insurance", "halve", "service", "voucher")
"""The rules that only the long family has."""


@dataclass(frozen=True)
class Mistakes:
    """The probabilities of the scripted agent's mistakes.

    Attributes:
        early: delivering before all questions are asked, at each turn.
        useless: asking a question that no task answers.
        repeated: asking a question again.
        slip: writing one wrong value in the answer.
    """

    early: float
    useless: float
    repeated: float
    slip: float


@dataclass(frozen=True, eq=False)
class Family:
    """A generated dataset. Two are the same if they are the same object, which makes them keys.

    Attributes:
        name: the name of the dataset.
        unstated: the rules that no request states, in the order of the code.
        functions: the functions, each with the rules that are typical of it.
        wanted: number of unstated rules of a task.
        questions: number of questions before the answer: one more than a function has typical rules.
        reply_tokens: maximum tokens of a reply: more than the longest answer has in the tokenizers in use.
        splits: number of tasks in each split.
        mistakes: the mistakes of the scripted agent.
    """

    name: str
    unstated: tuple[str, ...]
    functions: tuple[Function, ...]
    wanted: int
    questions: int
    reply_tokens: int
    splits: Mapping[str, int]
    mistakes: Mistakes

    @property
    def turns(self) -> int:
        """Number of the agent's turns in a dialogue: its questions and the answer."""
        return self.questions + 1


_UNSTATED = tuple(rule.name for rule in RULES if rule is not RATE)

_MORE: dict[str, tuple[str, ...]] = {
    "parking_price": ("smallest", "insurance", "halve", "voucher"),
    "bike_rental": ("pack", "insurance", "halve", "voucher"),
    "boat_rental": ("pack", "service", "double", "tax"),
    "hall_rent": ("smallest", "insurance", "halve", "service"),
    "hotel_bill": ("insurance", "halve", "service", "voucher"),
    "camping_fee": ("pack", "insurance", "service", "floor"),
    "late_fine": ("smallest", "pack", "halve", "voucher"),
    "car_rental": ("smallest", "halve", "service", "voucher"),
    "taxi_fare": ("fixed", "discount", "step", "cap"),
    "towing_cost": ("smallest", "pack", "insurance", "service"),
    "shipping_fee": ("smallest", "pack", "insurance", "voucher"),
    "print_cost": ("smallest", "pack", "halve", "free"),
    "phone_bill": ("pack", "halve", "service", "voucher"),
    "cleaning_price": ("smallest", "insurance", "service", "voucher"),
}
"""Further typical rules of each function, so that each of the fourteen rules is typical of eight functions."""

MICRO = Family(
    name="micro",
    unstated=tuple(name for name in _UNSTATED if name not in LONG_ONLY),
    functions=FUNCTIONS,
    wanted=3,
    questions=5,
    reply_tokens=128,
    splits=MappingProxyType({"train": 2000, "validation": 256, "test": 512}),
    mistakes=Mistakes(early=0.03, useless=0.1, repeated=0.05, slip=0.2),
)

LONG = Family(
    name="micro-long",
    unstated=_UNSTATED,
    functions=tuple(replace(one, typical=(*one.typical, *_MORE[one.name])) for one in FUNCTIONS),
    wanted=5,
    questions=9,
    reply_tokens=192,
    splits=MappingProxyType({"train": 8000, "validation": 256, "test": 512}),
    mistakes=Mistakes(early=0.01, useless=0.05, repeated=0.03, slip=0.1),
)
"""Its scripted agent errs less often at each turn, because it has more turns."""

FAMILIES = {family.name: family for family in (MICRO, LONG)}
"""The families by the name of the dataset."""
