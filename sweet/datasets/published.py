"""Read trajectories in the published layout, of this or of other programs, and those of other formats
(`sweet.datasets.foreign`).

A file is JSON Lines with one trajectory per line, read row by row, or one JSON list of them. A row becomes a
`Trajectory`: role names of other programs are converted, missing ids and task ids are generated, thoughts in the
agent's replies are put apart (`sweet.llm.thoughts`), and everything else is kept unchanged. Errors name the line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from sweet.datasets.foreign import Format, beginning, format_of, read_inspect, read_json, read_verifiers
from sweet.errors import InputError, place_and_problem
from sweet.llm.thoughts import separate
from sweet.runs.jsonl import read_rows
from sweet.stages.base import digest_of
from sweet.tasks.base import NO_ANSWER
from sweet.tasks.trajectory import Trajectory

ROLES = {
    "assistant": "assistant",
    "agent": "assistant",
    "user": "user",
    "human": "user",
    "human_collaborator": "user",
    "tool": "tool",
}
"""The accepted role names, and the roles of `Trajectory`."""

_FORMS = "one JSON object per line, or a JSON list of objects"

_THOUGHTS = ("reasoning_content", "reasoning")
"""The fields of a turn in which servers return its thought."""


def read_trajectories(path: Path, format: Format = "published", scorer: str | None = None) -> Iterator[Trajectory]:
    """Yield the trajectories of a file in its order.

    Args:
        format: of the file; auto looks at its beginning.
        scorer: of a log of inspect_ai, whose value is the reward; None for the first.

    Raises:
        InputError: the file does not exist, is empty, or a row is invalid; with the line.
    """
    format = format_of(path) if format == "auto" else format
    reader = _Reader(path, is_list=beginning(path).startswith(b"[") and format == "published")
    if format == "verifiers":
        rows = read_verifiers(path)
    elif format == "inspect":
        rows = read_inspect(path, scorer)
    else:
        rows = enumerate(read_json(path, _FORMS), 1) if reader.is_list else read_rows(path)
    for line, row in rows:
        yield reader.trajectory(line, row)
    if not reader.count:
        raise InputError("The file contains no dialogue.", path=path, fix=_FORMS)


class _Reader:
    """Converts rows to trajectories, and checks that ids are unique and tasks of the same id are equal."""

    def __init__(self, path: Path, *, is_list: bool) -> None:
        self.path, self.is_list = path, is_list
        self.count = 0
        self.lines: dict[str, int] = {}
        self.contents: dict[str, str] = {}

    def trajectory(self, line: int, row: Any) -> Trajectory:
        if not isinstance(row, dict):
            raise self._wrong(line, "A dialogue must be a JSON object.")
        try:
            to_json(row)
        except ValueError as error:  # lone surrogates, which JSON can express but files and tokenizers cannot
            raise self._wrong(line, f"The row cannot be written as Unicode text: {error}.") from error
        fields = dict(row)
        fields["id"] = self._name(line, row.get("id"), "id") or f"{self.path.stem}-{self.count:05d}"
        fields["task"] = self._task(line, row)
        fields["dialogue_history"] = self._turns(line, row.get("dialogue_history"))
        if row.get("tools") is not None:
            try:
                fields["tools"] = [_function(tool) for tool in _list(row["tools"])]
            except (ValueError, RecursionError) as error:
                raise self._wrong(line, f"tools: {error}.") from error
        if row.get("answer") is None:
            fields["answer"] = NO_ANSWER
        if fields["answer"] == NO_ANSWER:
            fields.setdefault("outcome", "out_of_turns")
        reward = row.get("reward")
        is_number = isinstance(reward, int | float) and not isinstance(reward, bool)
        if reward is not None and not (is_number and abs(reward) <= sys.float_info.max):
            raise self._wrong(line, f"reward: {reward!r:.80} is not a finite number.")
        try:
            trajectory = Trajectory.model_validate(fields)
        except ValidationError as error:
            raise self._wrong(line, f"{place_and_problem(error)}.") from error
        if trajectory.id in self.lines:
            what = f"The id {trajectory.id!r} is already used in line {self.lines[trajectory.id]}."
            raise self._wrong(line, what, "give every dialogue a different id, or none")
        self.lines[trajectory.id] = line
        self.count += 1
        return trajectory

    def _task(self, line: int, row: dict[str, Any]) -> dict[str, Any]:
        raw = row.get("task")
        if not isinstance(raw, dict):
            raise self._wrong(line, "The dialogue has no 'task' (an object with problem_description, ground_truth).")
        task = dict(raw)
        if isinstance(task.get("test_cases"), list):
            task["test_cases"] = {f"test{number}": call for number, call in enumerate(task["test_cases"], 1)}
        for key in ("test_cases", "hidden_information", "facts"):
            if task.get(key, "") is None:
                del task[key]
        content = digest_of({key: value for key, value in task.items() if key != "id"})
        task["id"] = self._name(line, raw.get("id"), "task.id") or f"task-{content}"
        if self.contents.setdefault(task["id"], content) != content:
            what = f"The task {task['id']!r} differs from the task with the same id in a previous line."
            raise self._wrong(line, what, "give different tasks different ids, or none")
        return task

    def _turns(self, line: int, history: Any) -> list[Any]:
        if not isinstance(history, list) or not history:
            raise self._wrong(line, "The dialogue has no 'dialogue_history' (a non-empty list).")
        turns: list[Any] = []
        unanswered: list[str] = []
        for number, entry in enumerate(history):
            role = entry.get("role") if isinstance(entry, dict) else None
            known_role = ROLES.get(role) if isinstance(role, str) else None
            if known_role is None:
                roles = ", ".join(ROLES)
                raise self._wrong(line, f"dialogue_history.{number}.role: {role!r} is not one of {roles}.")
            turn = {**entry, "role": known_role}
            try:
                unanswered = _with_calls(turn, number, unanswered)
            except (ValueError, RecursionError) as error:
                raise self._wrong(line, f"dialogue_history.{number}: {error}.") from error
            turns.append(_with_thought(turn) if known_role == "assistant" else turn)
        if turns[0]["role"] != "user":
            raise self._wrong(line, "dialogue_history must begin with the human's request.")
        return turns

    def _name(self, line: int, value: Any, key: str) -> str | None:
        """Return an id as text; numbers are accepted."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise self._wrong(line, f"{key}: must be a non-empty text.")
        return str(value)

    def _wrong(self, line: int, what: str, fix: str = "correct it, or remove it") -> InputError:
        if self.is_list:
            return InputError(f"Element {line} of the list: {what}", path=self.path, fix=fix)
        return InputError(what, path=self.path, line=line, fix=fix)


