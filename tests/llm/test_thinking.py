"""Models that think, in this process and behind a server: the thought is kept apart, limited and passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from starlette.responses import JSONResponse, Response

from sweet.errors import UsageError
from sweet.llm.base import Completion, Effort, Reply, Sampling
from sweet.llm.connect import open_client
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.remote import RemoteClient
from sweet.llm.template import ChatTemplate
from sweet.tasks.base import Message
from tests.llm.conftest import served
from tests.llm.test_engine import plain_logprobs
from tests.llm.test_remote import Server, error, run
from tests.llm.thinking_models import thinking_client, thinking_tokenizer

ASK = [Message(role="user", content="What is the rate?")]
GREEDY = Sampling(temperature=0.0, max_tokens=60)


@contextmanager
def opened(*args: Any, **how: Any) -> Iterator[EmbeddedClient]:
    client = thinking_client(*args, **how)
    try:
        yield client
    finally:
        client.engine.close()


def spelled(client: EmbeddedClient, reply: Reply) -> tuple[str, str]:
    """The text of the ids of the thought, and that of the others."""
    assert reply.token_ids is not None
    assert reply.thought_tokens is not None
    ids, count = reply.token_ids, reply.thought_tokens
    return client.decode(ids[:count], skip_special=False), client.decode(ids[count:], skip_special=False)


@pytest.mark.parametrize(
    ("template", "tags", "text", "head", "end"),
    [
        ("dropping", True, "<think>\nI do not know.\n</think>\n\nIt is 5.", None, "<|im_end|>"),
        ("dropping", False, "<think>\nI do not know.\n</think>\n\nIt is 5.", None, "<|im_end|>"),
        ("opening", True, "I do not know.\n</think>\n\nIt is 5.", None, "<|im_end|>"),
        (
            "channels",
            True,
            "<|channel|>analysis<|message|>I do not know.<|end|><|start|>assistant<|channel|>final<|message|>It is 5.",
            "<|channel|>analysis<|message|>I do not know.<|end|><|start|>assistant<|channel|>final<|message|>",
            "<|return|>",
        ),
    ],
)
def test_the_thought_of_a_model_in_this_process(
    template: str, tags: bool, text: str, head: str | None, end: str
) -> None:
    """Whoever writes the opening mark, and however many tokens the closing one has. The same over a server."""

    async def ask(client: EmbeddedClient) -> tuple[Completion, Completion]:
        async with served(client) as url, open_client("tiny", [url]) as remote:
            return await client.chat(ASK, GREEDY), await remote.chat(ASK, GREEDY)

    with opened(template, [text], tags=tags) as client:
        here, there = asyncio.run(ask(client))
        [reply] = here.replies
        assert (reply.thought, reply.text, reply.finish_reason) == ("I do not know.", "It is 5.", "stop")
        thought, said = spelled(client, reply)
        assert thought.rstrip() == (head or text.removesuffix("\n\nIt is 5."))
        assert said.strip() == "It is 5." + end
        assert here.thought_tokens == reply.thought_tokens
        assert there.replies[0].thought == reply.thought
        assert (there.replies[0].text, there.replies[0].token_ids) == (reply.text, reply.token_ids)
        assert there.replies[0].thought_tokens == reply.thought_tokens
        assert (there.thought_tokens, there.prompt_token_ids) == (here.thought_tokens, here.prompt_token_ids)


def test_a_thought_that_is_cut_off_leaves_nothing_said() -> None:
    with opened("opening", ["I do not know.\n</think>\n\nIt is 5."]) as client:
        [reply] = asyncio.run(client.chat(ASK, Sampling(temperature=0.0, max_tokens=4))).replies
    assert reply.is_thought_alone
    assert (reply.text, reply.finish_reason, reply.thought_tokens) == ("", "length", 4)
    assert reply.thought
    assert "I do not know.".startswith(reply.thought)


@pytest.mark.parametrize(("template", "tags"), [("dropping", True), ("dropping", False), ("opening", True)])
def test_a_thought_ends_when_its_tokens_are_used_up(template: str, tags: bool) -> None:
    """The ids of its end are written in place of sampled ones, with their log-probability under the model."""
    opening = "" if template == "opening" else "<think>"
    thought = "I do not know, I do not know, I do not know, I do not know."
    limited = Sampling(temperature=0.0, max_tokens=60, max_thought_tokens=5)

    with opened(template, [f"{opening}{thought}</think>It is 5."], tags=tags) as client:
        completion = asyncio.run(client.chat(ASK, limited))
        [reply] = completion.replies
        [free] = asyncio.run(client.chat(ASK, GREEDY)).replies
        assert reply.token_ids is not None
        own = len(client.tokenizer(opening, add_special_tokens=False)["input_ids"]) if opening else 0
        forced = client.tokenizer("\n</think>\n\n", add_special_tokens=False)["input_ids"]
        assert free.token_ids is not None
        assert free.token_ids[: own + 5] == reply.token_ids[: own + 5]
        assert list(reply.token_ids[own + 5 : own + 5 + len(forced)]) == forced
        assert reply.thought is not None
        assert thought.startswith(reply.thought)
        assert completion.prompt_token_ids is not None
        engine: Any = client.engine
        truth = plain_logprobs(engine.decoder.model, completion.prompt_token_ids, reply.token_ids)
        expected = truth[torch.arange(len(reply.token_ids)), list(reply.token_ids)].tolist()
        assert reply.logprobs == pytest.approx(expected, abs=1e-3)


def test_a_short_thought_is_not_limited() -> None:
    """A reply is not cut, nor marked, however long it is."""
    text = "I do.</think>It is 5 per hour, it is 5 per hour, it is 5 per hour."
    limited = Sampling(temperature=0.0, max_tokens=60, max_thought_tokens=8)
    with opened("opening", [text]) as client:
        first = asyncio.run(client.chat(ASK, limited))
        free = asyncio.run(client.chat(ASK, GREEDY))
    assert first.replies[0].token_ids == free.replies[0].token_ids
    assert first.replies[0].text == text.partition("</think>")[2]


def test_the_limit_holds_for_each_reply_of_a_batch() -> None:
    """Random replies of a model that was taught nothing: every one of them is closed at its fifth token."""
    sampling = Sampling(max_tokens=24, max_thought_tokens=5, n=6, seed=3)
    with opened("opening") as client:
        completion = asyncio.run(client.chat(ASK, sampling))
        forced = tuple(client.tokenizer("\n</think>\n\n", add_special_tokens=False)["input_ids"])
        for reply in completion.replies:
            ids = reply.token_ids or ()
            assert ids[5 : 5 + len(forced)] == forced or len(ids) <= 5
            assert reply.thought is not None
    assert completion.thought_tokens == sum(reply.thought_tokens or 0 for reply in completion.replies)


@pytest.mark.parametrize(
    ("template", "effort", "end", "reads"),
    [
        ("dropping", "none", "<think>\n\n</think>\n\n", True),
        ("dropping", "high", "assistant\n", False),
        ("plain", "none", "assistant\n", False),
        ("opening", "none", "<think>\n", False),
        ("channels", "high", "assistant", True),
        ("channels", "none", "assistant", False),
    ],
)
def test_the_effort_reaches_the_template(template: str, effort: Effort, end: str, reads: bool) -> None:
    chat = ChatTemplate(thinking_tokenizer(template))
    assert chat.text(ASK, effort).endswith(end)
    assert chat.reads(effort) == reads
    if template == "channels" and effort == "high":
        assert "high" in chat.text(ASK, effort)


HISTORY = [*ASK, Message(role="assistant", content="When?", thought="I do not know."), ASK[0]]


@pytest.mark.parametrize("template", ["field", "plain", "asked"])
def test_earlier_thoughts_are_kept_as_the_template_does_it(template: str) -> None:
    kept = ChatTemplate(thinking_tokenizer(template)).text(HISTORY)
    dropped = ChatTemplate(thinking_tokenizer(template)).text([m.model_copy(update={"thought": None}) for m in HISTORY])
    assert kept.count("I do not know.") == 1
    assert kept.index("<think>") < kept.index("I do not know.") < kept.index("</think>") < kept.index("When?")
    assert "know" not in dropped
    assert (
        kept.replace("<think>\nI do not know.\n</think>\n\n", "").replace("<think>I do not know.</think>", "")
        == dropped
    )


@pytest.mark.parametrize("template", ["dropping", "opening", "channels"])
def test_a_template_that_removes_thoughts_cannot_keep_them(template: str) -> None:
    with pytest.raises(UsageError, match="removes thoughts from the history") as raised:
        ChatTemplate(thinking_tokenizer(template)).text(HISTORY)
    assert "thoughts" in str(raised.value.where)


# Servers ------------------------------------------------------------------------------------------------------------


def answer(message: dict[str, Any], finish: str = "stop", **more: Any) -> Callable[[dict[str, Any]], Response]:
    choice = {"message": {"role": "assistant", **message}, "finish_reason": finish}
    ids = more.pop("token_ids", None)
    return lambda _body: JSONResponse({"choices": [choice | ({"token_ids": ids} if ids else {})], **more})


def asked(
    *answers: Any, sampling: Sampling = GREEDY, requests: int = 1
) -> tuple[list[Completion], list[Any], list[str]]:
    """The completions of requests, what the server was sent, and what the client has said about it."""
    server = Server(*answers)

    async def work(client: RemoteClient) -> tuple[list[Completion], list[str]]:
        return [await client.chat(HISTORY, sampling) for _ in range(requests)], client.deviations

    completions, said = run(work, server)
    return completions, server.asked, said


@pytest.mark.parametrize(
    ("message", "more", "thought", "text", "tokens", "all_tokens"),
    [
        ({"content": "\n\nWhat?", "reasoning_content": "hm\n"}, {}, "hm", "What?", None, 0),
        ({"content": "What?", "reasoning": "hm"}, {}, "hm", "What?", None, 0),
        ({"content": "Use </think>.", "reasoning": "hm"}, {}, "hm", "Use </think>.", None, 0),
        ({"content": "<think>hm</think>What?"}, {"usage": {"completion_tokens": 14}}, "hm", "What?", None, 4),
        ({"content": "hm</think>\nWhat?"}, {}, "hm", "What?", None, 0),
        ({"content": None, "reasoning": "hm"}, {"token_ids": [1, 2, 3]}, "hm", "", 3, 3),
        ({"content": "<think>hm"}, {"token_ids": [1, 2, 3]}, "hm", "", 3, 3),
        (
            {"content": "What?"},
            {"usage": {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}},
            None,
            "What?",
            7,
            7,
        ),
        (  # as vLLM counts where the chat template has opened the thought
            {"content": "\n\nWhat?", "reasoning": "hmhmh"},
            {"usage": {"completion_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 0}}},
            "hmhmh",
            "What?",
            None,
            10,
        ),
        (
            {"content": "What?", "reasoning": None},
            {"usage": {"completion_tokens": 9, "completion_tokens_details": None}},
            None,
            "What?",
            None,
            0,
        ),
    ],
)
def test_the_thoughts_of_servers(
    message: dict[str, Any], more: dict[str, Any], thought: str | None, text: str, tokens: int | None, all_tokens: int
) -> None:
    [completion], _, _ = asked(answer(message, **more))
    [reply] = completion.replies
    assert (reply.thought, reply.text, reply.thought_tokens) == (thought, text, tokens)
    assert completion.thought_tokens == all_tokens


def test_a_prompt_that_opens_the_thought_is_recognised_by_the_replies() -> None:
    """Then a reply that was cut off before any mark is a thought; one that was not is what the model says."""
    answers = [
        answer({"content": "cut"}, "length"),
        answer({"content": "hm</think>What?"}),
        answer({"content": "hm, I"}, "length"),
        answer({"content": "What?"}),
    ]
    completions, _, _ = asked(*answers, requests=4)
    found = [(reply.thought, reply.text) for completion in completions for reply in completion.replies]
    assert found == [(None, "cut"), ("hm", "What?"), ("hm, I", ""), (None, "What?")]


@pytest.mark.parametrize(
    ("sampling", "sent"),
    [
        (GREEDY, {}),
        (Sampling(effort="high"), {"reasoning_effort": "high"}),
        (Sampling(effort="none"), {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}),
        (Sampling(max_thought_tokens=50), {"thinking_token_budget": 50}),
    ],
)
def test_effort_and_limit_are_sent(sampling: Sampling, sent: dict[str, Any]) -> None:
    _, [body], said = asked(sampling=sampling)
    names = ("reasoning_effort", "chat_template_kwargs", "thinking_token_budget")
    assert {name: body[name] for name in names if name in body} == sent
    assert body["messages"][1] == {"role": "assistant", "content": "When?", "reasoning_content": "I do not know."}
    assert said == []


def test_what_a_server_refuses_of_it_is_said_and_left_out() -> None:
    """A server of OpenAI's interface alone: thinking is switched off by the effort instead."""
    refusals = [
        error(400, "Unrecognized request argument supplied: chat_template_kwargs"),
        error(400, "Unknown parameter: 'messages[1].reasoning_content'.", param="messages[1].reasoning_content"),
        error(422, "thinking_token_budget: Extra inputs are not permitted"),
    ]
    sampling = Sampling(effort="none", max_thought_tokens=9)
    _, sent, said = asked(*refusals, sampling=sampling, requests=2)
    assert len(sent) == 5
    for body in sent[3:]:
        assert body["reasoning_effort"] == "none"
        assert "chat_template_kwargs" not in body
        assert "thinking_token_budget" not in body
        assert body["messages"][1] == {"role": "assistant", "content": "When?"}
    assert [sentence.partition(": ")[2] for sentence in said] == [
        "chat_template_kwargs is not sent, but reasoning_effort=none.",
        "reasoning_content is not sent.",
        "thinking_token_budget is not sent (it uses its own instead of thinking_token_budget=9).",
    ]


