"""A rule-based agent as a chat client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sweet.llm.base import Sampling
from sweet.llm.scripted import ScriptedClient
from sweet.tasks.base import Message


def echo(dialogue: Sequence[Message], temperature: float, seed: int | None) -> str:
    return f"{dialogue[-1].content} {temperature} {seed}"


def test_each_reply_has_its_own_seed() -> None:
    client = ScriptedClient(echo)
    asked = [Message(role="user", content="Hi")]
    completion = asyncio.run(client.chat(asked, Sampling(temperature=0.5, n=3, seed=7)))
    assert [reply.text for reply in completion.replies] == ["Hi 0.5 7", "Hi 0.5 8", "Hi 0.5 9"]
    assert (completion.prompt_tokens, completion.completion_tokens, completion.model) == (0, 0, "scripted")
    (reply,) = asyncio.run(client.chat(asked, Sampling())).replies
    assert (reply.text, reply.finish_reason, reply.token_ids) == ("Hi 1.0 None", "stop", None)
