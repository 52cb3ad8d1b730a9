"""Dialogues in the files of other programs, as rows of the published layout: results of verifiers, logs of inspect_ai.

    verifiers   `traces.jsonl` of interface v1, one episode a line, each trace of which is a dialogue, except those of
                agents that are not trained; and `results.jsonl` of earlier versions, one rollout a line
    inspect     a log in JSON, of which each sample is a dialogue

The task is the one that an environment exported by this program records. Of any other it has the first message of the
user as its request and the reference answer (`answer`, `target`) as its reference, and no tests: such dialogues can be
viewed, labelled by their rewards and learned from, but not scored again. Calls of tools and their results are turns.

Nothing of such a file is trusted: each value is taken only if it has the type that it must have.
"""

from __future__ import annotations

import json
import math
import os
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

from sweet.errors import InputError
from sweet.regular import open_regular
from sweet.runs.jsonl import no_such_file, read_rows

Format = Literal["auto", "published", "verifiers", "inspect"]

LARGEST_JSON = 1 << 29
"""Bytes of a file that is JSON as a whole at most: it is read at once, and takes a multiple of that in memory."""
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""The values of inspect_ai's grades: correct, incorrect, partially correct, no answer."""

_SYSTEM = ("system", "developer")
"""The roles of messages that are no turns."""

Row = tuple[int, dict[str, Any]]


def beginning(path: Path) -> bytes:
    """Return the first bytes of a file, without blanks and the mark of Unicode before them.

    Raises:
        InputError: there is no such file, or it is a folder, a pipe or a device.
    """
    try:
        with open_regular(path) as file:
            return file.read(4096).removeprefix(BOM_UTF8).lstrip()
    except FileNotFoundError as error:
        raise no_such_file(path) from error


def format_of(path: Path) -> Format:
    """Return the format of a file by its first bytes; `published` where it is none of the others.

    Raises:
        InputError: it cannot be read.
    """
    head = beginning(path)
    if head.startswith(b"PK"):
        return "inspect"
    try:
        first = next((row for _, row in read_rows(path)), {})
    except InputError:  # no JSON Lines: a list, or a log that is indented
        is_log = head.startswith(b"{") and b'"eval"' in head and b'"version"' in head
        return "inspect" if is_log else "published"
    if isinstance(first.get("samples"), list) and isinstance(first.get("eval"), dict):
        return "inspect"
    is_verifiers = isinstance(first.get("traces"), list) or {"prompt", "completion"} <= first.keys()
    return "verifiers" if is_verifiers else "published"


def read_json(path: Path, fix: str) -> Any:
    """Return the value of a file that is JSON as a whole.

    Raises:
        InputError: the file is larger than `LARGEST_JSON`, or no JSON.
    """
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_JSON:
                what, smaller = "The file is larger than 512 MiB.", "split it, or one JSON object per line"
                raise InputError(what, path=path, fix=smaller)
            return json.load(file)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise InputError(f"The file is no JSON: {error}.", path=path, line=line, fix=fix) from error


def read_verifiers(path: Path) -> Iterator[Row]:
    """Yield the dialogues of `traces.jsonl` or `results.jsonl`, with their lines.

    Raises:
        InputError: a line is no result of verifiers, or has no reference.
    """
    samples: Counter[str] = Counter()
    for line, row in read_rows(path):
        place, traces = _Place(path, line), row.get("traces")
        for dialogue in _traces(place, traces) if isinstance(traces, list) else [_rollout(place, row)]:
            name = str(dialogue["task"].get("id", line))
            yield line, dialogue | {"sample": samples[name]}
            samples[name] += 1


