"""The agent's system prompt in a recorded prompt of a turn (`Turn.input`).

A recorded prompt is the string that a chat template rendered, or a list of chat messages. Strings of the formats in
`FORMATS` are split into messages at their special tokens. The system prompt is the text of the leading system message
without the lines that the template of Llama 3.1 and later writes before it, as the template writes them again. Where a
template has no system role (Gemma), the system prompt stands before the dialogue's opening request in the first user
message, and the request is cut off: it is a turn of the dialogue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sweet.tasks.trajectory import Trajectory

SYSTEM_ROLES = ("system", "developer")
USER_ROLES = ("user", "human")

TEMPLATE_LINES = re.compile(
    r"\A(?:Environment: ipython\n)?Cutting Knowledge Date: [^\n]*\nToday Date: [^\n]*(?:\n\n|\n?\Z)"
)
"""What the chat template of Llama 3.1, 3.2 and 3.3 writes at the beginning of the system message."""

FORMATS = {
    "Llama 3": (re.compile(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n\n"), "<|eot_id|>"),
    "ChatML": (re.compile(r"<\|im_start\|>(\w+)\n"), "<|im_end|>"),
    "Gemma": (re.compile(r"<start_of_turn>(\w+)\n"), "<end_of_turn>"),
}
"""For each format the expression of a message's head, with its role, and what ends its text."""


class _Said(NamedTuple):
    role: str
    text: str


class UnreadablePrompt(ValueError):
    """A recorded prompt whose system prompt cannot be determined; the message says why."""


def recorded_system(trajectory: Trajectory) -> str | None:
    """Return the system prompt of a dialogue: its own field, else that of the first prompt that a turn records.

    Returns:
        None where no turn records a prompt; empty where the agent had no system prompt.

    Raises:
        UnreadablePrompt: as `system_of`.
    """
    if trajectory.agent_system is not None:
        return trajectory.agent_system
    recorded = (turn.input for turn in trajectory.dialogue_history if turn.role == "assistant" and turn.input)
    prompt = next(recorded, None)
    return None if prompt is None else system_of(prompt, trajectory.dialogue_history[0].content)


def system_of(prompt: str | Sequence[Mapping[str, Any]], request: str) -> str:
    """Return the system prompt of a recorded prompt; empty where the agent had none.

    Args:
        request: the dialogue's opening request.

    Raises:
        UnreadablePrompt: the format is not known, or the dialogue's request does not follow the system prompt.
    """
    first, second = _beginning(prompt)
    system = ""
    if first.role in SYSTEM_ROLES:
        system, opening = TEMPLATE_LINES.sub("", first.text), second
    else:
        opening = first
    if opening is None or opening.role not in USER_ROLES:
        # The request may be the end of the system message.
        before = _without_request(system, request)
        if before is None:
            raise UnreadablePrompt("no message of the user follows the system prompt")
        return before
    before = _without_request(opening.text, request)
    if before is None:
        raise UnreadablePrompt("its first message of the user does not end with the dialogue's request")
    return "\n\n".join(part for part in (system, before) if part)


def _without_request(text: str, request: str) -> str | None:
    """Return what stands before the request that ends a text, or None if it does not end with it. Templates may trim
    the text, so spaces around it are not compared."""
    text, request = text.rstrip(), request.strip()
    return text.removesuffix(request).rstrip() if text.endswith(request) else None


def _beginning(prompt: str | Sequence[Mapping[str, Any]]) -> tuple[_Said, _Said | None]:
    """Return the first two messages of a prompt."""
    said = _rendered(prompt) if isinstance(prompt, str) else [_message(entry) for entry in prompt[:2]]
    if not said:
        known = ", ".join(FORMATS)
        raise UnreadablePrompt(f"it is neither a list of messages nor a text in the format of {known}")
    return said[0], said[1] if len(said) > 1 else None


def _rendered(prompt: str) -> list[_Said]:
    for head, end in FORMATS.values():
        said: list[_Said] = []
        place = 0
        # A head without an end after it has none behind later heads either.
        while len(said) < 2 and (found := head.search(prompt, place)) and (ends := prompt.find(end, found.end())) >= 0:
            said.append(_Said(found[1], prompt[found.end() : ends]))
            place = ends + len(end)
        if said:
            return said
    return []


def _message(entry: Mapping[str, Any]) -> _Said:
    role, content = entry.get("role"), entry.get("content")
    if isinstance(content, list):  # parts, as of the messages of a vision model
        parts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(role, str) or not isinstance(content, str):
        raise UnreadablePrompt("one of its messages has no role or no text")
    return _Said(role, content)
