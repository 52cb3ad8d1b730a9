"""The generated datasets: their schema, their splits, and that every hidden rule matters and can be learned by
asking."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from collections import Counter
from functools import cache
from itertools import islice
from math import comb
from typing import Any

import pytest

from docs.tools.micro_dialogues import USELESS_QUESTIONS
from sweet.errors import UsageError
from sweet.tasks.base import Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.facts import UNKNOWN, reply_from_facts
from sweet.tasks.micro.family import FAMILIES, LONG, MICRO, PARTS, Family
from sweet.tasks.micro.generator import CLONING, IN_PARTS, Instance, as_task, compute, instances, load, solution
from sweet.tasks.micro.rules import BY_NAME, RATE, RULES

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)

MICRO_DIGESTS = {
    "train": "dc14c943a502f35bdd051ca803a6cd22c704f27441d09bea0dd1331693683d6e",
    "validation": "8a62ebd25f367f95295f82bbe359e630c8394537295ae608c4b371a8ada05668",
    "test": "52682b6b1604cae1395a2754df6f9caa723a12cd0e80e307901565d8c8d92a4c",
}
"""The digests of the tasks on which the packaged agent and all published metrics are based."""


def results(source: str, task: Task) -> list[Any]:
    scope: dict[str, Any] = {}
    exec(source, scope)
    return [eval(call, scope) for call in task.test_cases.values()]


@cache
def drawn(split: str, count: int, family: Family) -> list[tuple[Instance, Task]]:
    return [(instance, as_task(instance, "t", family)) for instance in islice(instances(split, family), count)]


@families
def test_splits_have_their_sizes_and_share_no_function(family: Family) -> None:
    began = time.process_time()
    splits = {split: load(split, family) for split in family.splits}
    assert time.process_time() - began < 10
    assert {split: len(tasks) for split, tasks in splits.items()} == family.splits
    sources = [task.ground_truth for tasks in splits.values() for task in tasks]
    assert len(sources) == len(set(sources))
    assert splits["train"][0].id == f"{family.name}-train-0000"
    assert splits["test"][-1].id == f"{family.name}-test-0511"


@pytest.mark.parametrize(("split", "digest"), MICRO_DIGESTS.items())
def test_micro_is_unchanged(split: str, digest: str) -> None:
    rows = "\n".join(task.model_dump_json() for task in load(split))
    assert hashlib.sha256(rows.encode()).hexdigest() == digest


@families
def test_the_dataset_is_loaded_by_its_name(family: Family) -> None:
    assert CodeKind().load(family.name, "validation") == load("validation", family)


@families
def test_same_tasks_in_every_process(family: Family) -> None:
    code = (
        "from sweet.tasks.micro.generator import load; from sweet.tasks.micro.family import FAMILIES; "
        f"print(load('test', FAMILIES[{family.name!r}])[7].model_dump_json())"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == load("test", family)[7].model_dump_json()


@families
def test_every_reference_and_test_compiles(family: Family) -> None:
    """A rollout does not read them."""
    for split in family.splits:
        assert CodeKind().faults(load(split, family)[:40]) == [], split


@families
def test_unknown_split(family: Family) -> None:
    with pytest.raises(UsageError, match=f"{family.name} has no split 'dev'"):
        CodeKind().load(family.name, "dev")


@families
@pytest.mark.parametrize("split", MICRO.splits)
def test_follows_the_schema(split: str, family: Family) -> None:
    for task in load(split, family)[:100]:
        signature = task.ground_truth.split("\n")[0].rstrip(":")
        assert task.problem_description.endswith(f"The signature of the function is: {signature}")
        assert list(task.test_cases) == [f"test{i}" for i in range(1, 11)]
        assert len(set(task.test_cases.values())) == 10
        assert task.hidden == task.ground_truth
        assert len(task.facts) == family.rules_per_task


@families
def test_code_does_what_the_rules_say(family: Family) -> None:
    for split in ("test", CLONING):
        for instance, task in drawn(split, 200, family):
            assert results(task.ground_truth, task) == [compute(instance.values, n) for n in instance.inputs]


@families
def test_every_rule_changes_a_test(family: Family) -> None:
    for instance, task in drawn("test", 200, family):
        right = results(task.ground_truth, task)
        for name in instance.unstated:
            without = {key: value for key, value in instance.values.items() if key != name}
            assert results(solution(instance.function, without), task) != right


@families
def test_a_guessed_value_is_hardly_ever_right(family: Family) -> None:
    rng = random.Random(0)
    right = 0
    for instance, _ in drawn("validation", 500, family):
        name = rng.choice(list(instance.values))
        guess = {**instance.values, name: rng.choice(BY_NAME[name].values)}
        right += [compute(guess, n) for n in instance.inputs] == [compute(instance.values, n) for n in instance.inputs]
    assert right / 500 < 0.25


@families
def test_asking_reveals_every_unstated_value_and_other_questions_none(family: Family) -> None:
    for instance, task in drawn("train", 200, family):
        for rule in RULES:
            known = rule.name in instance.unstated
            answer = rule.answer.format(v=instance.values[rule.name]) if known else UNKNOWN
            assert reply_from_facts(task, rule.question) == answer
        for question in USELESS_QUESTIONS:
            assert reply_from_facts(task, question) == UNKNOWN


@families
def test_the_request_states_the_rate_and_no_other_rule(family: Family) -> None:
    for instance, task in drawn("train", 200, family):
        numbers = [int(word) for word in task.problem_description.replace(".", " ").split() if word.isdigit()]
        assert numbers == [instance.rate]
        assert RATE.answer.format(v=instance.rate) in task.problem_description


@families
def test_the_rules_of_a_task_are_typical_of_its_function_but_not_those_for_cloning(family: Family) -> None:
    for split in family.splits:
        assert all(set(i.unstated) <= set(i.function.typical) for i, _ in drawn(split, 100, family))
    cloned = [instance for instance, _ in drawn(CLONING, 200, family)]
    assert {len(instance.unstated) for instance in cloned} == {family.rules_per_task}
    assert sum(set(i.unstated) <= set(i.function.typical) for i in cloned) < 40
    assert {name for instance in cloned for name in instance.unstated} == set(family.unstated)


@families
def test_functions_differ_and_all_rules_are_equally_frequent(family: Family) -> None:
    typical = [frozenset(function.typical) for function in family.functions]
    assert len(set(typical)) == len(family.functions)
    assert {len(names) for names in typical} == {len(function.typical) for function in family.functions}
    counts = {name: sum(name in names for names in typical) for name in family.unstated}
    assert set(counts.values()) == {len(typical[0]) * len(typical) // len(family.unstated)}


@families
def test_no_function_is_rare(family: Family) -> None:
    counts = Counter(instance.function.name for instance, _ in drawn("train", 1000, family))
    assert len(counts) == len(family.functions)
    assert min(counts.values()) > max(counts.values()) / 6


@families
def test_typical_questions_find_all_rules_and_random_ones_rarely(family: Family) -> None:
    assert all(len(function.typical) <= family.questions for function in family.functions)
    unstated, left = len(family.unstated), len(family.unstated) - family.rules_per_task
    by_chance = comb(left, family.questions - family.rules_per_task) / comb(unstated, family.questions)
    chances = {"micro": 10 / 56, "micro-long": 126 / 2002, "micro-parts": 28 / 91}
    assert by_chance == pytest.approx(chances[family.name])


def test_the_long_family_extends_the_short_one() -> None:
    short = {function.name: set(function.typical) for function in MICRO.functions}
    assert all(short[function.name] < set(function.typical) for function in LONG.functions)
    assert set(MICRO.unstated) < set(LONG.unstated)
    assert (LONG.turns, MICRO.turns) == (10, 6)


def test_only_answers_in_parts_are_said_to_be_and_twenty_turns_suffice_for_them() -> None:
    assert [family.part_lines for family in FAMILIES.values()] == [0, 0, 2]
    assert PARTS.turns == 20
    for family in FAMILIES.values():
        task = load("validation", family)[0]
        assert task.part_lines == family.part_lines
        assert (IN_PARTS in task.problem_description) == (family is PARTS)


def test_a_line_that_comes_after_all_others_changes_a_test() -> None:
    for instance, task in drawn("test", 200, PARTS):
        right = results(task.ground_truth, task)
        *lines, end = task.ground_truth.split("\n")[1:]
        for name in list(instance.values)[:-1]:
            if name != RATE.name:
                line = lines[list(instance.values).index(name)]
                late = [*(other for other in lines if other != line), line, end]
                assert results("\n".join([task.ground_truth.split("\n")[0], *late]), task) != right


def test_no_two_rules_ever_have_the_same_line() -> None:
    lines = [rule.line.format(n="n", v=value) for rule in RULES for value in rule.values]
    assert len(lines) == len(set(lines))
