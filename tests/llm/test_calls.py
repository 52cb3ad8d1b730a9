"""Calls of tools: what models and servers write is read as it is, and what cannot be read is never lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.llm.base import Completion, RequestFailed, Sampling
from sweet.llm.call_formats import FORMATS, MOST_CALLS
from sweet.llm.connect import check_tools, open_client
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.engine import EmbeddedEngine
from sweet.llm.template import ChatTemplate, reply_ends
from sweet.llm.thoughts import separate_calls
from sweet.llm.vllm import VllmSettings, command
from sweet.tasks.base import Message, ToolCall
from tests.learn.builders import TEMPLATES, build_tokenizer
from tests.learn.calling import CALLING, LOOKUP, SEVERAL, calling_model, calling_tokenizer, end_of, written
from tests.learn.thinking import teach
from tests.llm.conftest import served
from tests.local_server import QuietHandler, serving

ASK = [Message(role="user", content="What is the rate per hour?")]
TOOLS = Sampling(max_tokens=100, tools=(LOOKUP,))
CALL = ToolCall(id="a", name="lookup", arguments='{"key":  "rate"}')
LATER = [
    *ASK,
    Message(role="assistant", content="", tool_calls=(CALL,)),
    Message(role="tool", content="5 per hour", tool_call_id="a"),
]


@pytest.mark.parametrize("family", CALLING)
def test_the_format_of_a_model_is_found_by_its_template(family: str) -> None:
    form = ChatTemplate(calling_tokenizer(family)).call_form
    assert form is not None
    assert form.read is not None
    assert form.short == family.startswith("mistral")
    others = ToolCall(id="b", name="list", arguments="{}")
    text, calls = form.read(written(family, "", [CALL]), True)
    assert [(call.name, call.arguments) for call in calls] == [("lookup", '{"key":  "rate"}')]
    assert not separate_calls(text, form.read, False)[0].said
    for cut in ("", '{"key": "ra'):  # a call that is not complete is text
        raw = written(family, "", [CALL.model_copy(update={"arguments": cut})])
        raw = raw[: raw.index(cut) + len(cut)] if cut else raw[: raw.index("lookup") + 3]
        assert form.read(raw, False) == (raw, [])
    if family in SEVERAL:
        assert [call.name for call in form.read(written(family, "", [CALL, others]), True)[1]] == ["lookup", "list"]


@pytest.mark.parametrize(
    ("number", "raw"),
    [
        (0, "<tool_call>\n{'name': 'f'}\n</tool_call>"),
        (0, '<tool_call>{"name": "f"}</tool_call>'),
        (0, '<tool_call>{"name": 7, "arguments": {}}</tool_call>'),
        (0, "<tool_call>" + '{"a":' * 50_000),
        (0, '<tool_call>{"name": "f", "arguments": {}} and more</tool_call>'),
        (2, "[TOOL_CALLS] [1, 2]"),
        (4, 'The JSON is {"name": "f", "parameters": {}}'),
        (4, '{"name": "a person", "age": 7}'),
    ],
)
def test_what_is_no_call_stays_in_the_text(number: int, raw: str) -> None:
    assert FORMATS[number].read(raw) == (raw, [])


def test_a_call_in_a_thought_is_none_and_many_calls_are_bounded() -> None:
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    parts, calls, size = separate_calls(f"<think>{call}</think>\n\nSo: {call}", FORMATS[0].read, False)
    assert (parts.thought, parts.spoken, len(calls)) == (call, "So: ", 1)
    assert size == len(f"<think>{call}</think>")
    assert separate_calls(f"<think>{call}", FORMATS[0].read, False)[1] == []
    rest, calls = FORMATS[0].read(call * 5000)
    assert (rest, len(calls)) == (call * (5000 - MOST_CALLS), MOST_CALLS)


def test_a_thought_of_gpt_oss_precedes_its_call() -> None:
    opening, thought = "<|channel|>analysis<|message|>", "Which rate?"
    call = "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}"
    said = "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
    for preamble, spoken in (("", ""), (said, "I look.")):
        parts, calls, _ = separate_calls(f"{opening}{thought}<|end|>{preamble}{call}", FORMATS[3].read, False)
        assert (parts.thought, parts.spoken, calls) == (thought, spoken, [ToolCall(id="", name="f", arguments="{}")])


@pytest.fixture(scope="module", params=["qwen", "mistral11", "gpt-oss"])
def caller(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedClient]]:
    """A tiny model that has learned to call the tool."""
    family = str(request.param)
    tokenizer = calling_tokenizer(family)
    model, template = calling_model(tokenizer), ChatTemplate(tokenizer)
    prompt = template.text(ASK, None, (LOOKUP,))
    teach(model, tokenizer, [(prompt, written(family, "", [CALL]) + end_of(family, [CALL]))], steps=25)
    engine = EmbeddedEngine(model, reply_ends(model, tokenizer))
    yield family, EmbeddedClient("tiny", engine, tokenizer)
    engine.close()


def test_the_embedded_engine_calls_and_serves_calls(caller: tuple[str, EmbeddedClient]) -> None:
    """In this process, and by its server through the client of servers: the same calls, and the same ids."""
    client = caller[1]

    async def work() -> tuple[Completion, Completion, Completion]:
        greedy = Sampling(temperature=0.0, max_tokens=60, tools=(LOOKUP,))
        here = await client.chat(ASK, greedy)
        async with served(client) as url, open_client("tiny", [url]) as remote:
            later = Sampling(max_tokens=2, tools=(LOOKUP,))
            return here, await remote.chat(ASK, greedy), await remote.chat(LATER, later)

    here, there, later = asyncio.run(work())
    reply = here.replies[0]
    assert reply.tool_calls is not None
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("lookup", CALL.arguments)]
    assert (reply.text, reply.finish_reason) == ("", "tool_calls")
    assert here.replies[0] == replace(there.replies[0], logprobs=reply.logprobs)
    assert later.prompt_token_ids == tuple(client.template.ids(LATER, tools=(LOOKUP,)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": [{"type": "function", "function": {"name": "f g"}}]}, "name"),
        ({"messages": [{"role": "tool", "content": "5"}]}, "tool_call_id"),
        ({"messages": [{"role": "user", "content": "5", "tool_calls": [CALL.row()]}]}, "assistant"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "call of a tool"),
        ({}, "has no place for tools"),
    ],
)
def test_the_server_refuses_what_it_cannot_do(client: EmbeddedClient, change: dict[str, Any], message: str) -> None:
    from tests.llm.test_server import ask, chat

    [(status, answer)] = ask(client, "/chat/completions", chat(**{"tools": [LOOKUP.row()]} | change))
    assert status == 400
    assert message in str(answer["error"])


def test_a_template_without_tools_is_found_before_a_dialogue(client: EmbeddedClient) -> None:
    with pytest.raises(UsageError, match="has no place for tools"):
        check_tools(client)
    template = CALLING["qwen"].replace("tool_call>", "call>")
    for changed, what in (
        (template, "format that is not known"),
        (CALLING["qwen"].replace("m.content + '\\n</tool_response>", "'\\n</tool_response>"), "not their results"),
    ):
        with pytest.raises(UsageError, match=what):
            ChatTemplate(build_tokenizer(changed)).check_tools()


def test_a_declared_format_is_read_by_the_library_with_limits(tmp_path: Path) -> None:
    from sweet.llm.pretrained import load_tokenizer

    template = CALLING["qwen"].replace("tool_call>", "call>")
    tokenizer = build_tokenizer(template)
    fields = {
        "content": {"close": "<|im_end|>"},
        "tool_calls": {
            "open": "<call>",
            "close": "</call>",
            "repeats": True,
            "content": "json",
            "transform": {"function": {"name": "{content.name}", "arguments": "{content.arguments}"}},
        },
    }
    tokenizer.response_template = {"start_anchor": "<|im_start|>assistant\n", "fields": fields}
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    form = ChatTemplate(load_tokenizer(str(tmp_path))).call_form
    assert form is not None
    assert form.read is not None
    one = '<call>{"name": "f", "arguments": {"a": 1}}</call>'
    found = [ToolCall(id="", name="f", arguments='{"a": 1}')]
    assert form.read(f"I look.{one}") == ("I look.", found)
    for odd in ("<call>{'name'}</call>", "<call>[]</call>"):
        assert form.read(odd) == (odd, [])


def answered(message: Any, *, streamed: bool = False, finish: str = "tool_calls") -> tuple[Completion, dict[str, Any]]:
    """What the client reads of a message, or of the pieces of a streamed one; and the request."""
    asked: list[dict[str, Any]] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send(200, b'{"data": [{"id": "m"}]}', {"Content-Type": "application/json"})

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = {"choices": [{"message": message, "finish_reason": finish}], "usage": None}
            if not streamed:
                self.send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})
                return
            events = [{"choices": [{"index": 0, "delta": piece}]} for piece in message]
            events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
            lines = [f"data: {json.dumps(event)}\n\n" for event in events]
            self.send(200, "".join([*lines, "data: [DONE]\n\n"]).encode(), {"Content-Type": "text/event-stream"})

    async def work(url: str) -> Completion:
        async with open_client("m", [f"{url}/v1"]) as client:
            return await client.chat(LATER, TOOLS)

    handler: type[BaseHTTPRequestHandler] = Handler
    with serving(handler) as url:
        return asyncio.run(work(url)), asked[-1]


def function(name: Any, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


def test_tools_are_offered_and_calls_are_read() -> None:
    completion, asked = answered({"content": None, "tool_calls": [function("lookup", '{"key": ', id="x")]})
    assert completion.replies[0].tool_calls == (ToolCall(id="x", name="lookup", arguments='{"key": '),)
    assert asked["tools"] == [LOOKUP.row()]
    assert asked["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [CALL.row()]},
        {"role": "tool", "content": "5 per hour", "tool_call_id": "a"},
    ]


@pytest.mark.parametrize("numbered", [True, False])
def test_streamed_calls_are_joined(numbered: bool) -> None:
    """Some servers number all calls alike, and tell them apart by their ids."""
    two = 1 if numbered else 0
    pieces = [
        {"role": "assistant", "content": "I "},
        {"content": "look."},
        {"tool_calls": [function("lookup", "", id="x", index=0)]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"key":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ' "a"}'}}]},
        {"tool_calls": [function("list", "{}", id="y", index=two)]},
    ]
    reply = answered(pieces, streamed=True)[0].replies[0]
    assert reply.text == "I look."
    assert reply.tool_calls == (
        ToolCall(id="x", name="lookup", arguments='{"key": "a"}'),
        ToolCall(id="y", name="list", arguments="{}"),
    )


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([function("f", {"a": 1}, id="x")], [("x", "f", '{"a": 1}')]),
        ([function("f", None)], [("", "f", "null")]),
        ([function("f", "{}", id=7)], [("", "f", "{}")]),
        ([function(None, "{}")], None),
        ([{"id": "x"}], [("", "", '{"id": "x"}')]),
        ([3, None], [("", "", "3"), ("", "", "null")]),
        ([function("f", "x" * 100_000)], [("", "f", "x" * 100_000)]),
        ([function("f", "[" * 20_000)], [("", "f", "[" * 20_000)]),
        ([function("f", "{}", index=number) for number in range(3000)], [("", "f", "{}")] * MOST_CALLS),
    ],
)
def test_odd_calls_are_kept_as_they_are(
    raw: list[Any], expected: list[tuple[str, str, str]] | None, streamed: bool
) -> None:
    message = {"content": "", "tool_calls": raw}
    calls = answered([message] if streamed else message, streamed=streamed)[0].replies[0].tool_calls or ()
    if streamed and raw[0] == function("f", None):
        expected = [("", "f", "")]
    if expected is None:
        assert [call.name for call in calls] == [""]
    else:
        assert [(call.id, call.name, call.arguments) for call in calls] == expected


def test_a_server_that_refuses_tools_says_how_to_change_that() -> None:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send(200, b'{"data": [{"id": "m"}]}', {"Content-Type": "application/json"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert "tools" in body
            self.send(400, b'{"error": {"message": "auto tool choice requires --enable-auto-tool-choice"}}')

    async def work(url: str) -> None:
        async with open_client("m", [f"{url}/v1"]) as client:
            await client.chat(ASK, TOOLS)

    with serving(Handler) as url, pytest.raises(RequestFailed, match="--tool-call-parser"):
        asyncio.run(work(url))


def test_vllm_gets_the_parser_of_the_family(tmp_path: Path) -> None:
    def words(name: str, *options: str) -> list[str]:
        found = command("vllm", VllmSettings(name, passthrough=options, tools=True))
        return found[found.index("--enable-auto-tool-choice") :]

    for name, parser in (
        ("Qwen/Qwen3-8B", "hermes"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3_json"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral"),
        ("openai/gpt-oss-20b", "openai"),
    ):
        assert words(name) == ["--enable-auto-tool-choice", "--tool-call-parser", parser]
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text(CALLING["mistral"])
    assert words(str(tmp_path))[1:] == ["--tool-call-parser", "mistral"]
    assert words("other/model", "--tool-call-parser", "xlam")[1:] == ["--tool-call-parser", "xlam"]
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES["chatml"])
    for unknown in ("other/model", str(tmp_path)):
        with pytest.raises(UsageError, match="is not known"):
            words(unknown)
    assert "--enable-auto-tool-choice" not in command("vllm", VllmSettings("other/model"))
