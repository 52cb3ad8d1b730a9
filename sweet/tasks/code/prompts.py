"""The words of the code task: how agent and human are addressed, and how a raw reply is read.

The words are files (sweet.tasks.prompts). The human's prompt is one user message that holds the request, the reference
function and the dialogue so far, each where the file says so on a line of its own (`{request}`, `{reference}`,
`{dialogue}`), indented (see `sweet.tasks.prompt_text`). So it can be read back exactly whatever the texts contain: a
human served over HTTP learns all it must know from the prompt alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sweet.tasks import prompts
from sweet.tasks.base import Message, Move, Recipe
from sweet.tasks.markers import ANSWER, ANSWER_MARKER, OUTPUT, between, seen_upstream
from sweet.tasks.prompt_text import INDENT, fill, indented

_REQUEST = "YOUR REQUEST"
_REFERENCE = "THE FUNCTION YOU HAVE IN MIND"
_SPEAKER = {"user": "You:", "assistant": "Programmer:"}
_ROLE = {label: role for role, label in _SPEAKER.items()}

_LINE_OUTPUT = re.compile(rf"^[ \t>#]*(?:{OUTPUT.pattern})", re.MULTILINE)


@dataclass(frozen=True)
class HumanPrompt:
    """What a human's prompt holds. `dialogue` has the roles `user` (the human) and `assistant` (the agent)."""

    request: str
    hidden: str
    dialogue: tuple[Message, ...]


class Prompts(prompts.Prompts):
    """The texts of the code task."""

    package = "sweet.tasks.code"
    places = ("request", "reference", "dialogue")

    def human_prompt(self, prompt: HumanPrompt) -> str:
        """The text that asks an LLM to play the human; of the packaged texts `parse_human_prompt` is its inverse."""
        said = [line for m in prompt.dialogue for line in (_SPEAKER[m.role], indented(m.content))]
        held = {"request": [indented(prompt.request)], "reference": [indented(prompt.hidden)], "dialogue": said}
        return fill(self.human, held)


def parse_human_prompt(text: str) -> HumanPrompt:
    """Read a prompt made by `human_prompt` back.

    Raises:
        ValueError: the text is not such a prompt.
    """
    blocks = list(_blocks(text))
    heads = [head for head, _ in blocks]
    if heads[:2] != [_REQUEST, _REFERENCE] or any(head not in _ROLE for head in heads[2:]):
        raise ValueError("this is not a prompt of the simulated human")
    dialogue = tuple(Message(role=_ROLE[head], content=body) for head, body in blocks[2:])
    return HumanPrompt(blocks[0][1], blocks[1][1], dialogue)


def read_move(output: str, *, last: bool, recipe: Recipe) -> Move:
    """What a raw reply means: what the human sees, and the answer where one is delivered.

    Recipe `upstream` splits at the exact markers wherever they stand. Recipe `paper` takes the marker in any case and
    dress, and does not mistake an `OUTPUT:` inside delivered code for its own.
    """
    content = seen_upstream(output) if recipe == "upstream" else between(output, _output_marks(output))
    parts = content.split(ANSWER_MARKER, 2) if recipe == "upstream" else ANSWER.split(content, 2)[::2]
    if len(parts) > 1:
        answer = parts[1] if recipe == "upstream" else parts[1].strip("\n").rstrip()
        return Move(content=content, answer=answer, ends=True)
    return Move(content=content, answer=content if last else None, ends=False)


def _output_marks(output: str) -> list[tuple[int, int]]:
    """Where the first two markers of visible output begin and end. Behind the answer's marker stands code, in which
    only a line that starts with the marker is one."""
    answer = ANSWER.search(output)
    limit = answer.start() if answer else len(output)
    marks = [(m.start(), m.end()) for m in OUTPUT.finditer(output, 0, limit)]
    marks += [(m.start(), m.end()) for m in _LINE_OUTPUT.finditer(output, limit)]
    return marks[:2]


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The indented blocks of a prompt, each with the line above it."""
    head, body = "", list[str]()
    for line in [*text.split("\n"), ""]:
        if line.startswith(INDENT):
            body.append(line.removeprefix(INDENT))
            continue
        if body:
            yield head, "\n".join(body)
            body = []
        head = line
