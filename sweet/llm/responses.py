"""The responses API of OpenAI, in terms of chat completions: a request becomes the body of one, its answer a response.

Items of the type `reasoning` are the thought of the agent's message after them, and calls of functions belong to the
message before them, so that a reply is one message again. A response comes in one piece, also as a stream of events.
What `previous_response_id` names is known to the server (`sweet.llm.server.ChatApp.remembered`).
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

_IGNORED = {
    *("include", "metadata", "store", "user", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "stream_options", "client_metadata"),
}
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "text": ({}, {"format": {"type": "text"}}),
    "truncation": ("disabled",),
    "background": (False,),
    "top_logprobs": (0,),
    "conversation": (),
    "prompt": (),
    "max_tool_calls": (),
}
"""Unsupported fields, with the values that have no effect."""
_TEXTS = ("input_text", "output_text", "text")


def supported(data: Any, ignored: Collection[str], unsupported: Mapping[str, Collection[Any]]) -> Any:
    """Return the fields of a request that are given, without those that have no effect.

    Args:
        unsupported: the values of unsupported fields that have none.

    Raises:
        ValueError: an unsupported field has another value.
    """
    if not isinstance(data, dict):
        return data
    fields = {name: value for name, value in data.items() if value is not None and name not in ignored}
    for name in fields.keys() & unsupported.keys():
        if fields.pop(name) not in unsupported[name]:
            raise ValueError(f"{name} is not supported")
    return fields


class ResponsesBody(BaseModel):
    """POST /v1/responses. A field that is null is one that is not given."""

    model_config = ConfigDict(extra="forbid")

    model: str
    input: str | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=4096)]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    reasoning: dict[str, Any] = Field(default_factory=dict)
    tools: list[dict[str, Any]] = Field(default_factory=list, max_length=4096)
    temperature: float | None = None
    top_p: float | None = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    stream: bool = False

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, data: Any) -> Any:
        return supported(data, _IGNORED, _UNSUPPORTED)

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of the input. Raises ValueError for an item that is none of text or of functions."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        messages: list[dict[str, Any]] = []
        thought = ""
        for item in self.input:
            match item.get("type", "message"):
                case "message":
                    messages.append({"role": item.get("role"), "content": _text_of(item.get("content"))})
                case "function_call":
                    function = {name: item.get(name) for name in ("name", "arguments")}
                    if not messages or messages[-1]["role"] != "assistant":
                        messages.append({"role": "assistant", "content": None})
                    calls = messages[-1].setdefault("tool_calls", [])
                    calls.append({"id": item.get("call_id"), "type": "function", "function": function})
                case "function_call_output":
                    output = _text_of(item.get("output"))
                    messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
                case "reasoning":
                    parts = item.get("content") or item.get("summary") or ()
                    thought = "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
                    continue
                case other:
                    raise ValueError(f"input: items of the type {str(other)[:100]!r} are not supported")
            if thought and messages[-1]["role"] == "assistant":
                messages[-1]["reasoning"], thought = thought, ""
        return messages

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the body of a chat completion on these messages, after the instructions."""
        functions = [{name: value for name, value in tool.items() if name != "type"} for tool in self.tools]
        kinds = [tool.get("type") for tool in self.tools]
        first = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        same = ("model", "temperature", "top_p", "tool_choice", "parallel_tool_calls")
        return {
            **{name: getattr(self, name) for name in same},
            "messages": [*first, *messages],
            "max_completion_tokens": self.max_output_tokens,
            "reasoning_effort": self.reasoning.get("effort"),
            "tools": [{"type": kind, "function": function} for kind, function in zip(kinds, functions, strict=True)],
        }


def _text_of(content: Any) -> Any:
    """Return a content whose parts of text are those of a chat message."""
    if not isinstance(content, list):
        return content
    texts = [isinstance(part, dict) and part.get("type") in _TEXTS for part in content]
    return [
        {"type": "text", "text": part.get("text")} if is_text else part
        for part, is_text in zip(content, texts, strict=True)
    ]


def response_of(body: ResponsesBody, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response that has the first reply of a chat completion."""
    [choice, *_], usage = answer["choices"], answer["usage"]
    message, name = choice["message"], uuid.uuid4().hex
    status = "incomplete" if choice["finish_reason"] == "length" else "completed"
    output: list[dict[str, Any]] = []
    if thought := message.get("reasoning"):
        content = [{"type": "reasoning_text", "text": thought}]
        output.append({"type": "reasoning", "id": f"rs_{name}", "summary": [], "content": content})
    if message["content"] or not message.get("tool_calls"):
        text: dict[str, Any] = {
            "type": "output_text",
            "text": message["content"] or "",
            "annotations": [],
            "logprobs": [],
        }
        fields = {"id": f"msg_{name}", "role": "assistant", "status": status}
        output.append({"type": "message", **fields, "content": [text]})
    for number, call in enumerate(message.get("tool_calls") or ()):
        fields = {"id": f"fc_{name}_{number}", "call_id": call["id"], "status": "completed"}
        output.append({"type": "function_call", **fields, **call["function"]})
    thoughts = usage.get("completion_tokens_details", {"reasoning_tokens": 0})
    tokens = {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": thoughts,
        "total_tokens": usage["total_tokens"],
    }
    request_fields = ("instructions", "previous_response_id", "max_output_tokens", "temperature", "top_p", "tools")
    return {
        **{name: getattr(body, name) for name in request_fields},
        "id": f"resp_{name}",
        "object": "response",
        "created_at": answer["created"],
        "model": answer["model"],
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "error": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": body.tool_choice or "auto",
        "output": output,
        "usage": tokens,
    }


def response_events(response: Mapping[str, Any]) -> str:
    """Return the events of a response."""
    numbers, events = itertools.count(), list[str]()

    def add(kind: str, **fields: Any) -> None:
        event = {"type": f"response.{kind}", "sequence_number": next(numbers), **fields}
        events.append(f"event: response.{kind}\ndata: {json.dumps(event)}\n\n")

    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    add("created", response=begun)
    add("in_progress", response=begun)
    for index, item in enumerate(response["output"]):
        part, at = {"output_index": index}, {"output_index": index, "item_id": item["id"]}
        empty: dict[str, Any] = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
        add("output_item.added", **part, item={**item, **empty, "status": "in_progress"})
        if item["type"] == "function_call":
            add("function_call_arguments.delta", **at, delta=item["arguments"])
            add("function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"])
        elif item["type"] == "message":
            [content], content_at = item["content"], {**at, "content_index": 0}
            add("content_part.added", **content_at, part={**content, "text": ""})
            add("output_text.delta", **content_at, delta=content["text"], logprobs=[])
            add("output_text.done", **content_at, text=content["text"], logprobs=[])
            add("content_part.done", **content_at, part=content)
        add("output_item.done", **part, item=item)
    add(response["status"], response=response)
    return "".join(events)
