"""Hostile files: JSON Lines and manifests.

Bytes are lists of [token, repetitions], the characters of the tokens in Latin-1.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from sweet.errors import UsageError
from sweet.runs import manifest
from sweet.runs.jsonl import JsonlWriter, plain, read_jsonl, read_rows, scan_jsonl
from tests.fuzz.texts import REPETITIONS, text_of


class Row(BaseModel):
    """A row of a file that a stage wrote."""

    model_config = ConfigDict(extra="allow")

    id: int = 0


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)
_ROWS = st.lists(st.dictionaries(st.text(st.characters(), max_size=4), _JSON, max_size=4), max_size=5)
_LINES = (
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    '"',
    '"a"',
    '{"a":1}',
    '{"id":"x"}',
    "null",
    "NaN",
    "-Infinity",
    "1e999",
    "9",
    " ",
    "\n",
    "\r\n",
    "\\",
    "\\ud800",
    "\\u0000",
    "\0",
    "\xef\xbb\xbf",
    "\xff",
    "\xc3\xa9",
    "\xed\xa0\x80",
    "\x85",
    "\x1a",
    "-",
    "0.",
    "tru",
)
BYTES = st.lists(st.tuples(st.sampled_from(_LINES), REPETITIONS).map(list), max_size=14)
JSONL = st.one_of(
    st.fixed_dictionaries({"bytes": BYTES}),
    st.fixed_dictionaries({"rows": _ROWS, "cut": st.integers(0, 400), "tail": BYTES}),
)


def bytes_of(pieces: list[list[Any]]) -> bytes:
    return text_of(pieces).encode("latin-1")


def check_jsonl(value: dict[str, Any]) -> None:
    """Check that any file is read or refused, that rows survive a file, and that a cut file has a prefix of them."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder, "rows.jsonl")
        if "bytes" in value:
            path.write_bytes(bytes_of(value["bytes"]))
            _agree(path)
            return
        rows = [plain(row) for row in value["rows"]]
        with JsonlWriter(path) as writer:
            for row in value["rows"]:
                writer.write(row)
            assert writer.rows == len(rows)
        assert _equal(list(scan_jsonl(path)), rows), "scan_jsonl reads what was written"
        assert _equal([row for _, row in read_rows(path)], rows), "read_rows reads what was written"
        data = path.read_bytes()
        assert data.count(b"\n") == len(rows)
        path.write_bytes(data[: value["cut"]])
        kept = list(scan_jsonl(path))
        assert _equal(kept, rows[: len(kept)]), "a cut file has the first rows"
        with JsonlWriter(path) as writer:
            assert writer.rows == len(kept), "the writer counts the rows that are read"
            for row in rows[len(kept) :]:
                writer.write(row)
        assert path.read_bytes() == data, "a cut file is completed"
        path.write_bytes(data + bytes_of(value["tail"]))
        _agree(path)


