"""Dialogues in the files of other programs, as rows of the published layout: results of verifiers, logs of inspect_ai.

    verifiers   `traces.jsonl` of interface v1, one episode a line, each trace of which is a dialogue, except those of
                agents that are not trained; and `results.jsonl` of earlier versions, one rollout a line
    inspect     a log in JSON or in the format `.eval`, of which each sample is a dialogue

The task is the one that an environment exported by this program records. Of any other it has the first message of the
user as its request and the reference answer (`answer`, `target`) as its reference, and no tests: such dialogues can be
viewed, labelled by their rewards and learned from, but not scored again. A dialogue is text of two sides, so calls of
tools are refused.

Nothing of such a file is trusted: each value is taken only if it has the type that it must have.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeGuard

from sweet.errors import InputError
from sweet.installation import install_command
from sweet.runs.jsonl import LONGEST_LINE, no_such_file, read_rows

Format = Literal["auto", "published", "verifiers", "inspect"]

LARGEST_LOG = 1 << 31
"""Bytes of a log in JSON at most: it is read at once."""
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""The values of inspect_ai's grades: correct, incorrect, partially correct, no answer."""

Row = tuple[int, dict[str, Any]]


def format_of(path: Path) -> Format:
    """Return the format of a file by its first bytes; `published` where it is none of the others.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
        if head.startswith(b"PK"):
            return "inspect"
        first = next((row for _, row in read_rows(path)), {})
    except FileNotFoundError as error:
        raise no_such_file(path) from error
    except IsADirectoryError as error:
        raise InputError("This is a folder, not a file.", path=path, fix="name a file of dialogues") from error
    except InputError:  # no JSON Lines: a list, or a log that is indented
        return "inspect" if _is_log(path) else "published"
    if _of(first, "samples", list) is not None and _of(first, "eval", dict) is not None:
        return "inspect"
    if _of(first, "traces", list) is not None or {"prompt", "completion"} <= first.keys():
        return "verifiers"
    return "published"


def _is_log(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4096)
    return head.lstrip().startswith(b"{") and b'"eval"' in head and b'"version"' in head


def read_verifiers(path: Path) -> Iterator[Row]:
    """Yield the dialogues of `traces.jsonl` or `results.jsonl`, with their lines.

    Raises:
        InputError: a line is no result of verifiers, or has calls of tools or no reference.
    """
    samples: Counter[str] = Counter()
    for line, row in read_rows(path):
        traces = _of(row, "traces", list)
        found = [_rollout(path, line, row)] if traces is None else _traces(path, line, traces)
        for dialogue in found:
            name = str(dialogue["task"].get("id", line))
            dialogue["sample"] = samples[name]
            samples[name] += 1
            yield line, dialogue


def _traces(path: Path, line: int, traces: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for trace in traces:
        if not isinstance(trace, dict):
            raise InputError("A trace must be an object.", path=path, line=line)
        if (_of(trace, "agent", dict) or {}).get("trainable") is not False:
            yield _trace(path, line, trace)


def _trace(path: Path, line: int, trace: Mapping[str, Any]) -> dict[str, Any]:
    data = _of(_of(trace, "task", dict) or {}, "data", dict) or {}
    own = _of(_of(trace, "info", dict) or {}, "sweet", dict) or {}
    messages, replies = _branch(path, line, _of(trace, "nodes", list) or [])
    system, turns = _turns(path, line, messages, replies)
    if not turns:
        turns = [{"role": "user", "content": _text(path, line, data.get("prompt"))}]
    task = _task(path, line, _of(data, "row", dict), data, turns[0]["content"])
    found: dict[str, Any] = {"task": task, "dialogue_history": turns, "answer": _said_last(turns)}
    found |= {"agent_system": _of(data, "system_prompt", str) or system or ""}
    found |= {"reward": _rewards(_of(trace, "rewards", dict) or {})}
    found |= {name: own[name] for name in ("outcome", "fault", "human", "answer") if isinstance(own.get(name), str)}
    if (name := _of(trace, "id", str)) is not None:
        found["id"] = name
    if trace.get("ok") is False:
        errors = [one for one in _of(trace, "errors", list) or [] if isinstance(one, dict)]
        last = errors[-1] if errors else {}
        found |= {"outcome": "agent_error", "error": f"{last.get('type', 'error')}: {last.get('message', '')}"}
    return found


def _branch(path: Path, line: int, nodes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the messages on the way to the last node, and the messages that the model sampled, in their order."""
    if not all(isinstance(node, dict) and isinstance(node.get("message"), dict) for node in nodes):
        raise InputError("The nodes of a trace must be objects with a message.", path=path, line=line)
    messages = []
    place = len(nodes) - 1
    while place >= 0:
        messages.append(nodes[place]["message"])
        parent = nodes[place].get("parent")
        before = parent if isinstance(parent, int) and not isinstance(parent, bool) else -1
        if not -1 <= before < place:
            raise InputError(f"The parent of node {place} is not before it.", path=path, line=line)
        place = before
    return messages[::-1], [node["message"] for node in nodes if node.get("sampled") is True]


