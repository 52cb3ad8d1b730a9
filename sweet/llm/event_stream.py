"""Reads a streamed response, events of `data: {…}` lines, as the response that the server would have sent whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sweet.runs.jsonl import plain

_END = "[DONE]"
_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
_JOINED = ("delta", "message", "logprobs", "token_ids")
_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b":")


def is_event_stream(data: bytes) -> bool:
    """Return whether a response consists of events, as far as its beginning tells."""
    return data.lstrip().startswith(_BEGINNINGS)


def joined_events(data: bytes) -> dict[str, Any]:
    """Return the response that events are the parts of; one that carries an error if they do, or were cut off."""
    whole: dict[str, Any] = {}
    choices: dict[Any, _Choice] = {}
    is_ended = False
    for event in _events(data):
        if event == _END:
            is_ended = True
        elif isinstance(event, dict):
            whole |= {key: value for key, value in event.items() if key != "choices" and value is not None}
            parts = event.get("choices")
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, dict):
                    index = part.get("index")
                    choices.setdefault(index if isinstance(index, int) else 0, _Choice()).add(part)
    if not is_ended and "error" not in whole and not any(choice.is_ended for choice in choices.values()):
        return {"error": {"message": "the streamed response ended in its middle"}}
    whole["choices"] = [choice.whole() for choice in choices.values()]
    return {key: plain(value) for key, value in whole.items()}  # a character may be in two events


def _events(data: bytes) -> Iterator[Any]:
    for line in (line.decode(errors="replace") for line in data.splitlines()):  # of a text they end at U+2028, too
        text = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if text == _END:
            yield _END
        elif text:
            try:
                yield json.loads(text)
            except (ValueError, RecursionError):
                yield {"error": {"message": "an event of the streamed response is not JSON"}}


class _Choice:
    """One reply, joined of its parts."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {"token_ids": [], "logprobs": []}
        self._calls: list[Any] = []
        self._begun: list[dict[str, Any]] = []
        self._call_at: dict[int, dict[str, Any]] = {}

    @property
    def is_ended(self) -> bool:
        return bool(self._fields.get("finish_reason"))

    def add(self, part: dict[str, Any]) -> None:
        delta, logprobs = part.get("delta") or part.get("message"), part.get("logprobs")
        self._fields |= {key: value for key, value in part.items() if key not in _JOINED and value is not None}
        for key in _TEXTS:
            if isinstance(delta, dict) and isinstance(text := delta.get(key), str):
                self._texts.setdefault(key, []).append(text)
        pieces = delta.get("tool_calls") if isinstance(delta, dict) else None
        for place, piece in enumerate(pieces if isinstance(pieces, list) else ()):
            self._add_call(place, piece)
        content = logprobs.get("content") if isinstance(logprobs, dict) else None
        for key, values in (("token_ids", part.get("token_ids")), ("logprobs", content)):
            self._lists[key] += values if isinstance(values, list) else ()

    def _add_call(self, place: int, piece: Any) -> None:
        """Add a piece of a call. A server that numbers all calls alike begins each with an id of its own."""
        function = piece.get("function") if isinstance(piece, dict) else None
        if not isinstance(function, dict):
            self._calls.append(piece)
            return
        index, name, arguments = piece.get("index"), piece.get("id"), function.get("arguments")
        index = index if isinstance(index, int) else place
        call = self._call_at.get(index)
        if call is None or (name and call["id"] and name != call["id"]):
            call = self._call_at[index] = {"id": None, "function": {"arguments": []}}
            self._calls.append(call)
            self._begun.append(call)
        call["id"] = call["id"] or name
        call["function"].setdefault("name", function.get("name"))
        call["function"]["arguments"] += [] if arguments is None else [arguments]

    def whole(self) -> dict[str, Any]:
        for function in (call["function"] for call in self._begun):
            pieces = function["arguments"]
            is_text = all(isinstance(piece, str) for piece in pieces)
            function["arguments"] = "".join(pieces) if is_text else pieces[0] if len(pieces) == 1 else pieces
        ids, logprobs = self._lists["token_ids"], self._lists["logprobs"]
        return {
            **self._fields,
            "message": {key: "".join(texts) for key, texts in self._texts.items()} | {"tool_calls": self._calls},
            "token_ids": ids or None,
            "logprobs": {"content": logprobs} if logprobs else None,
        }
