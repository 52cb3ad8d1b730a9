"""The words of the code task: how agent and human are addressed, and how a raw reply is read.

The human's prompt is one user message that holds the request, the reference function and the dialogue so far. Every
line of such a text is indented by four spaces and every line of ours starts at the margin, so the prompt can be read
back exactly whatever the texts contain: a human served over HTTP learns all it must know from the prompt alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweet.tasks.base import Message, Move, Recipe

ANSWER_MARKER = "I WANT TO ANSWER:"
OUTPUT_MARKER = "OUTPUT:"
MAX_TURNS = 10
"""The agent's turns in the original protocol."""

AGENT_SYSTEM = f"""\
You are a programmer. A person asks you for one Python function; the request leaves out details that the function needs.
You have {MAX_TURNS} turns. Use them to find out what is missing, then deliver the function.

- In each turn ask one short question about one detail. The person replies in one or two sentences.
- When you know enough, deliver: write "{ANSWER_MARKER}" and after it the complete Python code, nothing else.
- The function must have the name and the arguments of the requested signature. It is run against hidden tests.
- Your last turn must be the delivery. After it the dialogue is over.
- You may think first: what stands before "{OUTPUT_MARKER}" is kept from the person, who reads only what follows it."""

_INDENT = "    "
_REQUEST = "YOUR REQUEST"
_REFERENCE = "THE FUNCTION YOU HAVE IN MIND"
_DIALOGUE = "THE DIALOGUE SO FAR"
_SPEAKER = {"user": "You:", "assistant": "Programmer:"}
_ROLE = {label: role for role, label in _SPEAKER.items()}

_HUMAN_HEAD = """\
You play a person who wants a Python function from a programmer. You know exactly how it must behave, because you can \
see the finished function below. The programmer cannot see it."""
_HUMAN_TAIL = """\
Now reply to the programmer's last message, as the person.
- At most two sentences, in plain words. Never write code.
- Tell only what was asked about, and only what follows from the function above.
- If the function does not settle it, say that you do not know."""

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


def human_prompt(prompt: HumanPrompt) -> str:
    """The text that asks an LLM to play the human; `parse_human_prompt` is its inverse."""
    lines = [
        _HUMAN_HEAD,
        "",
        _REQUEST,
        _indented(prompt.request),
        "",
        _REFERENCE,
        _indented(prompt.hidden),
        "",
        _DIALOGUE,
    ]
    for message in prompt.dialogue:
        lines += [_SPEAKER[message.role], _indented(message.content)]
    return "\n".join([*lines, "", _HUMAN_TAIL])


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


def _indented(text: str) -> str:
    return "\n".join(_INDENT + line for line in text.split("\n"))


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The indented blocks of a prompt, each with the line above it."""
    head, body = "", list[str]()
    for line in [*text.split("\n"), ""]:
        if line.startswith(_INDENT):
            body.append(line.removeprefix(_INDENT))
            continue
        if body:
            yield head, "\n".join(body)
            body = []
        head = line


def dialogue_prompt(request: str, hidden: str, dialogue: Sequence[Message]) -> str:
    """`human_prompt` of its three parts."""
    return human_prompt(HumanPrompt(request, hidden, tuple(dialogue)))
