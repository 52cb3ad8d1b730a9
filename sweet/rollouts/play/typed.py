"""Checks of what a person types or pastes, and of a person's name. Both are data like the text of a model.

Control and format characters are removed, which a terminal would execute or which make a text look different from what
it is: escape sequences lose their ESC, NUL and bidirectional overrides vanish. Newlines and tabs stay, and the joiners
that Persian, Indic scripts and emoji need. Texts that are too long are refused, never cut. What an agent types must
not contain the protocol's markers: delivering the answer is an action of its own.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from sweet.tasks.base import ProtocolName
from sweet.tasks.kind import TaskKind
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.packaged import PACKAGED

Role = Literal["human", "agent"]
"""The side of a dialogue that a person plays."""

LONGEST: dict[Role, int] = {"human": 4_000, "agent": 40_000}
"""Characters of one message at most, by the role: an agent delivers whole programs and pages."""
LONGEST_NAME = 40

_NAME = re.compile(r"[\w.+-]+(?: [\w.+-]+)*")
_ALLOWED = frozenset("\n\t\u200c\u200d")
_REMOVED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_RESERVED = frozenset({"scripted", "imported", *PACKAGED})


def name_fault(name: str) -> str | None:
    """Return what is wrong with a person's name, in a sentence; None if nothing is."""
    if not name or len(name) > LONGEST_NAME:
        return f"A name has 1 to {LONGEST_NAME} characters"
    if not _NAME.fullmatch(name) or set(name) == {"."}:
        return "A name has letters, digits, single spaces and . _ - + only"
    return f"{name} is the name of a model or script" if name.lower() in _RESERVED else None


def cleaned(text: str) -> str:
    """Return a typed text without control and format characters, with line feeds at the ends of its lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(char for char in text if char in _ALLOWED or unicodedata.category(char) not in _REMOVED)


def length_fault(text: str, role: Role) -> str | None:
    """Return why a text cannot be a message, in a sentence; None if it can."""
    most = LONGEST[role]
    if not text.strip():
        return "There is nothing to send."
    return f"The text has {len(text):,} characters, and a message at most {most:,}." if len(text) > most else None


def agent_output(kind: TaskKind, text: str, protocol: ProtocolName, *, deliver: bool) -> tuple[str, str | None]:
    """Return the raw reply for a text that a person typed as the agent, and why it cannot be one, or None.

    Args:
        deliver: whether the text is the answer.
    """
    stripped = text.strip("\n").rstrip()
    output = f"{ANSWER_MARKER}\n{stripped}" if deliver else stripped
    move = kind.move(output, last=False, protocol=protocol)
    if deliver:
        if kind.visual and move.answer is None:
            return output, "There is no page in it: an answer is a page from <html> to </html>."
        whole = move.ends and (kind.visual or (move.answer or "").strip() == stripped.strip())
    else:
        whole = not move.ends and move.content.strip() == stripped.strip()
    how = "Leave it out." if deliver else "Leave it out, or deliver the text as the answer."
    return output, None if whole else f"It contains a marker of the protocol, such as {ANSWER_MARKER} {how}"
