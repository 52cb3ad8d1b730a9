"""A model as the simulated human: its prompt, and the handling of its reply."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sweet.humans.asking import LLMHuman
from sweet.llm.base import Completion, Reply, RequestFailed, Sampling
from sweet.tasks.base import Message, Task
from sweet.tasks.registry import task_kind

TASK = Task(id="t", problem_description="Write def fee(n).", ground_truth="def fee(n):\n    return 5 * n")
DIALOGUE = [Message(role="user", content="Write def fee(n)."), Message(role="assistant", content="What is the rate?")]


class Speaker:
    """A chat client that always returns the same text and records its requests."""

    model = "speaker"

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[tuple[Sequence[Message], Sampling]] = []

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self.text == "fail":
            raise RequestFailed("refused")
        self.asked.append((messages, sampling))
        return Completion((Reply(self.text, "stop"),), 11, 3, self.model)

    async def aclose(self) -> None:
        """Do nothing."""


def test_it_sees_the_reference_and_answers_greedily() -> None:
    speaker = Speaker("  It is 5.\n")
    human = LLMHuman(speaker, task_kind("code"))
    reply = asyncio.run(human.reply(TASK, DIALOGUE))
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("It is 5.", 11, 3)
    assert human.name == "speaker"
    (messages, sampling), *_ = speaker.asked
    assert messages == task_kind("code").human_prompt(TASK, DIALOGUE)
    assert "return 5 * n" in messages[0].content
    assert (sampling.temperature, sampling.max_tokens, sampling.n) == (0.0, 256, 1)


def test_protocol_upstream_puts_the_published_system_message_before_the_prompt() -> None:
    speaker = Speaker("It is 5.")
    asyncio.run(LLMHuman(speaker, task_kind("code"), "upstream").reply(TASK, DIALOGUE))
    ((system, *rest), _), *_ = speaker.asked
    assert (system.role, system.content) == ("system", "You are a helpful assistant.")
    assert rest == task_kind("code").human_prompt(TASK, DIALOGUE)


def test_a_long_reply_is_cut_and_an_empty_one_stays_empty() -> None:
    kind = task_kind("code")
    long = asyncio.run(LLMHuman(Speaker("word " * 300), kind).reply(TASK, DIALOGUE))
    assert len(long.text) <= kind.human_reply_limit
    assert long.text == ("word " * 300)[: kind.human_reply_limit].strip()
    assert asyncio.run(LLMHuman(Speaker(" \n "), kind).reply(TASK, DIALOGUE)).text == ""


def test_a_failure_is_raised() -> None:
    with pytest.raises(RequestFailed, match="refused"):
        asyncio.run(LLMHuman(Speaker("fail"), task_kind("code")).reply(TASK, DIALOGUE))
