"""The generated dataset: its schema, its splits, and that every hidden rule matters and can be learned by asking."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from itertools import islice
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.tasks.base import Task
from sweet.tasks.facts import UNKNOWN, tell
from sweet.tasks.micro import load
from sweet.tasks.micro.generator import CLONING, SPLITS, WANTED, Instance, as_task, compute, instances, solution
from sweet.tasks.micro.rules import FUNCTIONS, RATE, RULES, USELESS_QUESTIONS


def results(source: str, task: Task) -> list[Any]:
    scope: dict[str, Any] = {}
    exec(source, scope)
    return [eval(call, scope) for call in task.test_cases.values()]


def drawn(split: str, count: int) -> list[tuple[Instance, Task]]:
    return [(instance, as_task(instance, "t")) for instance in islice(instances(split), count)]


def test_splits_have_their_sizes_and_share_no_function() -> None:
    began = time.monotonic()
    splits = {split: load(split) for split in SPLITS}
    assert time.monotonic() - began < 5
    assert {split: len(tasks) for split, tasks in splits.items()} == SPLITS
    sources = [task.ground_truth for tasks in splits.values() for task in tasks]
    assert len(sources) == len(set(sources))
    assert splits["train"][0].id == "micro-train-0000"
    assert splits["test"][-1].id == "micro-test-0511"


def test_same_tasks_in_every_process() -> None:
    code = "from sweet.tasks.micro import load; print(load('test')[7].model_dump_json())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == load("test")[7].model_dump_json()


def test_unknown_split() -> None:
    with pytest.raises(UsageError, match="no split 'dev'"):
        load("dev")


@pytest.mark.parametrize("split", SPLITS)
def test_follows_the_schema(split: str) -> None:
    for task in load(split)[:100]:
        signature = task.ground_truth.split("\n")[0].rstrip(":")
        assert task.problem_description.endswith(f"The signature of the function is: {signature}")
        assert list(task.test_cases) == [f"test{i}" for i in range(1, 11)]
        assert len(set(task.test_cases.values())) == 10
        assert task.hidden == task.ground_truth


def test_code_does_what_the_rules_say() -> None:
    for instance, task in drawn("test", 200):
        assert results(task.ground_truth, task) == [compute(instance.values, n) for n in instance.inputs]


def test_every_rule_changes_a_test() -> None:
    for instance, task in drawn("test", 200):
        right = results(task.ground_truth, task)
        for name in instance.wanted:
            without = {key: value for key, value in instance.values.items() if key != name}
            assert results(solution(instance.function, without), task) != right


def test_a_guessed_value_is_hardly_ever_right() -> None:
    values = {rule.name: rule.values for rule in RULES}
    rng = random.Random(0)
    right = 0
    for instance, _ in drawn("validation", 500):
        name = rng.choice(list(instance.values))
        guess = {**instance.values, name: rng.choice(values[name])}
        right += [compute(guess, n) for n in instance.inputs] == [compute(instance.values, n) for n in instance.inputs]
    assert right / 500 < 0.25


def test_asking_brings_out_every_untold_value_and_other_questions_none() -> None:
    for instance, task in drawn("train", 200):
        for rule in RULES:
            known = rule.name in instance.wanted
            told = rule.answer.format(v=instance.values[rule.name]) if known else UNKNOWN
            assert tell(task, rule.question) == told
        for question in USELESS_QUESTIONS:
            assert tell(task, question) == UNKNOWN


def test_the_request_tells_the_rate_and_no_rule() -> None:
    for instance, task in drawn("train", 200):
        told = [int(word) for word in task.problem_description.replace(".", " ").split() if word.isdigit()]
        assert told == [instance.rate]
        assert RATE.answer.format(v=instance.rate) in task.problem_description


def test_the_rules_of_a_task_are_typical_of_its_function_and_those_of_the_cloned_are_any() -> None:
    for split in SPLITS:
        assert all(set(i.wanted) <= set(i.function.typical) for i, _ in drawn(split, 100))
    cloned = [instance for instance, _ in drawn(CLONING, 200)]
    assert {len(instance.wanted) for instance in cloned} == {WANTED}
    assert sum(set(i.wanted) <= set(i.function.typical) for i in cloned) < 40


def test_no_function_is_like_another_and_no_rule_rarer_than_another() -> None:
    typical = [frozenset(function.typical) for function in FUNCTIONS]
    assert len(set(typical)) == len(FUNCTIONS)
    counts = {rule.name: sum(rule.name in names for names in typical) for rule in RULES if rule is not RATE}
    assert set(counts.values()) == {7}
