"""Draws tasks of the micro family: a function, its rate, and three rules with their values that nobody mentions.

The request says what the function is for and the rate; the rules are in the human's mind. In the dataset they are
three of the four that are typical of the function, so what to ask for can be learned, and is not told by the request.
What the agent is cloned on has any three rules, so that the agent begins without that experience.

Which split a task belongs to is decided by a hash of its reference function, so splits share no function however many
tasks are drawn. Every rule of a task changes the result of at least one of its ten tests.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sweet.tasks.base import Fact, Task
from sweet.tasks.micro.rules import FUNCTIONS, RATE, RULES, Function, Rule

SPLITS = {"train": 2000, "validation": 256, "test": 512}
"""The splits and how many tasks each has."""

CLONING = "cloning"
"""What the agent is cloned on: no split of the dataset, and the only one with rules that are not typical."""

BUCKETS = {"train": range(10), CLONING: range(10, 12), "validation": range(12, 14), "test": range(14, 16)}
"""Which sixteenths of all reference functions a split draws from."""

WANTED = 3
"""Rules that a task has besides the rate."""

TESTS = 10
LARGEST = 30
"""Tests call the function with 1, 2, 3 and others up to this."""

BY_NAME = {rule.name: rule for rule in RULES}
UNTOLD = tuple(rule.name for rule in RULES if rule is not RATE)
"""The rules that no request tells."""

_EFFECTS: dict[str, Callable[[int, int], int]] = {
    "fixed": lambda x, v: x + v,
    "tax": lambda x, v: x + x * v // 100,
    "discount": lambda x, v: x - x * v // 100,
    "step": lambda x, v: x - x % v,
    "floor": max,
    "cap": min,
}


@dataclass(frozen=True)
class Instance:
    """One function with its rules.

    Attributes:
        values: rule name -> value, in the order of the code; holds the rate.
        inputs: the arguments of the tests.
    """

    function: Function
    values: Mapping[str, int]
    inputs: tuple[int, ...]

    @property
    def rate(self) -> int:
        return self.values[RATE.name]

    @property
    def wanted(self) -> tuple[str, ...]:
        """The rules to be asked for."""
        return tuple(name for name in self.values if name != RATE.name)


def instances(split: str) -> Iterator[Instance]:
    """The endless, fixed sequence of different instances of a split, or of `CLONING`."""
    rng = random.Random(f"sweet micro {split}")
    seen: set[str] = set()
    while True:
        instance = _draw(rng, typical=split != CLONING)
        source = solution(instance.function, instance.values)
        if source not in seen and _bucket(source) in BUCKETS[split] and _all_rules_matter(instance):
            seen.add(source)
            yield instance


def as_task(instance: Instance, name: str) -> Task:
    """The instance in ColBench's schema, with the facts its human knows."""
    function = instance.function
    signature = f"def {function.name}({function.argument})"
    rate = RATE.answer.format(v=instance.rate)
    source = solution(function, instance.values)
    return Task(
        id=name,
        problem_description=f"{function.opening} {rate} The signature of the function is: {signature}",
        ground_truth=source,
        test_cases={f"test{i}": f"{function.name}({n})" for i, n in enumerate(instance.inputs, 1)},
        hidden_information=source,
        facts=tuple(_fact(BY_NAME[name], instance.values[name], function) for name in instance.wanted),
    )


def solution(function: Function, values: Mapping[str, int]) -> str:
    """The source of the function with these rules."""
    lines = [_line(rule, function, values[rule.name]) for rule in RULES if rule.name in values]
    body = "\n".join(f"    {line}" for line in [*lines, "return x"])
    return f"def {function.name}({function.argument}):\n{body}"


def compute(values: Mapping[str, int], n: int) -> int:
    """What the function of `solution` returns for `n`."""
    n = max(n - values["free"], 0) if "free" in values else n
    x = n * values["rate"]
    for rule in RULES:
        if rule.name == "double" and "double" in values:
            x = x * 2 if n > values["double"] else x
        elif rule.name in _EFFECTS and rule.name in values:
            x = _EFFECTS[rule.name](x, values[rule.name])
    return x


def _draw(rng: random.Random, *, typical: bool) -> Instance:
    function = rng.choice(FUNCTIONS)
    names = {RATE.name, *rng.sample(function.typical if typical else UNTOLD, WANTED)}
    values = {rule.name: rng.choice(rule.values) for rule in RULES if rule.name in names}
    inputs = (1, 2, 3, *sorted(rng.sample(range(4, LARGEST + 1), TESTS - 3)))
    return Instance(function, values, inputs)


def _bucket(source: str) -> int:
    return hashlib.sha256(source.encode()).digest()[0] % 16


def _all_rules_matter(instance: Instance) -> bool:
    right = [compute(instance.values, n) for n in instance.inputs]
    without = [{k: v for k, v in instance.values.items() if k != name} for name in instance.wanted]
    return all([compute(values, n) for n in instance.inputs] != right for values in without)


def _line(rule: Rule, function: Function, value: int) -> str:
    return rule.line.format(n=function.argument, v=value)


def _fact(rule: Rule, value: int, function: Function) -> Fact:
    answer, line = rule.answer.format(v=value), _line(rule, function, value)
    return Fact(topic=rule.name, cues=rule.cues, answer=answer, line=line)