@dataclass(frozen=True)
class _Place:
    """Where a dialogue stands in a file; makes its parts, and the errors that name the place."""

    path: Path
    line: int

    def wrong(self, what: str, fix: str | None = None) -> InputError:
        return InputError(what, path=self.path, line=self.line, fix=fix)

    def dialogue(
        self,
        messages: Sequence[Any],
        request: Any,
        own_task: Mapping[str, Any],
        named: Mapping[str, Any],
        replies: Sequence[Any] = (),
    ) -> dict[str, Any]:
        """Return the task, the turns, the answer and the system prompt of a dialogue.

        Args:
            request: the content of its opening message, where there are no messages.
            own_task: if it is one of this program; else it is made of the request and the reference answer.
            named: what else is known of the task: `id` or `name`, and `answer`.
            replies: the agent's replies as it wrote them, in their order, where `messages` may have a part of each.
        """
        system, turns = self._turns(messages, replies)
        turns = turns or [{"role": "user", "content": self._text(request)}]
        last = turns[-1]
        is_reply = last["role"] == "assistant" and not last.get("tool_calls")
        answer = last["content"] if is_reply and last["content"] else None
        task = self._task(own_task, named, turns[0]["content"])
        return {"task": task, "dialogue_history": turns, "answer": answer, "agent_system": system or ""}

    def _turns(self, messages: Sequence[Any], replies: Sequence[Any]) -> tuple[str | None, list[dict[str, Any]]]:
        """Return the system prompt, None without one, and the turns from the first message of the user on."""
        system: str | None = None
        turns: list[dict[str, Any]] = []
        raw = iter(replies)
        for message in messages:
            role = message.get("role") if isinstance(message, dict) else None
            if role not in (*_SYSTEM, "user", "assistant", "tool"):
                raise self.wrong(f"A dialogue has no messages of the role {role!r:.40}.", "leave it out")
            text = self._text(message.get("content"))
            if role in _SYSTEM:
                system = text if system is None else f"{system}\n\n{text}"
            elif role == "user":
                turns.append({"role": "user", "content": text})
            elif role == "tool":
                failed = {"is_error": True} if message.get("error") else {}
                turns.append({"role": "tool", "content": text, "tool_call_id": message.get("tool_call_id"), **failed})
            elif turns:
                whole = next(raw, message)
                turn = {"role": "assistant", "content": text, "output": self._text(whole.get("content"))}
                turn |= {"tool_calls": message["tool_calls"]} if message.get("tool_calls") else {}
                thought = whole.get("reasoning_content") or _reasoning(whole.get("content"))
                turns.append(turn | ({"reasoning_content": thought} if isinstance(thought, str) else {}))
            else:
                raise self.wrong("The dialogue does not begin with a message of the user.")
        return system, turns

    def _text(self, content: Any) -> str:
        """Return the text of a message's content: itself, or that of its parts."""
        if content is None or isinstance(content, str):
            return content or ""
        if isinstance(content, list):
            parts = [part for part in content if isinstance(part, dict) and part.get("type") != "reasoning"]
            texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
            if len(texts) == len(parts):
                return "\n".join(texts)
        raise self.wrong("A message is not text.", "leave dialogues with pictures out")

    def _task(self, own_task: Mapping[str, Any], named: Mapping[str, Any], request: str) -> dict[str, Any]:
        if all(isinstance(own_task.get(name), str) for name in ("problem_description", "ground_truth")):
            return dict(own_task)
        answer = named.get("answer")
        if not isinstance(answer, str | int | float) or isinstance(answer, bool) or not str(answer).strip():
            what = "The task has no reference answer, which a critic reads."
            raise self.wrong(what, 'add "answer" (verifiers) or "target" (inspect_ai) to the task')
        name = named.get("id") if named.get("id") is not None else named.get("name")
        task = {"problem_description": request, "ground_truth": str(answer)}
        usable = isinstance(name, str | int) and not isinstance(name, bool) and str(name)
        return {"id": str(name), **task} if usable else task


def _reasoning(content: Any) -> str | None:
    parts = content if isinstance(content, list) else []
    texts = [part.get("reasoning") for part in parts if isinstance(part, dict) and part.get("type") == "reasoning"]
    return "\n".join(text for text in texts if isinstance(text, str) and text) or None


