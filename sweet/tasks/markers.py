"""Parse the markers in an agent's reply: `OUTPUT:` before the visible part, `I WANT TO ANSWER:` before the answer.

The human does not see the thought before `OUTPUT:`. `I WANT TO ANSWER:` ends the dialogue. Protocol `upstream` accepts
only the exact markers; protocol `paper` also accepts the variants that models write.
"""

from __future__ import annotations

import re

from sweet.tasks.base import Move, ProtocolName

ANSWER_MARKER = "I WANT TO ANSWER:"
OUTPUT_MARKER = "OUTPUT:"
PART_MARKER = "PART:"
"""Begins a reply that delivers a part of the answer, where the task has such answers (`sweet.tasks.parts`)."""
MAX_TURNS = 10
"""Number of the agent's turns in the original protocol."""

ANSWER = re.compile(
    r"(?P<mark>\*{1,3}|_{1,3}|`)?I[ \t]++WANT[ \t]++TO[ \t]++ANSWER"
    r"(?:[ \t]*+(?P=mark))?+[ \t]*+(?::(?:[ \t]*+(?P=mark))?|(?=\n))",
    re.IGNORECASE,
)
"""The answer's marker as models write it: in any case, in markdown emphasis, with the colon inside or outside of it,
or missing at the end of a line. The quantifiers are possessive, so that a search takes linear time."""

OUTPUT = re.compile(r"(?P<mark>\*{1,3}|_{1,3})OUTPUT(?:(?P=mark):|:(?P=mark))|OUTPUT:")
"""The marker of the visible part, as models write it."""

_LINE_OUTPUT = re.compile(rf"^[ \t>#]*+(?:{OUTPUT.pattern})", re.MULTILINE)


def read_move(output: str, *, last: bool, protocol: ProtocolName) -> Move:
    """Parse a raw reply into the part that the human sees and the answer, if it delivers one.

    Protocol `upstream` splits at the exact markers wherever they occur. Protocol `paper` accepts variants of the marker
    and ignores an `OUTPUT:` inside the delivered answer.
    """
    content = seen_upstream(output) if protocol == "upstream" else between(output, _output_marks(output))
    parts = content.split(ANSWER_MARKER, 2) if protocol == "upstream" else ANSWER.split(content, 2)[::2]
    if len(parts) > 1:
        answer = parts[1] if protocol == "upstream" else parts[1].strip("\n").rstrip()
        return Move(content=content, answer=answer, ends=True)
    return Move(content=content, answer=content if last else None, ends=False)


def _output_marks(output: str) -> list[tuple[int, int]]:
    """Return start and end of the first two `OUTPUT:` markers.

    After the answer's marker, in the answer, only an `OUTPUT:` at the start of a line counts.
    """
    answer = ANSWER.search(output)
    limit = answer.start() if answer else len(output)
    marks = [(m.start(), m.end()) for m in OUTPUT.finditer(output, 0, limit)]
    marks += [(m.start(), m.end()) for m in _LINE_OUTPUT.finditer(output, limit)]
    return marks[:2]


def seen_upstream(output: str) -> str:
    """Return the visible part of a reply in the published protocol: from the first `OUTPUT:` to the second."""
    parts = output.split(OUTPUT_MARKER, 2)
    return parts[1] if len(parts) > 1 else output


def between(output: str, marks: list[tuple[int, int]]) -> str:
    """Return the text between the first two `OUTPUT:` markers, given as (start, end), or all of it without markers."""
    if marks:
        output = output[marks[0][1] : marks[1][0] if len(marks) > 1 else len(output)]
    return output.strip()
