"""Read trajectories in the published layout, of this or of other programs, and those of other formats
(`sweet.datasets.foreign`).

A file is JSON Lines with one trajectory per line, or one JSON list of them; both are read row by row, so that a file
may be larger than memory. A row becomes a `Trajectory`: role names of other programs are converted, missing ids and
task ids are generated, thoughts in the agent's replies are put apart (`sweet.llm.thoughts`), and everything else is
kept unchanged. Errors name the line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError
from pydantic_core import to_json

from sweet.datasets.foreign import Format, format_of, read_inspect, read_verifiers
from sweet.errors import InputError
from sweet.llm.thoughts import separate
from sweet.runs.jsonl import no_such_file, read_rows
from sweet.stages.base import digest_of
from sweet.tasks.base import NO_ANSWER
from sweet.tasks.trajectory import Trajectory

ROLES = {
    "assistant": "assistant",
    "agent": "assistant",
    "user": "user",
    "human": "user",
    "human_collaborator": "user",
}
"""The accepted role names, and the roles of `Trajectory`."""

_THOUGHTS = ("reasoning_content", "reasoning")
"""The fields of a turn in which servers return its thought."""

CHUNK = 1 << 20
"""Characters read at once from a JSON list."""


def read_trajectories(path: Path, format: Format = "published", scorer: str | None = None) -> Iterator[Trajectory]:
    """Yield the trajectories of a file in its order.

    Args:
        format: of the file; auto looks at its beginning.
        scorer: of a log of inspect_ai, whose value is the reward; None for the first.

    Raises:
        InputError: the file does not exist, is empty, or a row is invalid; with the line.
    """
    reader = _Reader(path)
    format = format_of(path) if format == "auto" else format
    rows: Iterator[tuple[int, Any]]
    if format == "verifiers":
        rows = read_verifiers(path)
    elif format == "inspect":
        rows = read_inspect(path, scorer)
    else:
        rows = json_list(path) if _first_character(path) == "[" else read_rows(path)
    for line, row in rows:
        yield reader.trajectory(line, row)
    if not reader.count:
        raise InputError("The file contains no dialogue.", path=path, fix="one JSON object per line, or a JSON list")


class _Reader:
    """Converts rows to trajectories, and checks that ids are unique and tasks of the same id are equal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.lines: dict[str, int] = {}
        self.contents: dict[str, str] = {}

    def trajectory(self, line: int, row: Any) -> Trajectory:
        if not isinstance(row, dict):
            raise self._wrong(line, "A dialogue must be a JSON object.")
        self._check_text(line, row)
        fields = dict(row)
        fields["id"] = self._name(line, row.get("id"), "id") or f"{self.path.stem}-{self.count:05d}"
        fields["task"] = self._task(line, row)
        fields["dialogue_history"] = self._turns(line, row.get("dialogue_history"))
        if row.get("answer") is None:
            fields["answer"] = NO_ANSWER
        if fields["answer"] == NO_ANSWER:
            fields.setdefault("outcome", "out_of_turns")
        self._check_reward(line, row.get("reward"))
        try:
            trajectory = Trajectory.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise self._wrong(line, f"{_dotted(first['loc'])}: {first['msg']}.") from error
        if trajectory.id in self.lines:
            raise InputError(
                f"The id {trajectory.id!r} is already used in line {self.lines[trajectory.id]}.",
                path=self.path,
                line=line,
                fix="give every dialogue a different id, or none",
            )
        self.lines[trajectory.id] = line
        self.count += 1
        return trajectory

    def _task(self, line: int, row: dict[str, Any]) -> dict[str, Any]:
        given = row.get("task")
        if not isinstance(given, dict):
            raise self._wrong(line, "The dialogue has no 'task' (an object with problem_description, ground_truth).")
        task = dict(given)
        if isinstance(task.get("test_cases"), list):
            task["test_cases"] = {f"test{number}": call for number, call in enumerate(task["test_cases"], 1)}
        for key in ("test_cases", "hidden_information", "facts"):
            if task.get(key, "") is None:
                del task[key]
        content = digest_of({key: value for key, value in task.items() if key != "id"})
        task["id"] = self._name(line, given.get("id"), "task.id") or f"task-{content}"
        if self.contents.setdefault(task["id"], content) != content:
            raise InputError(
                f"The task {task['id']!r} differs from the task with the same id in a previous line.",
                path=self.path,
                line=line,
                fix="give different tasks different ids, or none",
            )
        return task

    def _turns(self, line: int, given: Any) -> list[Any]:
        if not isinstance(given, list) or not given:
            raise self._wrong(line, "The dialogue has no 'dialogue_history' (a non-empty list).")
        turns = []
        for number, entry in enumerate(given):
            role = entry.get("role") if isinstance(entry, dict) else None
            known_role = ROLES.get(role) if isinstance(role, str) else None
            if known_role is None:
                known = ", ".join(ROLES)
                raise self._wrong(line, f"dialogue_history.{number}.role: {role!r} is not one of {known}.")
            turn = {**entry, "role": known_role}
            turns.append(_with_thought(turn) if known_role == "assistant" else turn)
        if turns[0]["role"] != "user":
            raise self._wrong(line, "dialogue_history must begin with the human's request.")
        return turns

    def _name(self, line: int, given: Any, key: str) -> str | None:
        """Return an id as text; numbers are accepted."""
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, str | int) or given == "":
            raise self._wrong(line, f"{key}: must be a non-empty text.")
        return str(given)

    def _check_text(self, line: int, row: dict[str, Any]) -> None:
        """Reject lone surrogates, which JSON can express but files and tokenizers cannot."""
        try:
            to_json(row)
        except ValueError as error:
            raise self._wrong(line, f"The row cannot be written as Unicode text: {error}.") from error

    def _check_reward(self, line: int, reward: Any) -> None:
        if reward is None:
            return
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
            raise self._wrong(line, f"reward: {reward!r} is not a finite number.")

    def _wrong(self, line: int, what: str) -> InputError:
        return InputError(what, path=self.path, line=line, fix="correct this line, or remove it")


