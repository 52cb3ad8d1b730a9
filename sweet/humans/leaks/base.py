"""What a leak is: a part of the reference that the human's words give away as source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LeakKind = Literal["code", "pseudo-code", "encoded", "text", "page"]
"""How the source was given: as code, as words that spell it out, in an encoding, copied line by line (references that
are neither Python nor a page), or as the source of a page."""


@dataclass(frozen=True)
class Leak:
    """The source that the human has given away up to and with one reply.

    Attributes:
        kind: how the reply gives it.
        share: the share of the reference that the human has given so far, from 0 to 1, without what the request or the
            agent had already shown.
        excerpt: the part of the reply that gives it, at most `LONGEST_EXCERPT` characters. It is text of a model: data
            to be escaped before it is shown.
    """

    kind: LeakKind
    share: float
    excerpt: str


LONGEST_EXCERPT = 200
