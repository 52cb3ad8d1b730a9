"""The process that `sweet.view.search` starts: `python -P search_worker.py`, the question as JSON on standard input.

It reads the rollouts a line at a time and answers in lines of JSON: {"found": id}, {"seen": bytes}, {"error": words,
"line": number}, and {"done": true} at the end. It runs as a script of its own, without the package, and holds nothing
but the line that it looks at. Nothing is done here against an expression that never ends: who asked stops the process.
"""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

PULSE = 0.1
"""Seconds between two words about how far it has come."""


class _Task(BaseModel):
    problem_description: str = ""
    hidden_information: str = ""
    ground_truth: str = ""
    test_cases: dict[str, str] = {}


class _Turn(BaseModel):
    content: str = ""
    output: str | None = None


class _Row(BaseModel):
    """The fields that are searched."""

    id: str
    task: _Task
    dialogue_history: list[_Turn]
    answer: str = ""

    def texts(self, *, hidden: bool) -> Iterator[str]:
        yield self.task.problem_description
        for turn in self.dialogue_history:
            yield turn.content
            if turn.output is not None and turn.output != turn.content:
                yield turn.output
        yield self.answer
        if hidden:
            yield self.task.hidden_information
            yield self.task.ground_truth
            yield from self.task.test_cases.values()


def matcher(pattern: str, *, regex: bool) -> re.Pattern[str]:
    """What finds a text in any case, or an expression as it stands (^ and $ are those of a line).

    Raises:
        ValueError: it is no regular expression; says why.
    """
    if not regex:
        # A letter of ASCII is found as such alone, so that `may_hold` can tell by the bytes.
        return re.compile(re.escape(pattern), re.IGNORECASE | (re.ASCII if pattern.isascii() else 0))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a later Python will read otherwise
            return re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"The regular expression cannot be read: {error}.") from error


def needle_of(pattern: str, *, regex: bool) -> bytes | None:
    """The bytes that stand in each line in whose texts the pattern is found, in lower case; None where JSON may write
    it in several ways."""
    plain = not regex and pattern.isascii() and pattern.isprintable() and not set('"\\/') & set(pattern)
    return pattern.lower().encode() if plain else None


def may_hold(line: bytes, needle: bytes | None) -> bool:
    """False where the line cannot hold what is sought, so that it need not be parsed."""
    return needle is None or needle in line.lower() or b"\\u00" in line  # \u0041 is an A


def search(path: Path, pattern: str, *, regex: bool, hidden: bool) -> Iterator[dict[str, Any]]:
    """The answers, one after the other."""
    try:
        sought = matcher(pattern, regex=regex)
        needle = needle_of(pattern, regex=regex)
        yield from _found(path, sought, needle, hidden=hidden)
    except ValueError as error:
        yield {"error": str(error)}
    except OSError as error:
        yield {"error": f"{path} cannot be read: {error.strerror}."}
    yield {"done": True}


def _found(path: Path, sought: re.Pattern[str], needle: bytes | None, *, hidden: bool) -> Iterator[dict[str, Any]]:
    told, seen = time.monotonic(), 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.isspace() and may_hold(line, needle):
                try:
                    row = _Row.model_validate_json(line)
                except ValidationError as error:
                    if line.endswith(b"\n"):  # else it is torn, or being written
                        first = error.errors(include_url=False)[0]
                        yield {"error": f"{path}, line {number}, is damaged: {first['msg']}.", "line": number}
                    return
                if any(map(sought.search, row.texts(hidden=hidden))):
                    yield {"found": row.id}
            seen += len(line)
            if time.monotonic() - told > PULSE:
                told = time.monotonic()
                yield {"seen": seen}


def main() -> None:
    asked = json.load(sys.stdin)
    for answer in search(Path(asked["path"]), asked["pattern"], regex=asked["regex"], hidden=asked["hidden"]):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
