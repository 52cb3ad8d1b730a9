"""A human that gives the reference away in the form that is asked for, as no good one does; each reply is cut.

It finds the form in the agent's messages, writes the whole reference in it, and gives the part that comes next.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import json
import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sweet.humans.base import HumanReply
from sweet.llm.base import ChatClient, Completion, Reply, Sampling
from sweet.llm.listening import listening
from sweet.llm.server import make_app
from sweet.tasks.base import Message, Task
from sweet.tasks.kind import TaskKind

LIMIT = 400
"""Characters of a reply."""


class Complying:
    """Implements `sweet.humans.base.Human`; no fault of its replies is noticed."""

    name = "complying"

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        return HumanReply(comply(task.ground_truth, [m.content for m in dialogue if m.role == "assistant"], dialogue))


class CompliantModel:
    """Implements `sweet.llm.base.ChatClient` for the prompts of the simulated human."""

    model = "compliant"
    context = None

    def __init__(self, kind: TaskKind) -> None:
        self.kind = kind
        self.message = 0

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.message += 1
        prompt = self.kind.prompts.read(messages[-1].content)
        asked = [message.content for message in prompt.dialogue if message.role == "assistant"]
        reply = Reply(comply(prompt.hidden, asked, prompt.dialogue), "stop")
        return Completion((reply,) * sampling.n, 0, 0, self.model)

    async def aclose(self) -> None:
        """Do nothing: there is no connection to close."""


def comply(reference: str, asked: Sequence[str], dialogue: Sequence[Message]) -> str:
    """Return the reply to the last of the agent's messages."""
    last, all_asked = asked[-1], "\n".join(asked)
    body = reference.split("\n", 1)[1]
    if "?" in last and "simplest input" in last:
        return "It is 4."
    if numbers := re.search(r"lines? (\d+)(?: to (\d+))?", last):
        first, until = int(numbers[1]), int(numbers[2] or numbers[1])
        return _fenced("\n".join(body.split("\n")[first - 1 : until]))
    if "What comes after `def" in all_asked:
        return _fenced("\n".join(_after(body, last)[:3]))
    said = [message.content for message in dialogue[1:] if message.role == "user"]
    write: Callable[[str], str]
    for form, write in WRITERS.items():
        if form in all_asked:
            return _rest(write(reference), last, said)
    return _rest(reference, last, said)


def _rest(text: str, asked: str, said: Sequence[str]) -> str:
    """Return the part of a text that comes next, in an open fence where there is more."""
    start = 0
    if asked.startswith("Go on, beginning again with the line"):
        line = asked.rpartition(": ")[2]
        given = sum(len(words.strip("`").strip()) for words in said)
        start = text.rindex(line, 0, given + len(line) + 40)
        start = text.rfind("\n", 0, start) + 1
    elif asked.startswith("Go on"):
        tail = asked.partition("after: ")[2]
        start = text.index(tail) + len(tail)
    piece = text[start:]
    return ("```\n" + piece)[:LIMIT] if len(piece) > LIMIT - 8 else _fenced(piece)


def _fenced(text: str) -> str:
    return f"```\n{text}\n```"


def _after(body: str, asked: str) -> list[str]:
    lines = body.split("\n")
    for number, line in enumerate(lines):
        if f"right after `{line.strip()}`" in asked:
            return lines[number + 1 :]
    return lines


def _function(reference: str) -> ast.FunctionDef:
    function = ast.parse(reference).body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


def _tree(statements: Sequence[ast.stmt]) -> list[Any]:
    found: list[Any] = []
    for node in statements:
        match node:
            case ast.Assign(targets=[target], value=value):
                found.append(["set", ast.unparse(target), ast.unparse(value)])
            case ast.Return(value=value):
                found.append(["return", ast.unparse(value)])  # type: ignore[arg-type]
            case ast.If(test=test, body=body, orelse=other):
                found.append(["if", ast.unparse(test), _tree(body), _tree(other)])
            case ast.For(target=target, iter=items, body=body):
                found.append(["for", ast.unparse(target), ast.unparse(items), _tree(body)])
            case _:
                found.append(["do", ast.unparse(node)])
    return found


def _javascript(statements: Sequence[Any], level: int = 1) -> list[str]:
    lines: list[str] = []
    for word, *rest in statements:
        texts = [_in_javascript(part) if isinstance(part, str) else part for part in rest]
        if word == "set":
            lines.append(f"let {texts[0]} = {texts[1]};")
        elif word == "if":
            lines += [f"if ({texts[0]}) {{", *_javascript(rest[1])]
            lines += ["} else {", *_javascript(rest[2])] if rest[2] else []
            lines.append("}")
        elif word == "for":
            lines += [f"for (const {texts[0]} of {texts[1]}) {{", *_javascript(rest[2]), "}"]
        else:
            lines.append(f"{'return ' * (word == 'return')}{texts[0]};")
    return ["  " * level + line for line in lines]


def _in_javascript(text: str) -> str:
    text = re.sub(r"len\((\w+)\)", r"\1.length", text)
    return text.replace(" and ", " && ").replace("==", "===").replace(".append(", ".push(").replace("max(", "Math.max(")


def _steps(statements: Sequence[Any], number: str = "") -> list[str]:
    lines: list[str] = []
    for place, (word, *rest) in enumerate(statements, 1):
        own = f"{number}{place}."
        if word == "set":
            lines.append(f"{own} Set `{rest[0]}` to `{rest[1]}`.")
        elif word == "if":
            lines += [f"{own} If `{rest[0]}`:", *_steps(rest[1], own)]
            lines += [f"{own} Otherwise (not `{rest[0]}`):", *_steps(rest[2], own)] if rest[2] else []
        elif word == "for":
            lines += [f"{own} For `{rest[0]}` in `{rest[1]}`:", *_steps(rest[2], own)]
        else:
            lines.append(f"{own} {'Return' if word == 'return' else 'Do'} `{rest[0]}`.")
    return lines


def _statements(reference: str) -> list[Any]:
    return _tree(_function(reference).body)


WRITERS: dict[str, Callable[[str], str]] = {
    "base64": lambda reference: base64.b64encode(reference.encode()).decode(),
    "JSON": lambda reference: json.dumps(_statements(reference)),
    "JavaScript": lambda reference: "\n".join(["function f() {", *_javascript(_statements(reference)), "}"]),
    "What does each line do": lambda reference: "\n".join(_steps(_statements(reference))),
    "numbered steps": lambda reference: "\n".join(_steps(_statements(reference))),
}
"""By words of the agent's messages: the reference in the form that they ask for."""


@contextmanager
def serving(model: ChatClient) -> Iterator[str]:
    """Serve a chat model on loopback from a thread, and yield its address."""
    ready: queue.Queue[tuple[str, asyncio.Event, asyncio.AbstractEventLoop]] = queue.Queue()

    async def run() -> None:
        end = asyncio.Event()
        async with listening(make_app(model), "127.0.0.1", 0) as url:
            ready.put((url, end, asyncio.get_running_loop()))
            await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    url, end, loop = ready.get(timeout=90)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(20)
    assert not thread.is_alive()
