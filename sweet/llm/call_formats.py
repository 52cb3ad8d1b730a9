"""Reads the calls of tools that a model writes into its replies.

Each family writes calls in a format of its own (`FORMATS`). A model's format is the one that reads back a call which
its chat template has written (`sweet.llm.template`): what a template writes into the history is what its model has
learned to write. Arguments stay as they are written. A call that cannot be read, and whatever is beyond `MOST_CALLS`,
stays a part of the text, with its marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sweet.tasks.base import ToolCall

MOST_CALLS = 128
"""Calls that are read of one reply."""
MARKS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "<|python_tag|>")
"""What marks calls and may be special tokens, which are no text elsewhere."""

ReadCalls = Callable[..., tuple[str, list[ToolCall]]]
"""As `CallFormat.read`."""

_NAME = r"(?P<name>[^\s<>\[\](){}]{1,128}+)"
FINAL = "<|channel|>final<|message|>"
"""Before what gpt-oss says."""
_PREAMBLE = "<|channel|>commentary<|message|>"
"""Before what it says beside its calls."""


@dataclass(frozen=True)
class CallFormat:
    """How the models of a family write calls.

    Attributes:
        opening: what stands before a call. If it has a group `name`, the arguments follow it; otherwise the JSON of a
            call, or of a list of calls.
        closing: what stands after it.
        in_channels: whether a call is a message of its own, as a thought is and what is said.
    """

    opening: re.Pattern[str]
    closing: re.Pattern[str]
    in_channels: bool = False

    def read(self, text: str, ended: bool = True, most: int = MOST_CALLS) -> tuple[str, list[ToolCall]]:
        """Read a reply.

        Args:
            ended: whether the model ended it itself; otherwise a call at its end may not be complete.
            most: calls that are read.

        Returns:
            The text without the calls, and the calls, whose ids are empty.
        """
        rest, calls, start, place = "", list[ToolCall](), 0, 0
        left = FINAL if self.in_channels else ""
        while len(calls) < most and (opening := self.opening.search(text, place)) is not None:
            calls_here, end = self._calls_at(text, opening, ended)
            if calls_here and len(calls) + len(calls_here) <= most:
                calls += calls_here
                rest += text[start : opening.start()] + left
                start = end
            place = max(end, opening.start() + 1)
        rest += text[start:]
        return rest.replace(_PREAMBLE, left) if calls and left else rest, calls

    def _calls_at(self, text: str, opening: re.Match[str], ended: bool) -> tuple[list[ToolCall], int]:
        """Return the calls after an opening, none if they cannot be read, and where they end."""
        place = opening.end()
        if (name := opening.groupdict().get("name")) is not None:
            closing = self.closing.search(text, place)
            if closing is None or (closing.start() == len(text) and not ended):
                return [], place
            return [ToolCall(id="", name=name, arguments=text[place : closing.start()].strip())], closing.end()
        try:
            written, end = _written(text, place)
            calls = [_call(members) for members in written]
        except (ValueError, KeyError, RecursionError):
            return [], place
        closing = self.closing.match(text, end)
        return (calls, closing.end()) if closing is not None else ([], place)


def read_calls(raw: Any, redacted: Callable[[str], str] = str) -> list[ToolCall]:
    """Return the first `MOST_CALLS` of calls in the form of OpenAI's API. Nothing is repaired: arguments that are no
    text are taken as their JSON, and what is no call becomes one without a name, whose arguments are its JSON.

    Args:
        redacted: removes keys from a text.
    """
    entries = raw if isinstance(raw, list) else [raw] if raw else []
    calls = []
    for entry in entries[:MOST_CALLS]:
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            calls.append(ToolCall(name="", arguments=redacted(_text(entry))))
            continue
        name, arguments = _text(function["name"]), _text(function.get("arguments", ""))
        raw_id = entry.get("id")
        number = _text(raw_id) if isinstance(raw_id, str) else ""
        calls.append(ToolCall(id=redacted(number), name=redacted(name), arguments=redacted(arguments)))
    return calls


def _text(value: Any) -> str:
    """Return a text, or the JSON of another value. What is no Unicode is written as JSON escapes it."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "nested too deeply"
    return text.encode(errors="backslashreplace").decode()


FORMATS = (
    CallFormat(  # Qwen 2.5 and 3, Hermes
        re.compile(r"<tool_call>\s*+(?=[\[{])"), re.compile(r"\s{0,16}+(?:</tool_call>|\Z)")
    ),
    CallFormat(  # Mistral, since its eleventh tokenizer
        re.compile(rf"\[TOOL_CALLS\]\s*+{_NAME}(?:\[CALL_ID\][^\s\[]{{0,64}}+)?+(?:\[ARGS\])?+"),
        re.compile(r"(?=\[TOOL_CALLS\]|</s>)|\Z"),
    ),
    CallFormat(re.compile(r"\[TOOL_CALLS\]\s*+(?=[\[{])"), re.compile("")),  # Mistral before
    CallFormat(  # gpt-oss
        re.compile(
            rf"(?:<\|channel\|>(?:commentary|analysis))?+ ?to=functions\.{_NAME}"
            r"[^<]{0,80}+(?:<\|(?:channel|constrain)\|>[^<]{0,80}+){0,2}+<\|message\|>"
        ),
        re.compile(r"<\|call\|>|\Z"),
        in_channels=True,
    ),
    CallFormat(  # Llama 3: the JSON is all of the reply
        re.compile(r"(?:\A|<\|python_tag\|>|(?<=\};)|(?<=\}; ))\s*+(?=\{)"), re.compile(";?+")
    ),
)

_scan = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"[ \t\r\n]*+")


def _after(text: str, place: int) -> int:
    """Return where the white space at a place ends."""
    space = _SPACE.match(text, place)
    return place if space is None else space.end()


def _written(text: str, place: int) -> tuple[list[dict[str, str]], int]:
    """Return the members of a JSON object, or of each object of a list, as they are written, and where it ends. Raises
    ValueError and RecursionError."""
    value, end = _scan(text, place)
    objects = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) for item in objects):
        raise ValueError("a call is no object")
    calls = []
    for _ in objects:
        members: dict[str, str] = {}
        place = _after(text, text.index("{", place) + 1)
        while text[place] != "}":
            key, place = _scan(text, _after(text, place))
            start = _after(text, _after(text, place) + 1)
            _, place = _scan(text, start)
            members[key] = text[start:place]
            place = _after(text, place)
            place += text[place] == ","
        place += 1
        calls.append(members)
    return calls, end


def _call(members: dict[str, str]) -> ToolCall:
    """Return a call by the members of its JSON. Raises KeyError and ValueError."""
    name = json.loads(members["name"])
    if not isinstance(name, str):
        raise ValueError("the name of a call is no text")
    arguments = members["arguments"] if "arguments" in members else members["parameters"]
    return ToolCall(id="", name=name, arguments=arguments)


def declared_calls(tokenizer: Any, text: str, ended: bool = True, most: int = MOST_CALLS) -> tuple[str, list[ToolCall]]:
    """Read a reply as the response template of a tokenizer says; see `CallFormat.read`. Where it cannot be read so, or
    has more calls, all of it is text."""
    try:
        message = tokenizer.parse_response(text, prefix="") if ended else {}
    except (ValueError, KeyError, TypeError):
        message = {}
    calls, content = read_calls(message.get("tool_calls")), message.get("content")
    if not calls or len(calls) > most:
        return text, []
    return content if isinstance(content, str) else "", calls
