"""The marks in an agent's reply that every kind of task knows, and the length of a dialogue.

A reply may carry a thought before `OUTPUT:`, which the human does not see, and ends the dialogue by
`I WANT TO ANSWER:`. Recipe `upstream` takes the exact marks; recipe `paper` takes them as models write them.
"""

from __future__ import annotations

import re

ANSWER_MARKER = "I WANT TO ANSWER:"
OUTPUT_MARKER = "OUTPUT:"
MAX_TURNS = 10
"""The agent's turns in the original protocol."""

ANSWER = re.compile(
    r"(?P<mark>\*{1,3}|_{1,3}|`)?I[ \t]+WANT[ \t]+TO[ \t]+ANSWER"
    r"(?:[ \t]*(?P=mark))?[ \t]*(?::(?:[ \t]*(?P=mark))?|(?=[ \t]*\n))",
    re.IGNORECASE,
)
"""The answer's marker as models write it: any case, set off by markdown, the colon inside, outside, or missing at the
end of a line."""

OUTPUT = re.compile(r"(?P<mark>\*{1,3}|_{1,3})OUTPUT(?:(?P=mark):|:(?P=mark))|OUTPUT:")
"""The marker of what the human sees, as models write it."""


def seen_upstream(output: str) -> str:
    """What the human sees of a reply in the published protocol: what follows the first `OUTPUT:`, up to a second."""
    parts = output.split(OUTPUT_MARKER, 2)
    return parts[1] if len(parts) > 1 else output


def between(output: str, marks: list[tuple[int, int]]) -> str:
    """What follows the first of the `OUTPUT:` marks (start, end), up to the second; everything where there is none."""
    if marks:
        output = output[marks[0][1] : marks[1][0] if len(marks) > 1 else len(output)]
    return output.strip()