def _with_thought(turn: dict[str, Any]) -> dict[str, Any]:
    """Return a turn of the agent with its thought apart, if it is in a field of a server or in the texts."""
    turn = dict(turn)
    fields = [turn.pop(name) for name in _THOUGHTS if isinstance(turn.get(name), str)]
    if turn.get("thought") is not None:
        return turn
    raw = turn.get("content") if turn.get("output") is None else turn["output"]
    parts = separate(raw) if isinstance(raw, str) else None
    if parts is None or parts.thought is None:
        return turn | {"thought": fields[0].strip()} if fields and fields[0] else turn
    said = {name: separate(turn[name]).spoken for name in ("content", "output") if isinstance(turn.get(name), str)}
    return turn | said | {"thought": parts.thought.strip()}


def _dotted(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in loc)


def _first_character(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line in file:
                if text := line.lstrip():
                    return text[0]
    except FileNotFoundError as error:
        raise no_such_file(path) from error
    except IsADirectoryError as error:
        raise InputError("This is a folder, not a file.", path=path) from error
    except UnicodeDecodeError as error:
        raise InputError("The file is not UTF-8 text.", path=path) from error
    return ""


def json_list(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the elements of a file's JSON list, each with the line it begins in.

    The text is read in chunks; an element is decoded as soon as it is complete. The text doubles between two attempts
    to decode an element, so that a large one costs at most twice its length.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        source = _Source(path, file)
        source.skip_space()
        source.expect("[", "The file is not a JSON list.")
        source.skip_space()
        more = source.peek() != "]"
        if not more:
            source.take(1)
        while more:
            source.skip_space()
            line = source.line
            yield line, source.decode()
            source.skip_space()
            more = source.expect(",]", "The list continues without a comma, or ends too early.") == ","
        source.skip_space()
        if source.peek():
            raise source.wrong("There is text after the end of the list.")


class _Source:
    """The text of a file, read in chunks, and the line of the current position."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self.path = path
        self.file = file
        self.text = ""
        self.at = 0
        self.line = 1
        self.ended = False
        self.decoder = json.JSONDecoder()

    def more(self, size: int = CHUNK) -> bool:
        """Read a chunk. Return False at the end of the file."""
        try:
            read = self.file.read(size)
        except UnicodeDecodeError as error:
            raise self.wrong("The file is not UTF-8 text.") from error
        self.text, self.at = self.text[self.at :] + read, 0
        self.ended = not read
        return not self.ended

    def peek(self) -> str:
        while self.at >= len(self.text) and not self.ended:
            self.more()
        return self.text[self.at : self.at + 1]

    def take(self, count: int) -> str:
        taken = self.text[self.at : self.at + count]
        self.line += taken.count("\n")
        self.at += count
        return taken

    def skip_space(self) -> None:
        while (char := self.peek()) and char in " \t\r\n":
            self.take(1)

    def expect(self, characters: str, what: str) -> str:
        char = self.peek()
        if not char or char not in characters:
            raise self.wrong(what)
        return self.take(1)

    def decode(self) -> Any:
        """Return the JSON value at the position. It needs text after its end: a number at the end may continue."""
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.at)
                if end < len(self.text) or self.ended:
                    break
            except json.JSONDecodeError as error:
                if self.ended:
                    line = self.line + self.text.count("\n", self.at, error.pos)
                    raise InputError(f"The JSON is broken: {error.msg}.", path=self.path, line=line) from error
            except RecursionError as error:
                raise self.wrong("The JSON is nested too deeply.") from error
            self.more(max(CHUNK, len(self.text) - self.at))
        self.take(end - self.at)
        return value

    def wrong(self, what: str) -> InputError:
        return InputError(
            what, path=self.path, line=self.line, fix="one JSON object per line, or a JSON list of objects"
        )
