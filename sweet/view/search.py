"""Search the dialogues of a file for a text, ignoring case, one line in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ValidationError

from sweet.errors import InputError
from sweet.regular import open_regular

STEP = 1 << 20
"""Bytes after which the search yields without a match, so that it can be stopped and its progress shown."""


class _Task(BaseModel):
    problem_description: str = ""
    hidden_information: str = ""
    ground_truth: str = ""
    test_cases: dict[str, str] = {}


class _Turn(BaseModel):
    content: str = ""
    output: str | None = None
    thought: str | None = None


class _Row(BaseModel):
    """The fields that are searched."""

    id: str
    task: _Task
    dialogue_history: list[_Turn]
    answer: str = ""

    def texts(self, *, hidden: bool) -> Iterator[str]:
        yield self.task.problem_description
        for turn in self.dialogue_history:
            yield from (turn.content, turn.output or "", turn.thought or "")
        yield self.answer
        if hidden:
            yield from (self.task.hidden_information, self.task.ground_truth, *self.task.test_cases.values())


def search(path: Path, text: str, *, hidden: bool = False) -> Iterator[tuple[float, str | None]]:
    """Yield the share of the file that was searched with the id of a match, or None between matches.

    The request, the turns of both sides, the raw replies, thoughts and the answer are searched; with `hidden` also the
    information that is hidden from the agent.

    Raises:
        InputError: a line is damaged, or the file cannot be read.
    """
    wanted = text.casefold()
    # Bytes that every matching line contains; None if JSON has several spellings of them.
    plain = text.isascii() and text.isprintable() and not set('"\\/') & set(text)
    needle = text.lower().encode() if plain else None
    seen = reported = 0
    try:
        with open_regular(path) as file:
            size = max(os.fstat(file.fileno()).st_size, 1)
            for number, line in enumerate(file, 1):
                seen += len(line)
                share = min(seen / size, 1.0)
                may_match = needle is None or needle in line.lower() or b"\\u00" in line  # \u0041 is an A
                if may_match and not line.isspace():
                    try:
                        row = _Row.model_validate_json(line)
                    except ValidationError as error:
                        if not line.endswith(b"\n"):  # it is still being written
                            return
                        reason = error.errors(include_url=False)[0]["msg"]
                        raise InputError(f"Line {number} is damaged: {reason}.", path=path) from error
                    if any(wanted in part.casefold() for part in row.texts(hidden=hidden)):
                        yield share, row.id
                if seen - reported >= STEP:
                    reported = seen
                    yield share, None
    except OSError as error:
        raise InputError(f"The dialogues cannot be read: {error.strerror}.", path=path) from error
