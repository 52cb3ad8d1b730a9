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
from sweet.tasks.micro.generator import SPLITS, Instance, as_task, compute, instances, solution
from sweet.tasks.micro.rules import REST_ANSWER, REST_QUESTION, RULES, USELESS_QUESTIONS


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
        for name in instance.values:
            if name != "rate":
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


def test_asking_brings_out_every_value_and_useless_questions_none() -> None:
    rules = {rule.name: rule for rule in RULES}
    for instance, task in drawn("train", 200):
        for name, value in instance.values.items():
            assert tell(task, rules[name].question) == rules[name].answer.format(v=value)
        for rule in RULES:
            if rule.name not in instance.values:
                assert tell(task, rule.question) == UNKNOWN
        for question in USELESS_QUESTIONS:
            assert tell(task, question) == UNKNOWN
        rest = tell(task, REST_QUESTION)
        hidden = instance.hidden
        assert rest == (rules[hidden].answer.format(v=instance.values[hidden]) if hidden else REST_ANSWER)


def test_the_request_hints_at_all_rules_but_the_hidden_one_and_at_no_value() -> None:
    for instance, task in drawn("train", 200):
        hinted = {rule.name for rule in RULES if rule.hint and rule.hint in task.problem_description}
        assert hinted == set(instance.hinted) == set(instance.values) - {"rate", instance.hidden}
        assert not any(character.isdigit() for character in task.problem_description)
