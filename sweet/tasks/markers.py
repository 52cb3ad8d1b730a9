"""The marks in an agent's reply that every kind of task knows, what they mean, and the length of a dialogue.

A reply may carry a thought before `OUTPUT:`, which the human does not see, and ends the dialogue by
`I WANT TO ANSWER:`. Recipe `upstream` takes the exact marks; recipe `paper` takes them as models write them.
"""

from __future__ import annotations

import re

from sweet.tasks.base import Move, Recipe

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

_LINE_OUTPUT = re.compile(rf"^[ \t>#]*(?:{OUTPUT.pattern})", re.MULTILINE)


def read_move(output: str, *, last: bool, recipe: Recipe) -> Move:
    """What a raw reply means: what the human sees, and the answer where one is delivered.

    Recipe `upstream` splits at the exact markers wherever they stand. Recipe `paper` takes the marker in any case and
    dress, and does not mistake an `OUTPUT:` inside what is delivered for its own.
    """
    content = seen_upstream(output) if recipe == "upstream" else between(output, _output_marks(output))
    parts = content.split(ANSWER_MARKER, 2) if recipe == "upstream" else ANSWER.split(content, 2)[::2]
    if len(parts) > 1:
        answer = parts[1] if recipe == "upstream" else parts[1].strip("\n").rstrip()
        return Move(content=content, answer=answer, ends=True)
    return Move(content=content, answer=content if last else None, ends=False)


def _output_marks(output: str) -> list[tuple[int, int]]:
    """Where the first two markers of visible output begin and end. Behind the answer's marker stands the answer, in
    which only a line that starts with the marker is one."""
    answer = ANSWER.search(output)
    limit = answer.start() if answer else len(output)
    marks = [(m.start(), m.end()) for m in OUTPUT.finditer(output, 0, limit)]
    marks += [(m.start(), m.end()) for m in _LINE_OUTPUT.finditer(output, limit)]
    return marks[:2]


def seen_upstream(output: str) -> str:
    """What the human sees of a reply in the published protocol: what follows the first `OUTPUT:`, up to a second."""
    parts = output.split(OUTPUT_MARKER, 2)
    return parts[1] if len(parts) > 1 else output


def between(output: str, marks: list[tuple[int, int]]) -> str:
    """What follows the first of the `OUTPUT:` marks (start, end), up to the second; everything where there is none."""
    if marks:
        output = output[marks[0][1] : marks[1][0] if len(marks) > 1 else len(output)]
    return output.strip()
