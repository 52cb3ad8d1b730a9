"""The agent's system prompt in a recorded prompt of a turn (`Turn.input`).

A recorded prompt is a list of chat messages, or the string that a chat template rendered, which is split into messages
at the special tokens of Llama 3, ChatML and Gemma. The system prompt is what stands before the dialogue's opening
request: the leading system message, without the lines that the template of Llama 3.1 and later writes before it, as the
template writes them again, and what the message with the request has before that (Gemma has no system role).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweet.tasks.trajectory import Trajectory

SYSTEM_ROLES = ("system", "developer")
USER_ROLES = ("user", "human")

TEMPLATE_LINES = re.compile(
    r"\A(?:Environment: ipython\n)?Cutting Knowledge Date: [^\n]*\nToday Date: [^\n]*(?:\n\n|\n?\Z)"
)
"""What the chat template of Llama 3.1, 3.2 and 3.3 writes at the beginning of the system message."""

_HEAD = re.compile(
    r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n\n|<\|im_start\|>(\w+)\n|<start_of_turn>(\w+)\n",
)
_END = re.compile(r"<\|eot_id\|>|<\|im_end\|>|<end_of_turn>")


def recorded_system(trajectory: Trajectory) -> str | None:
    """Return the system prompt of a dialogue: its own field, else that of the first prompt that a turn records.

    Returns:
        None where no turn records a prompt, or it cannot be read; empty where the agent had no system prompt.
    """
    if trajectory.agent_system is not None:
        return trajectory.agent_system
    recorded = (turn.input for turn in trajectory.dialogue_history if turn.role == "assistant" and turn.input)
    prompt = next(recorded, None)
    return None if prompt is None else system_of(prompt, trajectory.dialogue_history[0].content)


def system_of(prompt: str | Sequence[Mapping[str, Any]], request: str) -> str | None:
    """Return the system prompt of a recorded prompt; empty where the agent had none, None where the format is not known
    or the dialogue's request does not follow.

    Args:
        request: the dialogue's opening request. Templates may trim it, so spaces around it are not compared.
    """
    before: list[str] = []
    for role, text in _rendered(prompt) if isinstance(prompt, str) else map(_message, prompt[:2]):
        if role in SYSTEM_ROLES:
            text = TEMPLATE_LINES.sub("", text)
        if role in (*SYSTEM_ROLES, *USER_ROLES) and text.rstrip().endswith(request.strip()):
            before.append(text.rstrip().removesuffix(request.strip()).rstrip())
            return "\n\n".join(filter(None, before))
        if role not in SYSTEM_ROLES:
            return None
        before.append(text)
    return None


def _rendered(prompt: str) -> Iterator[tuple[str, str]]:
    """Yield role and text of the first two messages that end."""
    for part in _END.split(prompt, 2)[:-1]:
        if head := _HEAD.search(part):
            yield head[head.lastindex or 0], part[head.end() :]


def _message(entry: Mapping[str, Any]) -> tuple[str, str]:
    role, content = entry.get("role"), entry.get("content")
    if isinstance(content, list):  # parts, as of the messages of a vision model
        parts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    return str(role), content if isinstance(content, str) else ""
