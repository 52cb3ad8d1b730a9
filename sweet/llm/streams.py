"""The events of a streamed reply, made of the whole reply: it comes in one piece, in the form of a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

EVENTS = "text/event-stream"


def chat_events(answer: Mapping[str, Any], *, usage: bool) -> str:
    """Return the events of a chat completion.

    Args:
        usage: whether a last chunk has the numbers of tokens (`stream_options.include_usage`).
    """
    shared = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    chunks: list[dict[str, Any]] = []
    for choice in answer["choices"]:
        delta = dict(choice["message"])
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(calls)]
        said = {**choice, "delta": delta, "finish_reason": None}
        del said["message"]
        ending = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
        chunks += [{**shared, "choices": [one]} for one in (said, ending)]
    if usage:
        chunks.append({**shared, "choices": [], "usage": answer["usage"]})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
