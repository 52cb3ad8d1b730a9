"""The words of the code task: how agent and human are addressed, and how a raw reply is read.

The words are files, `agent.txt` and `human.txt` in the folder `texts` of this package; a folder of one's own may hold
others in their place. The human's prompt is one user message that holds the request, the reference function and the
dialogue so far, each where the file says so on a line of its own (`{request}`, `{reference}`, `{dialogue}`), indented
(see `sweet.tasks.prompt_text`). So it can be read back exactly whatever the texts contain: a human served over HTTP
learns all it must know from the prompt alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path

from sweet.errors import InputError
from sweet.tasks.base import Message, Move, Recipe
from sweet.tasks.prompt_text import INDENT, check_places, fill, indented, read_prompt

ANSWER_MARKER = "I WANT TO ANSWER:"
OUTPUT_MARKER = "OUTPUT:"
MAX_TURNS = 10
"""The agent's turns in the original protocol."""

_REQUEST = "YOUR REQUEST"
_REFERENCE = "THE FUNCTION YOU HAVE IN MIND"
_SPEAKER = {"user": "You:", "assistant": "Programmer:"}
_ROLE = {label: role for role, label in _SPEAKER.items()}

_PLACES = ("request", "reference", "dialogue")

_PAPER_ANSWER = re.compile(
    r"(?P<mark>\*{1,3}|_{1,3}|`)?I[ \t]+WANT[ \t]+TO[ \t]+ANSWER"
    r"(?:[ \t]*(?P=mark))?[ \t]*(?::(?:[ \t]*(?P=mark))?|(?=[ \t]*\n))",
    re.IGNORECASE,
)
"""The marker as models write it: any case, set off by markdown, the colon inside, outside, or missing at the end."""

_OUTPUT = re.compile(r"(?P<mark>\*{1,3}|_{1,3})OUTPUT(?:(?P=mark):|:(?P=mark))|OUTPUT:")
_LINE_OUTPUT = re.compile(rf"^[ \t>#]*(?:{_OUTPUT.pattern})", re.MULTILINE)


@dataclass(frozen=True)
class HumanPrompt:
    """What a human's prompt holds. `dialogue` has the roles `user` (the human) and `assistant` (the agent)."""

    request: str
    hidden: str
    dialogue: tuple[Message, ...]


@dataclass(frozen=True)
class Prompts:
    """The texts of one folder: the agent's system prompt, and the human's prompt with its three places."""

    agent: str
    human: str

    @classmethod
    def packaged(cls) -> Prompts:
        return _packaged()

    @classmethod
    def of(cls, folder: Path) -> Prompts:
        """The packaged texts with those of a folder in their place.

        Raises:
            InputError: the folder is none, holds neither text or something else, or a text cannot be used.
        """
        try:
            names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
        except OSError as error:
            raise InputError(f"The folder of prompts cannot be read: {error.strerror}.", path=folder) from error
        known = {f"{field.name}.txt": field.name for field in fields(cls)}
        if not names or set(names) - set(known):
            other = ", ".join(name for name in names if name not in known) or "nothing"
            raise InputError(
                f"A folder of prompts holds {' and '.join(known)} or one of them; this one holds {other}.", path=folder
            )
        texts = {known[name]: read_prompt(folder / name) for name in names}
        if "human" in texts:
            fix = "they stand for the request, the reference solution and the dialogue so far"
            check_places(texts["human"], _PLACES, folder / "human.txt", whose="human's", fix=fix)
        return replace(cls.packaged(), **texts)

    def human_prompt(self, prompt: HumanPrompt) -> str:
        """The text that asks an LLM to play the human; of the packaged texts `parse_human_prompt` is its inverse."""
        said = [line for m in prompt.dialogue for line in (_SPEAKER[m.role], indented(m.content))]
        held = {"request": [indented(prompt.request)], "reference": [indented(prompt.hidden)], "dialogue": said}
        return fill(self.human, held)


@cache
def _packaged() -> Prompts:
    folder = resources.files("sweet.tasks.code") / "texts"
    return Prompts(
        **{field.name: (folder / f"{field.name}.txt").read_text("utf-8").strip() for field in fields(Prompts)}
    )


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
    content = _seen_upstream(output) if recipe == "upstream" else _seen(output)
    parts = content.split(ANSWER_MARKER, 2) if recipe == "upstream" else _PAPER_ANSWER.split(content, 2)[::2]
    if len(parts) > 1:
        answer = parts[1] if recipe == "upstream" else parts[1].strip("\n").rstrip()
        return Move(content=content, answer=answer, ends=True)
    return Move(content=content, answer=content if last else None, ends=False)


def _seen_upstream(output: str) -> str:
    parts = output.split(OUTPUT_MARKER, 2)
    return parts[1] if len(parts) > 1 else output


def _seen(output: str) -> str:
    marks = _output_marks(output)
    if marks:
        end = marks[1][0] if len(marks) > 1 else len(output)
        output = output[marks[0][1] : end]
    return output.strip()


def _output_marks(output: str) -> list[tuple[int, int]]:
    """Where the first two markers of visible output begin and end. Behind the answer's marker stands code, in which
    only a line that starts with the marker is one."""
    answer = _PAPER_ANSWER.search(output)
    limit = answer.start() if answer else len(output)
    marks = [(m.start(), m.end()) for m in _OUTPUT.finditer(output, 0, limit)]
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
