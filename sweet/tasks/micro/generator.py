"""Draws tasks of the micro family: a function, its rules with their values, a request that hints at most of them.

Which split a task belongs to is decided by a hash of its reference function, so splits share no function however many
tasks are drawn. Every rule of a task changes the result of at least one of its ten tests.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sweet.tasks.base import Fact, Task
from sweet.tasks.micro.rules import FUNCTIONS, RATE, REST_ANSWER, REST_CUES, RULES, Function, Rule

SPLITS = {"train": 2000, "validation": 256, "test": 512}
"""The splits and how many tasks each has."""

BUCKETS = {"train": range(12), "validation": range(12, 14), "test": range(14, 16)}
"""Which sixteenths of all reference functions a split draws from."""

HIDDEN_SHARE = 0.4
"""The share of tasks in which one rule is not hinted at: only "anything else?" brings it out surely."""

TESTS = 10
LARGEST = 30
"""Tests call the function with 1, 2, 3 and others up to this."""

_BY_NAME = {rule.name: rule for rule in RULES}
_EFFECTS: dict[str, Callable[[int, int], int]] = {
    "fixed": lambda x, v: x + v,
    "tax": lambda x, v: x + x * v // 100,
    "step": lambda x, v: x - x % v,
    "floor": max,
    "cap": min,
}


@dataclass(frozen=True)
class Instance:
    """One function with its rules.

    Attributes:
        values: rule name -> value, in the order of the code; holds the rate.
        hinted: the rules the request mentions, in its order.
        hidden: the rule it does not mention, if there is one.
        inputs: the arguments of the tests.
    """

    function: Function
    values: Mapping[str, int]
    hinted: tuple[str, ...]
    hidden: str | None
    inputs: tuple[int, ...]


def instances(split: str) -> Iterator[Instance]:
    """The endless, fixed sequence of different instances of a split."""
    rng = random.Random(f"sweet micro {split}")
    seen: set[str] = set()
    while True:
        instance = _draw(rng)
        source = solution(instance.function, instance.values)
        if source not in seen and _bucket(source) in BUCKETS[split] and _all_rules_matter(instance):
            seen.add(source)
            yield instance


def as_task(instance: Instance, name: str) -> Task:
    """The instance in ColBench's schema, with the facts its human knows."""
    function = instance.function
    signature = f"def {function.name}({function.argument})"
    hints = [_BY_NAME[name].hint for name in instance.hinted]
    request = " ".join([function.opening, *hints, f"The signature of the function is: {signature}"])
    source = solution(function, instance.values)
    facts = [_fact(_BY_NAME[name], value, instance) for name, value in instance.values.items()]
    if instance.hidden is None:
        facts.append(Fact(topic="rest", cues=REST_CUES, answer=REST_ANSWER))
    return Task(
        id=name,
        problem_description=request,
        ground_truth=source,
        test_cases={f"test{i}": f"{function.name}({n})" for i, n in enumerate(instance.inputs, 1)},
        hidden_information=source,
        facts=tuple(facts),
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


def _draw(rng: random.Random) -> Instance:
    function = rng.choice(FUNCTIONS)
    chosen = rng.sample([rule.name for rule in RULES if rule is not RATE], rng.choice((2, 3)))
    hidden = chosen.pop() if rng.random() < HIDDEN_SHARE else None
    names = {RATE.name, hidden, *chosen}
    values = {rule.name: rng.choice(rule.values) for rule in RULES if rule.name in names}
    inputs = (1, 2, 3, *sorted(rng.sample(range(4, LARGEST + 1), TESTS - 3)))
    return Instance(function, values, tuple(chosen), hidden, inputs)


def _bucket(source: str) -> int:
    return hashlib.sha256(source.encode()).digest()[0] % 16


def _all_rules_matter(instance: Instance) -> bool:
    right = [compute(instance.values, n) for n in instance.inputs]
    without = [{k: v for k, v in instance.values.items() if k != name} for name in instance.values if name != "rate"]
    return all([compute(values, n) for n in instance.inputs] != right for values in without)


def _line(rule: Rule, function: Function, value: int) -> str:
    return rule.line.format(n=function.argument, v=value)


def _fact(rule: Rule, value: int, instance: Instance) -> Fact:
    return Fact(
        topic=rule.name,
        cues=rule.cues + REST_CUES * (rule.name == instance.hidden),
        answer=rule.answer.format(v=value),
        line=_line(rule, instance.function, value),
    )
