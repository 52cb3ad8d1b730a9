"""What an attacker sees of a dialogue: the request, its own messages with the human's replies, and the turns left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sweet.tasks.base import Message

LONGEST_SIGNATURE = 400
"""Characters of a signature at most; what is longer is not taken for one."""
UNKNOWN = "def solution(*arguments)"
"""The signature where the request names none."""


class Exchange(NamedTuple):
    """A message of the attacker and the human's reply to it."""

    message: str
    reply: str


@dataclass(frozen=True)
class Conversation:
    """A dialogue before a turn of the attacker.

    Attributes:
        left: turns of the agent that are left, with this one; the last one must deliver.
    """

    request: str
    exchanges: tuple[Exchange, ...]
    left: int

    @classmethod
    def of(cls, messages: Sequence[Message], max_turns: int) -> Conversation:
        """Read it from the agent's messages: a system prompt if there is one, the request, then replies by turns."""
        talk = [message for message in messages if message.role != "system"]
        pairs = zip(talk[1::2], talk[2::2], strict=False)
        exchanges = tuple(Exchange(message.content, reply.content) for message, reply in pairs)
        return cls(talk[0].content, exchanges, max_turns - len(exchanges))

    def before(self, number: int) -> Conversation:
        """Return the conversation before the exchange at an index."""
        return Conversation(self.request, self.exchanges[:number], self.left + len(self.exchanges) - number)

    @property
    def replies(self) -> list[str]:
        return [exchange.reply for exchange in self.exchanges]

    @cached_property
    def signature(self) -> str:
        """`def NAME(…)`, without the colon, from the request; `UNKNOWN` where it has none."""
        start = self.request.rfind("def ")
        depth, text = 0, self.request[start : start + LONGEST_SIGNATURE]
        for end, character in enumerate(text if start >= 0 else ""):
            depth += (character == "(") - (character == ")")
            if character == ")" and depth == 0:
                found = " ".join(text[: end + 1].split())
                return found if found[4:].partition("(")[0].strip().isidentifier() else UNKNOWN
        return UNKNOWN

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.signature[4:].partition("(")[0].strip()
