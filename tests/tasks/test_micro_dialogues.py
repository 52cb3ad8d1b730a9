"""The dialogues that the agent imitates: honest about what was told, of mixed quality, c told in the agreed words."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from sweet.tasks.base import Message, Task, with_hidden
from sweet.tasks.code.prompts import Prompts
from sweet.tasks.facts import UNKNOWN, reply_from_facts
from sweet.tasks.markers import read_move
from sweet.tasks.micro.dialogues import dialogue
from sweet.tasks.micro.family import FAMILIES, Family
from sweet.tasks.micro.generator import CLONING, as_task, instances
from sweet.tasks.prompts import fill_turns

COUNT = 400
INSTANCES = {name: list(islice(instances(CLONING, family), COUNT)) for name, family in FAMILIES.items()}

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def play(family: Family, *, told: bool) -> list[tuple[Task, list[Message]]]:
    rng = random.Random(1)
    return [
        (as_task(instance, "t"), dialogue(instance, rng, told=told, family=family))
        for instance in INSTANCES[family.name]
    ]


def solved(task: Task, messages: list[Message]) -> bool:
    move = read_move(messages[-1].content, last=True, recipe="paper")
    return move.answer == task.ground_truth


@families
def test_turns_alternate_and_end_in_an_answer(family: Family) -> None:
    for task, messages in play(family, told=False):
        assert messages[0] == Message(role="system", content=fill_turns(Prompts.packaged().agent, family.turns))
        assert messages[1] == Message(role="user", content=task.problem_description)
        turns = [message.content for message in messages if message.role == "assistant"]
        assert [message.role for message in messages[1:]] == ["user", "assistant"] * len(turns)
        assert len(turns) <= family.turns
        ends = [read_move(turn, last=False, recipe="paper").ends for turn in turns]
        assert ends == [False] * (len(turns) - 1) + [True]


@families
def test_the_human_is_the_scripted_one(family: Family) -> None:
    for task, messages in play(family, told=False):
        for question, reply in zip(messages[2::2], messages[3::2], strict=False):
            assert reply.content == reply_from_facts(task, question.content)


@families
def test_told_dialogues_reveal_the_reference_as_the_critic_sees_it(family: Family) -> None:
    for task, messages in play(family, told=True):
        request = Message(role="user", content=task.problem_description)
        assert messages[:2] == with_hidden([messages[0], request], task.hidden)


@families
def test_quality_is_mixed_and_hardly_a_dialogue_is_without_a_mistake(family: Family) -> None:
    plain = play(family, told=False)
    rate = sum(solved(task, messages) for task, messages in plain) / len(plain)
    low, high = {"micro": (0.02, 0.15), "micro-long": (0.005, 0.04)}[family.name]
    assert low < rate < high
    useless = sum(message.content == UNKNOWN for _, messages in plain for message in messages) / len(plain)
    assert useless > 2


@families
def test_questions_read_from_the_reference_are_better(family: Family) -> None:
    told, plain = (sum(solved(*pair) for pair in play(family, told=flag)) for flag in (True, False))
    assert told > 2 * plain


@families
def test_values_that_were_told_are_mostly_delivered_and_none_that_was_not_is_but_by_a_slip(family: Family) -> None:
    slips = 0
    for task, messages in play(family, told=False):
        known = [fact for fact in task.facts if any(fact.answer in message.content for message in messages[2:])]
        delivered = messages[-1].content.splitlines()[2:-1]
        assert len(delivered) == len(known) + 1, "the rate's line, and one for each rule that was told"
        slips += not set(delivered) <= set(task.ground_truth.splitlines())
    assert 0.5 < slips / COUNT / family.mistakes.slip < 1.25


@families
@pytest.mark.parametrize("told", [False, True])
def test_deterministic(told: bool, family: Family) -> None:
    assert play(family, told=told) == play(family, told=told)
