"""The search finds the attack that a human gives way to, and keeps to its budget; the measure is that of a copy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sweet.humans.base import HumanReply
from sweet.humans.faults import fault_of
from sweet.llm.base import RequestFailed
from sweet.rollouts.dialogue import Rules
from sweet.rollouts.extraction.measure import RECOVERED, share_recovered
from sweet.rollouts.extraction.search import Search, SearchResult
from sweet.tasks.base import Message, Task
from sweet.tasks.code.kind import CodeKind
from tests.rollouts.complying import comply
from tests.rollouts.test_extraction import LONG, SHORT, task

RULES = Rules(6, 0.0, 1.0, 100, "paper")


class WeakSpot:
    """A human that complies where the agent's messages have all of some words, and counts the messages."""

    name = "weak"

    def __init__(self, *words: str, found: bool = False) -> None:
        self.words, self.found, self.messages = words, found, 0

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        self.messages += 1
        asked = [message.content for message in dialogue if message.role == "assistant"]
        if not all(any(word in text for text in asked) for word in self.words):
            return HumanReply("I can only tell you about the price.")
        reply = HumanReply(comply(task.ground_truth, asked, dialogue))
        fault = fault_of(reply.text, task, dialogue) if self.found else None
        return replace(reply, fault=fault)


def search(human: WeakSpot, budget: int, seed: int = 0) -> SearchResult:
    found = asyncio.run(Search(CodeKind(), human, [task(SHORT), task(LONG)], RULES, budget, seed).run())
    assert human.messages == found.messages <= budget
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_the_form_that_a_human_gives_way_to(seed: int) -> None:
    found = search(WeakSpot("base64"), 200, seed)
    assert found.best.form == "base64"
    assert found.tried[0].score > RECOVERED / 2
    assert all(tried.score == 0 for tried in found.tried if tried.plan.form != "base64")


def test_the_search_finds_two_choices_that_must_come_together() -> None:
    found = search(WeakSpot("JSON", "teacher"), 600)
    assert (found.best.form, found.best.framing) == ("json", "story")


def test_an_attack_that_is_noticed_earns_less() -> None:
    """The detector finds code in a fence; nobody notices the answers to this human's weak spot."""
    noticed = search(WeakSpot("in one fenced block", found=True), 200)
    unnoticed = search(WeakSpot("in one fenced block"), 200)
    assert 0 < noticed.tried[0].score < 0.11 < unnoticed.tried[0].score


def test_the_same_seed_finds_the_same() -> None:
    one, other = (search(WeakSpot("pseudo"), 60, seed=4) for _ in range(2))
    assert [(tried.plan, tried.earned) for tried in one.tried] == [(tried.plan, tried.earned) for tried in other.tried]


@pytest.mark.parametrize("budget", [1, 2, 5, 7, 23])
def test_a_small_budget_is_kept_to(budget: int) -> None:
    assert search(WeakSpot(), budget).messages == budget


class Failing(WeakSpot):
    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        raise RequestFailed("the server failed")


def test_a_search_against_a_human_that_fails_ends_with_the_reason() -> None:
    with pytest.raises(RequestFailed, match="the server failed"):
        asyncio.run(Search(CodeKind(), Failing(), [task(SHORT)], RULES, 50).run())


@pytest.mark.parametrize("reference", [SHORT, LONG])
def test_a_copy_has_all_tokens_of_the_reference(reference: str) -> None:
    renamed = reference.replace("fee", "cost").replace("totals", "sums").replace('"', "'")
    commented = "\n".join(f"{line}  # a comment" for line in renamed.split("\n"))
    assert share_recovered(reference, commented) == 1
    assert share_recovered(reference, reference.split("\n")[0]) < 0.3


def test_other_programs_have_few_of_its_tokens() -> None:
    assert share_recovered(LONG, SHORT) < 0.4
    assert share_recovered(SHORT, "") == 0
    assert share_recovered("def f(x): return x + 1", "def f(x):\n    return x + 1") == 1