@pytest.mark.parametrize("effort", ["none", "low"])
def test_an_effort_that_a_server_does_not_know_is_lost(effort: Effort) -> None:
    lost: list[tuple[str, bool]] = []
    why = "Unsupported value: 'reasoning_effort' does not support 'low' with this model."
    server = Server(
        *([error(400, "Unrecognized request argument supplied: chat_template_kwargs")] if effort == "none" else []),
        error(400, why, param="reasoning_effort", code="unsupported_value"),
    )

    async def work(client: RemoteClient) -> Completion:
        client.on_deviation = lambda sentence, is_lost: lost.append((sentence, is_lost))
        return await client.chat(ASK, Sampling(effort=effort))

    run(work, server)
    assert "reasoning_effort" not in server.asked[-1]
    assert lost[-1][1], "the last thing that is said is a loss"
    assert any("reasoning_effort is not sent" in sentence for sentence, _ in lost)


def test_the_server_of_this_program_accepts_what_the_client_sends() -> None:
    sampling = Sampling(temperature=0.0, max_tokens=40, max_thought_tokens=5, effort="none")

    async def ask(client: EmbeddedClient) -> tuple[Completion, Completion, list[str]]:
        async with served(client) as url, open_client("tiny", [url]) as remote:
            assert isinstance(remote, RemoteClient)
            return await client.chat(ASK, sampling), await remote.chat(ASK, sampling), remote.deviations

    with opened("dropping", ["<think>\nI do not know.\n</think>\n\nIt is 5."]) as client:
        here, there, said = asyncio.run(ask(client))
    assert here.prompt_token_ids == there.prompt_token_ids
    assert here.replies[0].token_ids == there.replies[0].token_ids
    assert said == []
