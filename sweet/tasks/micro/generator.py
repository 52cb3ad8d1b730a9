"""Draw tasks of a generated family: a function, its rate, and further rules with values that the request omits.

The request states the purpose of the function and the rate; the human knows the rules. In the dataset they are some of
those typical of the function, so that an agent can learn what to ask for, though no request says it. The instances for
cloning the agent have any of the family's rules, so that the agent starts without that knowledge.

A hash of the reference function decides the split of a task, so that splits share no function however many tasks are
drawn. Every rule of a task changes the result of at least one of its ten tests. Where the answer is built in parts, so
does its place: a rule whose line comes after all others gives another result, unless that is its place.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from sweet.tasks.base import PART_LINES, Fact, Task
from sweet.tasks.markers import ANSWER_MARKER, PART_MARKER
from sweet.tasks.micro.family import MICRO, Family
from sweet.tasks.micro.rules import BY_NAME, RATE, RULES, Function, Rule

CLONING = "cloning"
"""The instances for cloning the agent: not a split of the dataset, and the only ones with any rules."""

BUCKETS = {"train": range(10), CLONING: range(10, 12), "validation": range(12, 14), "test": range(14, 16)}
"""The sixteenths of all reference functions from which each split draws."""

END = "    return x"
"""The last line of the source."""

TESTS = 10
LARGEST = 30
"""The largest argument of a test. Tests call the function with 1, 2, 3 and larger numbers."""

IN_PARTS = (
    f"Send me the code in parts, each a reply that begins with {PART_MARKER} and has the next line of the function, "
    "the first one also the line above it. A line that was sent stays as it is. The last reply is "
    f"{ANSWER_MARKER} and the return."
)
"""The sentences in the requests of families whose answers are built in parts."""


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
    def unstated(self) -> tuple[str, ...]:
        """The rules to ask for."""
        return tuple(name for name in self.values if name != RATE.name)


def instances(split: str, family: Family = MICRO) -> Iterator[Instance]:
    """Yield the endless, fixed sequence of different instances of a split, or of `CLONING`."""
    rng = random.Random(f"sweet {family.name} {split}")
    seen: set[str] = set()
    while True:
        instance = _draw(rng, family, typical=split != CLONING)
        source = solution(instance.function, instance.values)
        bucket = hashlib.sha256(source.encode()).digest()[0] % 16
        if source not in seen and bucket in BUCKETS[split] and _tests_tell(instance, family):
            seen.add(source)
            yield instance


def as_task(instance: Instance, name: str, family: Family = MICRO) -> Task:
    """Return the instance in ColBench's schema, with the facts that its human knows."""
    function = instance.function
    signature = f"def {function.name}({function.argument})"
    rate = RATE.answer.format(v=instance.rate)
    source = solution(function, instance.values)
    how = f" {IN_PARTS}" if family.part_lines else ""
    parts: dict[str, Any] = {PART_LINES: family.part_lines} if family.part_lines else {}
    return Task(
        id=name,
        problem_description=f"{function.opening} {rate}{how} The signature of the function is: {signature}",
        ground_truth=source,
        test_cases={f"test{i}": f"{function.name}({n})" for i, n in enumerate(instance.inputs, 1)},
        hidden_information=source,
        facts=tuple(_fact(BY_NAME[name], instance.values[name], function) for name in instance.unstated),
        **parts,
    )


def solution(function: Function, values: Mapping[str, int]) -> str:
    """Return the source of the function with these rules."""
    lines = [f"    {_line(rule, function, values[rule.name])}" for rule in RULES if rule.name in values]
    return "\n".join([header(function), *lines, END])


def header(function: Function) -> str:
    """Return the first line of the source."""
    return f"def {function.name}({function.argument}):"


def compute(values: Mapping[str, int], n: int) -> int:
    """Return what the function of `solution` returns for `n`; the rules are in the order of the code."""
    x = 0
    for name, value in values.items():
        n, x = BY_NAME[name].effect(n, x, value)
    return x


def _draw(rng: random.Random, family: Family, *, typical: bool) -> Instance:
    function = rng.choice(family.functions)
    names = {RATE.name, *rng.sample(function.typical if typical else family.unstated, family.rules_per_task)}
    values = {rule.name: rng.choice(rule.values) for rule in RULES if rule.name in names}
    inputs = (1, 2, 3, *sorted(rng.sample(range(4, LARGEST + 1), TESTS - 3)))
    return Instance(function, values, inputs)


def _tests_tell(instance: Instance, family: Family) -> bool:
    """Return whether the tests detect that a rule is missing, and in parts also that its line came last."""
    values = instance.values
    right = [compute(values, n) for n in instance.inputs]
    rule_sets = [{k: v for k, v in values.items() if k != name} for name in instance.unstated]
    if family.part_lines:
        rule_sets += [{**rules, name: values[name]} for name, rules in zip(instance.unstated, rule_sets, strict=True)]
        rule_sets = [rules for rules in rule_sets if list(rules) != list(values)]
    return all(any(compute(rules, n) != x for n, x in zip(instance.inputs, right, strict=True)) for rules in rule_sets)


def _line(rule: Rule, function: Function, value: int) -> str:
    return rule.line.format(n=function.argument, v=value)


def _fact(rule: Rule, value: int, function: Function) -> Fact:
    answer, line = rule.answer.format(v=value), _line(rule, function, value)
    return Fact(topic=rule.name, cues=rule.cues, answer=answer, line=line)


def load(split: str, family: Family = MICRO) -> list[Task]:
    """Return the tasks of `train`, `validation` or `test`: always the same, none of them in two splits."""
    return list(_tasks(split, family))


@cache  # two tenths of a second, for each of the many calls of `sweet train` and of a study
def _tasks(split: str, family: Family) -> tuple[Task, ...]:
    drawn = islice(instances(split, family), family.splits[split])
    return tuple(as_task(instance, f"{family.name}-{split}-{n:04d}", family) for n, instance in enumerate(drawn))