def _rollout(path: Path, line: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of `results.jsonl`."""
    prompt, completion = (_of(row, name, list) for name in ("prompt", "completion"))
    if prompt is None or completion is None:
        raise InputError(
            "The line is no result of verifiers: it has neither traces nor prompt and completion.",
            path=path,
            line=line,
            fix="traces.jsonl or results.jsonl",
        )
    system, turns = _turns(path, line, [*prompt, *completion])
    if not turns:
        raise InputError("The rollout has no message.", path=path, line=line)
    info = _of(row, "info", dict) or {}
    named = {"id": row.get("example_id", row.get("id")), "answer": row.get("answer")}
    task = _task(path, line, info, named, turns[0]["content"])
    reward = row.get("reward")
    return {
        "task": task,
        "dialogue_history": turns,
        "answer": _said_last(turns),
        "agent_system": system or "",
        "reward": reward if _is_number(reward) else None,
    }


def read_inspect(path: Path, scorer: str | None = None) -> Iterator[Row]:
    """Yield the samples of a log of inspect_ai, with their numbers from 1.

    Args:
        scorer: whose value is the reward; None for the first of each sample.

    Raises:
        InputError: the file is no such log, a sample has calls of tools or no target, or has no score of `scorer`.
    """
    for number, sample in enumerate(_samples(path), 1):
        if not isinstance(sample, dict):
            raise InputError("A sample must be an object.", path=path, line=number)
        yield number, _sample(path, number, sample, scorer)


def _samples(path: Path) -> Iterator[Any]:
    if zipfile.is_zipfile(path):
        yield from _zipped(path)
        return
    if path.stat().st_size > LARGEST_LOG:
        raise InputError("The log is larger than 2 GiB.", path=path, fix="write it in the format eval")
    try:
        log = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"The file is no JSON: {error}.", path=path, fix="a log of inspect_ai") from error
    samples = log.get("samples") if isinstance(log, dict) else None
    if not isinstance(samples, list):
        raise InputError("The log has no samples.", path=path, fix="a log that was written with its samples")
    yield from samples


def _zipped(path: Path) -> Iterator[Any]:
    """Yield the samples of an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [one for one in archive.infolist() if one.filename.startswith("samples/")]
            if not entries:
                raise InputError("The log has no samples.", path=path, fix="a log that was written with its samples")
            for entry in entries:
                yield json.loads(_content(path, archive, entry))
    except (zipfile.BadZipFile, ValueError, RecursionError, EOFError, OSError) as error:
        raise InputError(f"The archive cannot be read: {error}.", path=path, fix=_CONVERT) from error


_CONVERT = "write the log as JSON (inspect log convert)"
_ZSTANDARD = 93
"""The number of this compression in archives; Python's zipfile reads it from version 3.14 on."""
_LOCAL_HEADER = struct.Struct("<26xHH")
"""The head of an entry: its last fields are the lengths of the name and of the extra field that follow it."""


def _content(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return an entry of an archive, of which no more is decompressed than a line of a run may be long."""
    if entry.compress_type != _ZSTANDARD:
        with archive.open(entry) as file:
            text = file.read(LONGEST_LINE + 1)
    else:
        try:
            import zstandard
        except ImportError as error:
            what = "The log is compressed by Zstandard, and the package zstandard is not installed."
            raise InputError(what, path=path, fix=f"{install_command('data')}; or {_CONVERT}") from error
        with path.open("rb") as file:
            file.seek(entry.header_offset)
            name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            file.seek(name + extra, os.SEEK_CUR)
            compressed = file.read(min(entry.compress_size, LONGEST_LINE))
        try:
            with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(compressed)) as reader:
                text = reader.read(LONGEST_LINE + 1)
        except zstandard.ZstdError as error:
            raise InputError(f"The archive cannot be read: {error}.", path=path, fix=_CONVERT) from error
    if len(text) > LONGEST_LINE:
        raise InputError(f"The sample {entry.filename} is larger than 64 MiB.", path=path, fix="leave it out")
    return text


def _sample(path: Path, number: int, sample: Mapping[str, Any], scorer: str | None) -> dict[str, Any]:
    system, turns = _turns(path, number, _of(sample, "messages", list) or [])
    if not turns:
        turns = [{"role": "user", "content": _text(path, number, sample.get("input"))}]
    target = sample.get("target")
    answer = "\n".join(map(str, target)) if isinstance(target, list) else target
    name = sample.get("id")
    metadata = _of(sample, "metadata", dict) or {}
    task = _task(path, number, metadata, {"id": name, "answer": answer}, turns[0]["content"])
    epoch = sample.get("epoch")
    sampled = epoch if isinstance(epoch, int) and not isinstance(epoch, bool) and epoch > 0 else 1
    found: dict[str, Any] = {
        "id": f"{task.get('id', number)}-e{sampled}",
        "task": task,
        "dialogue_history": turns,
        "answer": _said_last(turns),
        "agent_system": system or "",
        "sample": sampled - 1,
    }
    scores, error = _of(sample, "scores", dict) or {}, _of(sample, "error", dict)
    if error is not None:
        found |= {"outcome": "agent_error", "error": str(error.get("message", "error"))}
        scorer = scorer if scorer in scores else None
    return found | {"reward": _grade(path, number, scores, scorer)}


def _grade(path: Path, number: int, scores: Mapping[str, Any], scorer: str | None) -> float | None:
    """Return the reward of a sample: a number as it is, a grade by its value, yes and no as 1 and 0."""
    name = scorer or next(iter(scores), None)
    if name is None:
        return None
    if name not in scores:
        known = ", ".join(sorted(map(str, scores))) or "none"
        raise InputError(f"Sample {number} has no score {name}; it has: {known}.", path=path, fix="--score NAME")
    score = scores[name]
    value = score.get("value") if isinstance(score, dict) else None
    if isinstance(value, bool) or _is_number(value):
        return float(value)
    if isinstance(value, str):
        if value in _GRADES:
            return _GRADES[value]
        try:
            number_ = float(value)
        except ValueError:
            return None
        return number_ if math.isfinite(number_) else None
    return None


def _turns(
    path: Path, line: int, messages: Sequence[Any], replies: Sequence[Any] = ()
) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the system prompt, None without one, and the turns from the first message of the user on.

    Args:
        replies: the agent's replies as it wrote them, in their order, where `messages` may have a part of each alone.
    """
    system: str | None = None
    turns: list[dict[str, Any]] = []
    spoken = 0
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "developer", "user", "assistant") or message.get("tool_calls"):
            what = "calls tools" if role in ("tool", "assistant") else f"has a message of the role {role!r:.40}"
            raise InputError(
                f"A dialogue is text of two sides, and this one {what}.", path=path, line=line, fix="leave it out"
            )
        text = _text(path, line, message.get("content"))
        if role in ("system", "developer"):
            system = text if system is None else f"{system}\n\n{text}"
        elif role == "user":
            turns.append({"role": "user", "content": text})
        elif turns:
            raw = replies[spoken] if spoken < len(replies) else message
            spoken += 1
            output = _text(path, line, raw.get("content"))
            thought = raw.get("reasoning_content") or _reasoning(raw.get("content"))
            turn = {"role": "assistant", "content": text, "output": output}
            turns.append(turn | ({"reasoning_content": thought} if isinstance(thought, str) else {}))
        else:
            raise InputError("The dialogue does not begin with a message of the user.", path=path, line=line)
    return system, turns


def _text(path: Path, line: int, content: Any) -> str:
    """Return the text of a message's content: itself, or that of its parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and part.get("type") != "reasoning"]
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        if len(texts) == len(parts):
            return "\n".join(texts)
    raise InputError("A message is not text.", path=path, line=line, fix="leave dialogues with pictures out")


def _reasoning(content: Any) -> str | None:
    parts = content if isinstance(content, list) else []
    texts = [part.get("reasoning") for part in parts if isinstance(part, dict) and part.get("type") == "reasoning"]
    found = [text for text in texts if isinstance(text, str) and text]
    return "\n".join(found) or None


def _task(
    path: Path, line: int, own: Mapping[str, Any] | None, named: Mapping[str, Any], request: str
) -> dict[str, Any]:
    """Return the task: `own`, if it is one of this program, else the request and the reference answer."""
    if own is not None and all(isinstance(own.get(name), str) for name in ("problem_description", "ground_truth")):
        return dict(own)
    answer = named.get("answer")
    if not isinstance(answer, str | int | float) or isinstance(answer, bool) or not str(answer).strip():
        raise InputError(
            "The task has no reference answer, which a critic reads.",
            path=path,
            line=line,
            fix='add "answer" (verifiers) or "target" (inspect_ai) to the task',
        )
    name = named.get("id") if named.get("id") is not None else named.get("name")
    task = {"problem_description": request, "ground_truth": str(answer)}
    usable = isinstance(name, str | int) and not isinstance(name, bool) and str(name)
    return {"id": str(name), **task} if usable else task


def _said_last(turns: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the answer where none is recorded: the agent's last message."""
    last = turns[-1] if turns else {}
    content = last.get("content")
    return content if last.get("role") == "assistant" and isinstance(content, str) and content else None


def _rewards(rewards: Mapping[str, Any]) -> float | None:
    """Return the weighted sum of a trace's rewards; None if there is none, or one was not computed."""
    total = 0.0
    for reward in rewards.values():
        score, weight = (reward.get(name) if isinstance(reward, dict) else None for name in ("score", "weight"))
        if not (_is_number(score) and _is_number(weight)):
            return None
        total += score * weight
    return total if rewards else None


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _of(row: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return a value of a row if it is of this type, else None."""
    value = row.get(name)
    return value if isinstance(value, kind) else None
