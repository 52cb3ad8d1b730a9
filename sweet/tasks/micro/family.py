"""The generated datasets: what `micro` and `micro-long` share is code, what they differ in is a `Family`.

Both are the same game at two lengths. In `micro` a task has three of the eight untold rules, and the agent five
questions: who asks for five of eight at random finds all three in one dialogue of six (10 in 56). In `micro-long` it
has five of fourteen, and nine questions: that finds all five in one dialogue of 16 (126 in 2002). In both, who knows
the four or eight rules that are typical of each function can ask for all of them and always finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sweet.tasks.micro.rules import FUNCTIONS, RATE, RULES, Function

LONG_ONLY = ("smallest", "pack", "insurance", "halve", "service", "voucher")
"""The rules that the short family has not."""


@dataclass(frozen=True)
class Mistakes:
    """How likely the scripted agent errs.

    Attributes:
        early: that it delivers sooner than it must, at each turn.
        useless: that a question is one that no task answers.
        repeated: that a question is one that was asked before.
        slip: that one value of the answer is a wrong one.
    """

    early: float
    useless: float
    repeated: float
    slip: float


@dataclass(frozen=True)
class Family:
    """A generated dataset.

    Attributes:
        name: of the dataset.
        untold: the rules that no request tells, in the order of the code.
        functions: each with the rules that are typical of it.
        wanted: the untold rules that a task has.
        questions: so many can be asked before the answer; as many as a function has typical rules, and one.
        reply_tokens: tokens of a reply at most: more than the longest answer has, with the tokenizers that are used.
        splits: how many tasks each split has.
        mistakes: of the scripted agent.
    """

    name: str
    untold: tuple[str, ...]
    functions: tuple[Function, ...]
    wanted: int
    questions: int
    reply_tokens: int
    splits: Mapping[str, int]
    mistakes: Mistakes

    @property
    def turns(self) -> int:
        """The agent's turns in a dialogue: its questions and the answer."""
        return self.questions + 1


_UNTOLD = tuple(rule.name for rule in RULES if rule is not RATE)

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
"""What is typical of a function besides its four, so that each of the fourteen rules is typical of eight functions."""

MICRO = Family(
    name="micro",
    untold=tuple(name for name in _UNTOLD if name not in LONG_ONLY),
    functions=FUNCTIONS,
    wanted=3,
    questions=5,
    reply_tokens=128,
    splits=MappingProxyType({"train": 2000, "validation": 256, "test": 512}),
    mistakes=Mistakes(early=0.03, useless=0.1, repeated=0.05, slip=0.2),
)

LONG = Family(
    name="micro-long",
    untold=_UNTOLD,
    functions=tuple(replace(one, typical=(*one.typical, *_MORE[one.name])) for one in FUNCTIONS),
    wanted=5,
    questions=9,
    reply_tokens=192,
    splits=MappingProxyType({"train": 8000, "validation": 256, "test": 512}),
    mistakes=Mistakes(early=0.01, useless=0.05, repeated=0.03, slip=0.1),
)
"""Its scripted agent errs less often at each turn, for it has more of them."""

FAMILIES = {family.name: family for family in (MICRO, LONG)}
"""By the name of the dataset."""
