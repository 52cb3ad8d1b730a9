"""The dialogues that the agent imitates: consistent with the known facts, of mixed quality, with c in a fixed form."""

from __future__ import annotations

import random
from functools import cache
from itertools import islice

import pytest

from docs.tools.micro_dialogues import MISTAKES, dialogue
from sweet.tasks.base import Message, Task, with_hidden
from sweet.tasks.code.kind import Prompts
from sweet.tasks.facts import UNKNOWN, reply_from_facts
from sweet.tasks.markers import read_move
from sweet.tasks.micro.family import FAMILIES, PARTS, Family
from sweet.tasks.micro.generator import CLONING, Instance, as_task, instances
from sweet.tasks.parts import NOTED, assembled, parts_of
from sweet.tasks.prompts import fill_turns

COUNT = 400

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@cache
def drawn(name: str) -> list[Instance]:
    return list(islice(instances(CLONING, FAMILIES[name]), COUNT))


def play(family: Family, *, with_reference: bool) -> list[tuple[Task, list[Message]]]:
    rng = random.Random(1)
    return [
        (as_task(instance, "t", family), dialogue(instance, rng, with_reference=with_reference, family=family))
        for instance in drawn(family.name)
    ]


def solved(task: Task, messages: list[Message]) -> bool:
    move = read_move(messages[-1].content, last=True, protocol="paper")
    return assembled(task, messages[:-1], move.answer or "") == task.ground_truth


@families
def test_turns_alternate_and_end_in_an_answer(family: Family) -> None:
    for task, messages in play(family, with_reference=False):
        assert messages[0] == Message(role="system", content=fill_turns(Prompts.packaged().agent, family.turns))
        assert messages[1] == Message(role="user", content=task.problem_description)
        turns = [message.content for message in messages if message.role == "assistant"]
        assert [message.role for message in messages[1:]] == ["user", "assistant"] * len(turns)
        assert len(turns) <= family.turns
        ends = [read_move(turn, last=False, protocol="paper").ends for turn in turns]
        assert ends == [False] * (len(turns) - 1) + [True]


@families
def test_the_human_is_the_scripted_one(family: Family) -> None:
    for task, messages in play(family, with_reference=False):
        for question, reply in zip(messages[2::2], messages[3::2], strict=False):
            assert reply.content == reply_from_facts(task, question.content)


@families
def test_dialogues_with_the_reference_show_it_as_the_critic_sees_it(family: Family) -> None:
    for task, messages in play(family, with_reference=True):
        request = Message(role="user", content=task.problem_description)
        assert messages[:2] == with_hidden([messages[0], request], task.hidden)


@families
def test_quality_is_mixed_and_few_dialogues_have_no_mistake(family: Family) -> None:
    plain = play(family, with_reference=False)
    rate = sum(solved(task, messages) for task, messages in plain) / len(plain)
    low, high = {"micro": (0.02, 0.15), "micro-long": (0.005, 0.04), "micro-parts": (0.02, 0.12)}[family.name]
    assert low < rate < high
    useless = sum(message.content == UNKNOWN for _, messages in plain for message in messages) / len(plain)
    assert useless > 2


@families
def test_questions_read_from_the_reference_are_better(family: Family) -> None:
    with_c, plain = (sum(solved(*pair) for pair in play(family, with_reference=flag)) for flag in (True, False))
    assert with_c > 2 * plain


def test_parts_are_sent_in_the_order_of_the_code_and_what_is_learned_later_below_them() -> None:
    early = 0
    for task, messages in play(PARTS, with_reference=False):
        parts = parts_of(task, messages)
        assert parts[0].startswith(task.ground_truth.split("\n")[0])
        assert [part.count("\n") for part in parts] == [1] + [0] * (len(parts) - 1)
        assert messages[-1].content == "I WANT TO ANSWER:\n    return x"
        replies = [message.content for message in messages if message.role == "assistant"]
        asked = [reply.endswith("?") for reply in replies]
        assert sum(asked) == PARTS.questions
        early += asked != sorted(asked, reverse=True)
        for message, answer in zip(messages[2::2], messages[3::2], strict=False):
            assert message.content.endswith("?") or answer.content == NOTED
    assert 0.3 < early / COUNT < 0.6


@families
def test_the_answer_has_the_known_values_and_others_only_by_a_slip(family: Family) -> None:
    slips = chances = 0
    for task, messages in play(family, with_reference=False):
        known = [fact for fact in task.facts if any(fact.answer in message.content for message in messages[2:])]
        move = read_move(messages[-1].content, last=True, protocol="paper")
        delivered = assembled(task, messages[:-1], move.answer or "").splitlines()[1:-1]
        assert len(delivered) == len(known) + 1, "the rate's line, and one for each known rule"
        slips += len(set(delivered) - set(task.ground_truth.splitlines()))
        chances += len(delivered) if family is PARTS else 1
    assert 0.5 < slips / chances / MISTAKES[family.name].slip < 1.25


@families
@pytest.mark.parametrize("with_reference", [False, True])
def test_deterministic(with_reference: bool, family: Family) -> None:
    assert play(family, with_reference=with_reference) == play(family, with_reference=with_reference)
