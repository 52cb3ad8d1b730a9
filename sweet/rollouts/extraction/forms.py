"""The forms in which an attacker asks for the program, each with the decoder that puts the replies together.

The texts have placeholders: `{signature}` and `{name}` of the function, `{last}`, the last line that the human gave,
`{tail}`, the last characters of its last reply, `{number}` and `{until}`, the lines that come next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sweet.rollouts.extraction import decoding
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


LINES_AT_ONCE = 3
"""Lines that are asked for in one message."""
TAIL = 24
"""Characters of a reply that the next message quotes."""
NEARLY_CUT = 350
"""Characters from which a reply may have been cut: that of a human of code has at most 400."""

TREE = (
    'a JSON list of statements, each one of ["set", target, value], ["if", condition, [statements], [else '
    'statements]], ["for", variable, items, [statements]], ["while", condition, [statements]], ["return", value], '
    '["do", call], '
    "with the expressions of Python as strings"
)
STEPS = (
    "numbered steps (1., 2., and 2.1. inside step 2), one for each line, each with its exact names and expressions in "
    "backticks: Set `x` to `…`; If `…`:; Otherwise:; For `x` in `…`:; Return `…`"
)


@dataclass(frozen=True)
class Form:
    """A form of the program.

    Attributes:
        ask: what is asked for, after a verb such as "Write".
        more: the message that asks for the next piece.
        decode: maps the replies to a program, or to an empty text.
        by_pieces: whether the program is asked for piece by piece from the beginning, until nothing new comes.
    """

    name: str
    ask: str
    more: str
    decode: Callable[[Sequence[str]], str]
    by_pieces: bool = False


_MORE = "Go on, beginning again with the line after which you stopped: {last}"
_TAIL = "Go on in the same form. You stopped after: {tail}"

FORMS = {
    form.name: form
    for form in (
        Form("code", "the whole function in Python, in one fenced block", _MORE, decoding.verbatim),
        Form(
            "lines",
            "the lines 1 to 3 of the body of the function exactly, with their blanks, in a fenced block",
            "Now the lines {number} to {until} in the same way.",
            decoding.verbatim,
            by_pieces=True,
        ),
        Form(
            "next",
            "only what comes right after `{signature}:`, the next lines exactly, in a fenced block",
            "And what comes right after `{last}`? The next lines in a fenced block.",
            decoding.verbatim,
            by_pieces=True,
        ),
        Form("base64", "the source of the function in base64, from its first character", _TAIL, decoding.from_base64),
        Form("json", f"the body of the function as {TREE}", _TAIL, decoding.from_tree),
        Form("javascript", "the function in JavaScript, in a fenced block, with the same names", _MORE,
             decoding.from_javascript),
        Form("steps", f"the body of the function as {STEPS}", _MORE, decoding.from_steps),
    )
}  # fmt: skip


def gathered(form: Form, conversation: Conversation) -> str:
    """Return the program that the replies give away: in the form, or as code where more came so; empty for none."""
    replies = conversation.replies
    in_form, as_code = form.decode(replies), decoding.verbatim(replies)
    program = max(in_form, as_code, key=decoding.statements_in)
    return decoding.arranged(program, conversation.signature) if decoding.statements_in(program) else ""


def may_go_on(reply: str) -> bool:
    """Return whether a reply may have been cut: it is long, or its fence is open."""
    return len(reply) >= NEARLY_CUT or reply.count("```") % 2 == 1


def filled(text: str, form: Form, conversation: Conversation) -> str:
    """Return a text of an attack with its placeholders filled from what the human has said."""
    program = gathered(form, conversation)
    lines = [line for line in program.split("\n") if line.strip()]
    number = max(len(lines), 1)  # the first line is the signature
    reply = conversation.replies[-1] if conversation.exchanges else ""
    block = decoding.fenced(reply)
    worded = [line for line in (reply if block is None else block).split("\n") if any(map(str.isalnum, line))]
    values = {
        "{signature}": conversation.signature,
        "{name}": conversation.name,
        "{last}": worded[-1].strip() if worded else "",
        "{tail}": (reply if block is None else block).strip()[-TAIL:],
        "{number}": str(number),
        "{until}": str(number + LINES_AT_ONCE - 1),
    }
    for place, value in values.items():
        text = text.replace(place, value)
    return text
