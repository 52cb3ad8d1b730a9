"""Draw tasks of a generated family: a function, its rate, and further rules with values that the request omits.

The request states the purpose of the function and the rate; the human knows the rules. In the dataset they are some of
those typical of the function, so that an agent can learn what to ask for, though no request says it. The instances for
cloning the agent have any of the family's rules, so that the agent starts without that knowledge.

A hash of the reference function decides the split of a task, so that splits share no function however many tasks are
drawn. Every rule of a task changes the result of at least one of its ten tests.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sweet.tasks.base import Fact, Task
from sweet.tasks.micro.family import MICRO, Family
from sweet.tasks.micro.rules import BY_NAME, RATE, RULES, Function, Rule

CLONING = "cloning"
"""The instances for cloning the agent: not a split of the dataset, and the only ones with any rules."""

BUCKETS = {"train": range(10), CLONING: range(10, 12), "validation": range(12, 14), "test": range(14, 16)}
"""The sixteenths of all reference functions from which each split draws."""

TESTS = 10
LARGEST = 30
"""The largest argument of a test. Tests call the function with 1, 2, 3 and larger numbers."""


@dataclass(frozen=True)
class Instance:
    """One function with its rules.

    Attributes:
        values: rule name -> value, in the order of the code, including the rate.
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
        """The rules to ask for."""
        return tuple(name for name in self.values if name != RATE.name)


def instances(split: str, family: Family = MICRO) -> Iterator[Instance]:
    """Yield the endless, fixed sequence of different instances of a split, or of `CLONING`."""
    rng = random.Random(f"sweet {family.name} {split}")
    seen: set[str] = set()
    while True:
        instance = _draw(rng, family, typical=split != CLONING)
        source = solution(instance.function, instance.values)
        if source not in seen and _bucket(source) in BUCKETS[split] and _all_rules_matter(instance):
            seen.add(source)
            yield instance


def as_task(instance: Instance, name: str) -> Task:
    """Return the instance in ColBench's schema, with the facts that its human knows."""
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
    """Return the source of the function with these rules."""
    lines = [_line(rule, function, values[rule.name]) for rule in RULES if rule.name in values]
    body = "\n".join(f"    {line}" for line in [*lines, "return x"])
    return f"def {function.name}({function.argument}):\n{body}"


def compute(values: Mapping[str, int], n: int) -> int:
    """Return what the function of `solution` returns for `n`; the rules are in the order of the code."""
    x = 0
    for name, value in values.items():
        n, x = BY_NAME[name].effect(n, x, value)
    return x


def _draw(rng: random.Random, family: Family, *, typical: bool) -> Instance:
    function = rng.choice(family.functions)
    names = {RATE.name, *rng.sample(function.typical if typical else family.unstated, family.wanted)}
    values = {rule.name: rng.choice(rule.values) for rule in RULES if rule.name in names}
    inputs = (1, 2, 3, *sorted(rng.sample(range(4, LARGEST + 1), TESTS - 3)))
    return Instance(function, values, inputs)


def _bucket(source: str) -> int:
    return hashlib.sha256(source.encode()).digest()[0] % 16


def _all_rules_matter(instance: Instance) -> bool:
    right = {n: compute(instance.values, n) for n in instance.inputs}
    without = ({k: v for k, v in instance.values.items() if k != name} for name in instance.wanted)
    return all(any(compute(values, n) != x for n, x in right.items()) for values in without)


def _line(rule: Rule, function: Function, value: int) -> str:
    return rule.line.format(n=function.argument, v=value)


def _fact(rule: Rule, value: int, function: Function) -> Fact:
    answer, line = rule.answer.format(v=value), _line(rule, function, value)
    return Fact(topic=rule.name, cues=rule.cues, answer=answer, line=line)
