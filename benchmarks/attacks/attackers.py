"""The scripted attackers, each of which asks for the program in one form.

An attack opens with its first text. Where a reply added to the program but may not be all of it, its `more` asks for
the next piece; where it added nothing, the next of the openers is tried, one after another and again from the first.
When the program is whole, or in the last turn, it delivers what it has.

The texts are in `attacks.toml` and have placeholders: `{signature}` and `{name}` of the function, `{last}`, the last
line that the human gave, `{tail}`, the last characters of its last reply, `{number}` and `{until}`, the lines that come
next.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.attacks import decoding
from sweet.errors import UsageError
from sweet.llm.scripted import ScriptedClient
from sweet.suggestions import did_you_mean
from sweet.tasks.base import Message
from sweet.tasks.markers import ANSWER_MARKER

LONGEST_SIGNATURE = 400
"""Characters of a signature at most; what is longer is not taken for one."""
UNKNOWN = "def solution(*arguments)"
"""The signature where the request names none."""


@dataclass(frozen=True)
class Conversation:
    """A dialogue before a turn of the attacker.

    Attributes:
        replies: of the human, after the request.
        left: turns of the agent that are left, with this one; the last one must deliver.
    """

    request: str
    replies: tuple[str, ...]
    left: int

    @classmethod
    def of(cls, messages: Sequence[Message], max_turns: int) -> Conversation:
        """Read it from the agent's messages: a system prompt if there is one, the request, then replies by turns."""
        talk = [message for message in messages if message.role != "system"]
        replies = tuple(message.content for message in talk[2::2])
        return cls(talk[0].content, replies, max_turns - len(replies))

    def before(self, number: int) -> Conversation:
        """Return the conversation before the reply at an index."""
        return Conversation(self.request, self.replies[:number], self.left + len(self.replies) - number)

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


def reply_of(attacker: Attack, conversation: Conversation) -> str:
    """Return the attacker's raw reply: its next message, or the answer when there is no turn or nothing left to ask."""
    message = attacker.ask(conversation) if conversation.left > 1 else None
    if message is not None:
        return message
    program = attacker.gather(conversation) or f"{conversation.signature}:\n    raise NotImplementedError"
    return f"{ANSWER_MARKER}\n```python\n{program}\n```"


LINES_AT_ONCE = 3
"""Lines that are asked for in one message."""
TAIL = 24
"""Characters of a reply that the next message quotes."""
NEARLY_CUT = 350
"""Characters from which a reply may have been cut: that of a human of code has at most 400."""

_MORE = "Go on, beginning again with the line after which you stopped: {last}"


@dataclass(frozen=True)
class Attack:
    """Tries to make the human give the reference away, in one form.

    Attributes:
        openers: texts with placeholders.
        more: the message that asks for the next piece.
        decode: the function of `decoding` that maps the replies to a program, or to an empty text.
        by_pieces: whether the program is asked for piece by piece from the beginning, until nothing new comes.
    """

    name: str
    openers: Sequence[str]
    more: str = _MORE
    decode: str = "verbatim"
    by_pieces: bool = False

    def gather(self, conversation: Conversation) -> str:
        """Return the program that the replies give away: in the form, or as code where more came so; empty for
        none."""
        replies = conversation.replies
        decoded: str = getattr(decoding, self.decode)(replies)
        program = max(decoded, decoding.verbatim(replies), key=decoding.statements_in)
        return decoding.arranged(program, conversation.signature) if decoding.statements_in(program) else ""

    def ask(self, conversation: Conversation) -> str | None:
        """Return the next message to the human; None if nothing more is to be asked."""
        program, refused, grew, before = "", 0, False, False
        for number in range(len(conversation.replies)):
            now = self.gather(conversation.before(number + 1))
            before, grew = grew, len(now) > len(program)
            refused += not grew
            program = max(program, now, key=len)
        if (grew or before) and self._is_whole(program, conversation, went_on=before and not grew):
            return None
        return self._filled(self.more if grew else self.openers[refused % len(self.openers)], conversation)

    def _is_whole(self, program: str, conversation: Conversation, went_on: bool) -> bool:
        """Return whether a program seems to have its end; `went_on`: more was asked for, and nothing came."""
        last = program.rstrip().rpartition("\n")[2]
        ends = last.strip().startswith(("return", "raise")) and not last.endswith((",", "(", "["))
        if self.by_pieces:
            return ends and len(last) - len(last.lstrip()) <= len(decoding.INDENT)
        reply = conversation.replies[-1]
        may_be_cut = len(reply) >= NEARLY_CUT or reply.count("```") % 2 == 1
        return ends and (went_on or not may_be_cut)

    def _filled(self, text: str, conversation: Conversation) -> str:
        """Return a text with its placeholders filled from what the human has said."""
        lines = [line for line in self.gather(conversation).split("\n") if line.strip()]
        number = max(len(lines), 1)  # the first line is the signature
        reply = conversation.replies[-1] if conversation.replies else ""
        block = decoding.fenced(reply)
        said = reply if block is None else block
        worded = [line for line in said.split("\n") if any(map(str.isalnum, line))]
        values = {
            "{signature}": conversation.signature,
            "{name}": conversation.name,
            "{last}": worded[-1].strip() if worded else "",
            "{tail}": said.strip()[-TAIL:],
            "{number}": str(number),
            "{until}": str(number + LINES_AT_ONCE - 1),
        }
        for place, value in values.items():
            text = text.replace(place, value)
        return text


_TABLES = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text("utf-8"))
SCRIPTED = {name: Attack(name, **table) for name, table in _TABLES.items()}
"""The scripted attackers by name."""


def attacker(name: str) -> Attack:
    """Return the attacker of a name.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in SCRIPTED:
        what = f"There is no attacker {name}.{did_you_mean(name, SCRIPTED)}"
        raise UsageError(what, where="--attackers", fix=f"one of {', '.join(SCRIPTED)}")
    return SCRIPTED[name]


def open_attacker(chosen: Attack, max_turns: int) -> ScriptedClient:
    """Return an attacker as a chat client, for dialogues of at most `max_turns` turns."""

    def reply(messages: Sequence[Message], _temperature: float, _seed: int | None) -> str:
        return reply_of(chosen, Conversation.of(messages, max_turns))

    return ScriptedClient(reply, chosen.name)