def _equal(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _agree(path: Path) -> None:
    """Check that the readers of a file read it, or refuse it by an error that names it."""
    counted: dict[str, int | None] = {}
    readers: dict[str, Callable[[], Any]] = {
        "scan": lambda: list(scan_jsonl(path)),
        "typed": lambda: list(read_jsonl(path, Row)),
        "foreign": lambda: list(read_rows(path)),
    }
    for name, read in readers.items():
        try:
            counted[name] = len(read())
            continue
        except UsageError as error:
            counted[name], refusal = None, str(error)
        assert str(path) in refusal, "the error names the file"
    if counted["typed"] is not None:
        assert counted["scan"] == counted["typed"], "a file whose rows are all valid has the same rows for both readers"
    with JsonlWriter(path) as writer:
        if counted["scan"] is not None:
            assert writer.rows == counted["scan"], "the writer counts the rows that are read"


_VALID = {
    "schema_version": 1,
    "sweet_version": "0.1.0",
    "task": "code",
    "created": "2024-01-01T00:00:00Z",
    "attempts": [
        {
            "id": "rollout-1",
            "stage": "rollout",
            "status": "done",
            "started": "2024-01-01T00:00:00Z",
            "finished": "2024-01-01T00:00:01Z",
            "pid": 1,
            "host": "h",
            "config": {"agent": "scripted"},
            "digest": "0",
            "outputs": ["rollouts-1"],
            "metrics": {"episodes": 1},
            "log": "logs/rollout-1.log",
        }
    ],
    "artifacts": [
        {
            "id": "rollouts-1",
            "kind": "rollouts",
            "path": "rollouts/rollouts-1.jsonl",
            "rows": 1,
            "sha256": "0" * 64,
            "bytes": 10,
            "status": "done",
            "attempt": "rollout-1",
            "created": "2024-01-01T00:00:00Z",
            "finished": "2024-01-01T00:00:01Z",
        }
    ],
}
_KEYS = sorted({*_VALID, *_VALID["attempts"][0], *_VALID["artifacts"][0], "inputs", "meta", "unknown", ""})  # type: ignore[index]
_STRANGE = st.one_of(
    _JSON,
    st.sampled_from(
        ["../x", "/x", "a\\b", "a/../b", "C:x", "rollouts-1", "rollouts-0", "x\n", "a//b", ".", "9" * 5000]
    ),
    st.sampled_from([-1, 2, 10**30, -0.0, 1e308, True, "2024-01-01", "0001-01-01T00:00:00+14:00", 1e20, "1e20"]),
)
MANIFEST = st.one_of(
    st.fixed_dictionaries({"bytes": BYTES}),
    st.fixed_dictionaries(
        {
            "changes": st.lists(
                st.tuples(
                    st.sampled_from(["top", "attempts", "artifacts"]),
                    st.sampled_from(_KEYS),
                    st.sampled_from(["set", "delete", "again"]),
                    _STRANGE,
                ).map(list),
                max_size=4,
            ),
            "copies": st.sampled_from([0, 0, 0, 300]),
            "cut": st.none() | st.integers(0, 1500),
        }
    ),
)
"""Bytes, or a valid manifest with changes: [where, key, what, value]."""


def manifest_bytes(value: dict[str, Any]) -> bytes:
    """Return the file that an input of `MANIFEST` describes."""
    if "bytes" in value:
        return bytes_of(value["bytes"])
    content: dict[str, Any] = copy.deepcopy(_VALID)
    for where, key, what, strange in value["changes"]:
        rows = [content] if where == "top" else content.get(where)
        if not isinstance(rows, list):
            continue
        if what == "again":
            rows += copy.deepcopy(rows[:1])
        for row in rows[-1:]:
            if isinstance(row, dict):
                row.pop(key, None)
                if what != "delete":
                    row[key] = strange
    if value["copies"] and isinstance(content.get("artifacts"), list) and content["artifacts"]:
        first = content["artifacts"][0]
        if isinstance(first, dict):
            names = range(2, 2 + value["copies"])
            more = [{**first, "id": f"rollouts-{n}", "path": f"rollouts/{n}.jsonl"} for n in names]
            content["artifacts"] += more
    data = json.dumps(content).encode()
    return data if value["cut"] is None else data[: value["cut"]]


def check_manifest(value: dict[str, Any]) -> None:
    """Check that any file is parsed or refused, and that what was parsed is written and parsed again as it was."""
    data, path = manifest_bytes(value), Path("run/manifest.json")
    parsed, refusal = None, ""
    try:
        parsed = manifest.parse(data, path, "mend it")
    except UsageError as error:
        refusal = str(error)
    if parsed is None:
        assert str(path) in refusal, "the error names the file"
        assert len(refusal) < 2_000, "the error is short"
        return
    again = manifest.parse(manifest.render(parsed), path, "mend it")
    assert manifest.render(again) == manifest.render(parsed), "a manifest survives its file"
    for artifact in parsed.artifacts:
        assert ".." not in Path(artifact.path).parts
        assert not Path(artifact.path).is_absolute()