def _list(value: Any) -> list[Any]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.40} is no list")
    return value


def _function(raw: Any) -> dict[str, Any]:
    """Return a tool or a call as other programs write it, with its name and the rest at one level: OpenAI's API has
    them below `function`, inspect_ai has the name there, and verifiers writes calls as texts of JSON."""
    parsed = json.loads(raw) if isinstance(raw, str) else raw
    if not isinstance(parsed, dict):
        raise ValueError(f"{raw!r:.40} is no tool and no call of one")
    function = parsed.get("function", {})
    return {**parsed, **(function if isinstance(function, dict) else {"name": function})}


def _with_calls(turn: dict[str, Any], place: int, unanswered: list[str]) -> list[str]:
    """Bring the calls of a turn into the form of `ToolCall`, and give a result the call that it answers. Return the ids
    of the calls that have no result yet.

    Raises:
        ValueError: it is the result of no call, or a call has no name.
    """
    if turn["role"] == "tool":
        answered = turn.get("tool_call_id") or next(iter(unanswered), None)
        if answered not in unanswered:
            raise ValueError(f"the result of a tool answers no call before it: {answered!r:.80}")
        turn["tool_call_id"] = answered
        return [name for name in unanswered if name != answered]
    if turn["role"] == "user" or not turn.get("tool_calls"):
        return []
    calls: list[dict[str, Any]] = []
    for number, raw in enumerate(_list(turn["tool_calls"])):
        call = _function(raw)
        arguments = call.get("arguments") or {}
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        calls.append({"id": call.get("id") or f"call-{place}-{number}", "name": call.get("name"), "arguments": text})
    turn["tool_calls"] = calls
    return [call["id"] for call in calls]


def _with_thought(turn: dict[str, Any]) -> dict[str, Any]:
    """Return a turn of the agent with its thought apart, if it is in a field of a server or in the texts."""
    turn = dict(turn)
    fields = [turn.pop(name) for name in _THOUGHTS if isinstance(turn.get(name), str)]
    if turn.get("thought") is not None:
        return turn
    raw = turn.get("content") if turn.get("output") is None else turn["output"]
    parts = separate(raw) if isinstance(raw, str) else None
    if parts is None or parts.thought is None or not parts.thought + parts.closing:  # a mark that ends the text is text
        return turn | {"thought": fields[0].strip()} if fields and fields[0] else turn
    texts = {name: separate(turn[name]).spoken for name in ("content", "output") if isinstance(turn.get(name), str)}
    return turn | texts | {"thought": parts.thought.strip()}
