"""The process that `sweet.view.search` starts: `python -P search_worker.py`, with the request as JSON on stdin.

It reads the rollouts line by line and answers in lines of JSON: {"found": id, "hits": [text]}, {"seen": bytes},
{"error": message, "line": number}, and {"done": true} at the end. It runs as a standalone script without the package,
and keeps only one line in memory. It has no defence against an endless regular expression: the caller stops the
process.
"""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

PROGRESS_INTERVAL = 0.1
"""Seconds between two progress reports."""


HITS = 8
"""Most different texts that are reported of one dialogue, and most matches that are looked at in one text."""
LONGEST_HIT = 120
"""Characters of a reported text."""


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
            yield turn.content
            if turn.output is not None and turn.output != turn.content:
                yield turn.output
            if turn.thought:
                yield turn.thought
        yield self.answer
        if hidden:
            yield self.task.hidden_information
            yield self.task.ground_truth
            yield from self.task.test_cases.values()


def matcher(pattern: str, *, regex: bool) -> re.Pattern[str]:
    """Compile a text, ignoring case, or a regular expression (^ and $ match at lines).

    Raises:
        ValueError: the regular expression is invalid; the message says why.
    """
    if not regex:
        # ASCII letters match only ASCII letters, so that `may_hold` can decide by the bytes.
        return re.compile(re.escape(pattern), re.IGNORECASE | (re.ASCII if pattern.isascii() else 0))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about syntax that later versions of Python will change
            return re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"The regular expression cannot be read: {error}.") from error


def needle_of(pattern: str, *, regex: bool) -> bytes | None:
    """Return bytes, in lower case, that every matching line contains; None if JSON has several spellings of them."""
    plain = not regex and pattern.isascii() and pattern.isprintable() and not set('"\\/') & set(pattern)
    return pattern.lower().encode() if plain else None


def may_hold(line: bytes, needle: bytes | None) -> bool:
    """Return False if the line cannot match, so that it does not have to be parsed."""
    return needle is None or needle in line.lower() or b"\\u00" in line  # \u0041 is an A


def search(path: Path, pattern: str, *, regex: bool, hidden: bool) -> Iterator[dict[str, Any]]:
    """Yield the answers."""
    try:
        expression = matcher(pattern, regex=regex)
        needle = needle_of(pattern, regex=regex)
        yield from _matches(path, expression, needle, hidden=hidden)
    except ValueError as error:
        yield {"error": str(error)}
    except OSError as error:
        yield {"error": f"{path} cannot be read: {error.strerror}."}
    yield {"done": True}


def hits(expression: re.Pattern[str], texts: Iterator[str]) -> list[str]:
    """Return some of the texts that match, to be marked where they are shown; without white space around them."""
    found = (match[0][:LONGEST_HIT].strip() for text in texts for match in islice(expression.finditer(text), HITS))
    return list(dict.fromkeys(hit for hit in found if hit))[:HITS]


def _matches(
    path: Path, expression: re.Pattern[str], needle: bytes | None, *, hidden: bool
) -> Iterator[dict[str, Any]]:
    reported, seen = time.monotonic(), 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.isspace() and may_hold(line, needle):
                try:
                    row = _Row.model_validate_json(line)
                except ValidationError as error:
                    if line.endswith(b"\n"):  # otherwise the line is incomplete or still being written
                        first = error.errors(include_url=False)[0]
                        yield {"error": f"{path}, line {number}, is damaged: {first['msg']}.", "line": number}
                    return
                if any(map(expression.search, row.texts(hidden=hidden))):
                    yield {"found": row.id, "hits": hits(expression, row.texts(hidden=hidden))}
            seen += len(line)
            if time.monotonic() - reported > PROGRESS_INTERVAL:
                reported = time.monotonic()
                yield {"seen": seen}


def main() -> None:
    request = json.load(sys.stdin)
    for answer in search(Path(request["path"]), request["pattern"], regex=request["regex"], hidden=request["hidden"]):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