def _traces(place: _Place, traces: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for trace in traces:
        if not isinstance(trace, dict):
            raise place.wrong("A trace must be an object.")
        if _dict(trace, "agent").get("trainable") is not False:
            yield _trace(place, trace)


def _trace(place: _Place, trace: Mapping[str, Any]) -> dict[str, Any]:
    data, info = _dict(_dict(trace, "task"), "data"), _dict(_dict(trace, "info"), "sweet")
    messages, replies = _branch(place, _list(trace, "nodes"))
    row = place.dialogue(messages, data.get("prompt"), _dict(data, "row"), data, replies)
    if isinstance(data.get("system_prompt"), str) and data["system_prompt"]:
        row["agent_system"] = data["system_prompt"]
    row["reward"] = _weighted(_dict(trace, "rewards"))
    row |= {name: info[name] for name in ("outcome", "fault", "human", "answer") if isinstance(info.get(name), str)}
    if isinstance(trace.get("id"), str):
        row["id"] = trace["id"]
    if trace.get("ok") is False:
        last = next((error for error in reversed(_list(trace, "errors")) if isinstance(error, dict)), {})
        row |= {"outcome": "agent_error", "error": f"{last.get('type', 'error')}: {last.get('message', '')}"}
    return row


def _branch(place: _Place, nodes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the messages on the way to the last node, and the messages that the model sampled, in their order."""
    if not all(isinstance(node, dict) and isinstance(node.get("message"), dict) for node in nodes):
        raise place.wrong("The nodes of a trace must be objects with a message.")
    messages = []
    at = len(nodes) - 1
    while at >= 0:
        messages.append(nodes[at]["message"])
        parent = nodes[at].get("parent")
        before = parent if isinstance(parent, int) and not isinstance(parent, bool) else -1
        if not -1 <= before < at:
            raise place.wrong(f"The parent of node {at} is not before it.")
        at = before
    return messages[::-1], [node["message"] for node in nodes if node.get("sampled") is True]


def _weighted(rewards: Mapping[str, Any]) -> float | None:
    """Return the weighted sum of a trace's rewards; None if there is none, or one was not computed."""
    total = 0.0
    for reward in rewards.values():
        score, weight = (reward.get(name) if isinstance(reward, dict) else None for name in ("score", "weight"))
        if not (_is_number(score) and _is_number(weight)):
            return None
        total += score * weight
    return total if rewards else None


def _rollout(place: _Place, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of `results.jsonl`."""
    prompt, completion = row.get("prompt"), row.get("completion")
    if not isinstance(prompt, list) or not isinstance(completion, list):
        what = "The line is no result of verifiers: it has neither traces nor prompt and completion."
        raise place.wrong(what, "traces.jsonl or results.jsonl")
    messages = [*prompt, *completion]
    if all(isinstance(message, dict) and message.get("role") in _SYSTEM for message in messages):
        raise place.wrong("The rollout has no message.")
    named = {"id": row.get("example_id", row.get("id")), "answer": row.get("answer")}
    reward = row.get("reward")
    dialogue = place.dialogue(messages, None, _dict(row, "info"), named)
    return dialogue | {"reward": reward if _is_number(reward) else None}


def read_inspect(path: Path, scorer: str | None = None) -> Iterator[Row]:
    """Yield the samples of a log of inspect_ai, with their numbers from 1.

    Args:
        scorer: whose value is the reward; None for the first of each sample.

    Raises:
        InputError: the file is no such log, a sample has no target, or has no score of `scorer`.
    """
    for number, sample in enumerate(_samples(path), 1):
        place = _Place(path, number)
        if not isinstance(sample, dict):
            raise place.wrong("A sample must be an object.")
        yield number, _sample(place, sample, scorer)


def _sample(place: _Place, sample: Mapping[str, Any], scorer: str | None) -> dict[str, Any]:
    target, epoch = sample.get("target"), sample.get("epoch")
    answer = "\n".join(map(str, target)) if isinstance(target, list) else target
    named = {"id": sample.get("id"), "answer": answer}
    dialogue = place.dialogue(_list(sample, "messages"), sample.get("input"), _dict(sample, "metadata"), named)
    sampled = epoch if isinstance(epoch, int) and not isinstance(epoch, bool) and epoch > 0 else 1
    dialogue |= {"id": f"{dialogue['task'].get('id', place.line)}-e{sampled}", "sample": sampled - 1}
    scores, error = _dict(sample, "scores"), sample.get("error")
    if isinstance(error, dict):
        dialogue |= {"outcome": "agent_error", "error": str(error.get("message", "error"))}
        scorer = scorer if scorer in scores else None
    name = scorer or next(iter(scores), None)
    if name is not None and name not in scores:
        names = ", ".join(sorted(map(str, scores))) or "none"
        raise place.wrong(f"Sample {place.line} has no score {name}; it has: {names}.", "--score NAME")
    return dialogue | {"reward": None if name is None else _grade(scores[name])}


def _grade(score: Any) -> float | None:
    """Return the reward of a score: a number as it is, a grade by its value, yes and no as 1 and 0."""
    value = score.get("value") if isinstance(score, dict) else None
    if isinstance(value, bool) or _is_number(value):
        return float(value)
    try:
        number = _GRADES[value] if value in _GRADES else float(value) if isinstance(value, str) else math.nan
    except (ValueError, TypeError):
        return None
    return number if math.isfinite(number) else None


def _samples(path: Path) -> list[Any]:
    log = read_json(path, "a log of inspect_ai in JSON (inspect log convert --to json writes one of an .eval file)")
    samples = log.get("samples") if isinstance(log, dict) else None
    if not isinstance(samples, list):
        raise InputError("The log has no samples.", path=path, fix="a log that was written with its samples")
    return samples


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _dict(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object of a row; an empty one for what is none."""
    value = row.get(name)
    return value if isinstance(value, dict) else {}


def _list(row: Mapping[str, Any], name: str) -> list[Any]:
    """Return a list of a row; an empty one for what is none."""
    value = row.get(name)
    return value if isinstance(value, list) else []
