"""JSON Lines: torn tails, foreign rows, what JSON cannot hold."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from sweet.errors import InputError
from sweet.runs import jsonl
from sweet.runs.index import CANDIDATES, Index
from sweet.runs.jsonl import (
    TO_JSON_LINES,
    JsonlWriter,
    LongRow,
    encode,
    read_any_rows,
    read_jsonl,
    read_rows,
    scan_jsonl,
)


class Row(BaseModel):
    id: int
    text: str = ""
    more: dict[str, Any] = {}


ROWS = st.lists(
    st.builds(
        Row,
        id=st.integers(-(2**70), 2**70),
        text=st.text(st.characters(exclude_categories=["Cs"])),
        more=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), st.integers(), max_size=2),
    ),
    max_size=6,
)


@given(ROWS)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "a" / "rows.jsonl"
    with JsonlWriter(path) as writer:
        for row in rows:
            writer.write(row)
        assert writer.rows == len(rows)
    assert list(read_jsonl(path, Row)) == rows
    assert [Row(**row) for _, row in read_rows(path)] == rows
    assert path.read_bytes().count(b"\n") == len(rows)


@given(ROWS, st.data())
def test_any_cut_is_a_prefix_and_the_writer_goes_on(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "rows.jsonl"
    whole = b"".join(encode(row.model_dump(mode="json")) + b"\n" for row in rows)
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = list(read_jsonl(path, Row))
    assert kept == rows[: len(kept)]
    assert len(kept) >= whole[:cut].count(b"\n")
    with JsonlWriter(path) as writer:
        assert writer.rows == len(kept)
        for row in rows[len(kept) :]:
            writer.write(row)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("tail", [b"\0\0\0", b"\xc3", b'{"id": 1', b"[1]", b"12", b'"text"', b"   ", b"null"])
def test_a_tail_that_is_no_row_is_cut(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"id":0}\n' + tail)
    assert [row.id for row in read_jsonl(path, Row)] == [0]
    assert list(scan_jsonl(path)) == [{"id": 0}]
    with JsonlWriter(path) as writer:
        writer.write({"id": 1})
    assert path.read_bytes() == b'{"id":0}\n{"id":1}\n'


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    texts = ["a\u2028b", "a\x85b", "a\rb", "a\nb", "a\x0cb"]
    with JsonlWriter(path) as writer:
        for number, text in enumerate(texts):
            writer.write(Row(id=number, text=text))
    assert [row.text for row in read_jsonl(path, Row)] == texts


def test_a_row_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with JsonlWriter(path) as writer:
        writer.write({"id": 1})
        assert path.read_bytes() == b'{"id":1}\n'


def test_threads_may_share_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with JsonlWriter(path) as writer:

        def write(start: int) -> None:
            for number in range(start, start + 200):
                writer.write({"id": number, "text": "x" * 50})

        threads = [threading.Thread(target=write, args=(200 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(row.id for row in read_jsonl(path, Row)) == list(range(800))


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    really = os.write
    with JsonlWriter(path) as writer:
        writer.write({"id": 1})

        def half(file: int, data: bytes) -> int:
            monkeypatch.setattr(os, "write", full)
            return really(file, data[: len(data) // 2])

        def full(file: int, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            writer.write({"id": 2})
        monkeypatch.setattr(os, "write", really)
        writer.write({"id": 3})
    assert [row.id for row in read_jsonl(path, Row)] == [1, 3]


def test_what_json_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with JsonlWriter(path) as writer:
        writer.write({"loss": math.nan, "deep": [math.inf, {"x": (-math.inf, 1)}], "text": "a\ud800b\ud83d\ude00"})
    row = json.loads(path.read_text(encoding="utf-8"))
    assert row == {"loss": None, "deep": [None, {"x": [None, 1]}], "text": "a\ufffdb\U0001f600"}


def test_a_line_that_is_not_an_object_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for line in (b"null", b"[1]", b'"text"'):
        path.write_bytes(b'{"id":0}\n' + line + b"\n")
        for read in (lambda: list(scan_jsonl(path)), lambda: list(read_jsonl(path, Row))):
            with pytest.raises(InputError) as error:
                read()
            assert error.value.line == 2


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id":0}\n\n{"id":1\n{"id":2}\n')
    with pytest.raises(InputError, match="not JSON") as error:
        list(read_jsonl(path, Row))
    assert (error.value.line, error.value.exit_code) == (3, 2)
    path.write_text('{"id":0}\n{"id":"one"}\n')
    with pytest.raises(InputError, match=r"id: .*integer") as error:
        list(read_jsonl(path, Row))
    assert error.value.line == 2


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        (b'{"a":1}\n\n{"a":\n', 3, "not JSON"),
        (b'{"a":1}\n[1]\n', 2, "not a JSON object"),
        (b"null\n", 1, "not a JSON object"),
        (b'{"a":"\xff"}\n', 1, "not UTF-8"),
        (b"[" * 100_000 + b"\n", 1, "nested too deeply|not JSON"),
        (b'{"a":' + b"1" * 5000 + b"}", 1, "not JSON"),
        (b'{"a":1} {"b":2}', 1, "Extra data"),
    ],
)
def test_a_foreign_line_that_is_wrong_is_named(tmp_path: Path, content: bytes, line: int, what: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=what) as error:
        list(read_rows(path))
    assert error.value.line == line


def test_foreign_files_may_have_a_mark_and_other_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('\ufeff{"a":1}\r\n\r\n  {"a":2}'.encode())
    assert list(read_rows(path)) == [(1, {"a": 1}), (3, {"a": 2})]


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    for read in (lambda path: list(read_rows(path)), lambda path: list(read_jsonl(path, Row))):
        with pytest.raises(InputError, match="no such file"):
            read(tmp_path / "none.jsonl")
        with pytest.raises(InputError, match="folder"):
            read(tmp_path)
    with pytest.raises(InputError, match="folder"):
        JsonlWriter(tmp_path)


def test_a_line_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without line feeds, such as a sparse one, is not read whole."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"id":1,"trajectory_id":"1"}\n{"id":1' + b" " * 93 + b"}\n")
    readers: tuple[Callable[[], object], ...] = (
        lambda: list(read_rows(path)),
        lambda: list(read_jsonl(path, Row)),
        lambda: list(scan_jsonl(path)),
        lambda: Index(path, CANDIDATES),
        lambda: JsonlWriter(path),
    )
    assert [row.id for row in read_jsonl(path, Row)] == [1, 1]
    monkeypatch.setattr(jsonl, "LONGEST_LINE", 100)
    for read in readers:
        with pytest.raises(InputError, match="more than 100 bytes") as error:
            read()
        assert error.value.line == 2


def test_no_row_is_written_that_cannot_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "LONGEST_LINE", 100)
    path = tmp_path / "rows.jsonl"
    with JsonlWriter(path) as writer:
        writer.write({"a": "b" * 90})
        with pytest.raises(LongRow, match="A row has 101 bytes; 100 can be read"):
            writer.write({"a": "b" * 93})
        with pytest.raises(LongRow):
            writer.write({"a": "b" * 92})
        writer.write({"a": "b" * 91})
        assert writer.rows == 2
    assert [len(row["a"]) for row in scan_jsonl(path)] == [90, 91]


def test_the_fix_of_a_foreign_line_fits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "LONGEST_LINE", 100)
    path = tmp_path / "rows.jsonl"
    for content, fix in ((b'"' + b"a" * 200, "one JSON object per line"), ('"ä"'.encode("utf-16"), "save it as UTF-8")):
        path.write_bytes(content)
        with pytest.raises(InputError) as error:
            list(read_rows(path))
        assert error.value.fix == fix


@pytest.mark.parametrize(
    "begin", [b"PAR1\x15\x04", b"ARROW1\0\0", b"\xff\xff\xff\xff\x10\0", gzip.compress(b"{}", mtime=0)]
)
def test_a_binary_file_is_no_file_of_bad_lines(tmp_path: Path, begin: bytes) -> None:
    """Before, each line was said not to be UTF-8, and the fix was to save it as such."""
    path = tmp_path / "train.jsonl"
    path.write_bytes(begin + b"\n\xff\n")
    with pytest.raises(InputError, match=r"^The file is Parquet, Arrow or compressed\.") as error:
        list(read_any_rows(path))
    assert error.value.fix == TO_JSON_LINES
    assert error.value.line is None


def test_numbers_are_read_the_same_whatever_else_is_installed(tmp_path: Path) -> None:
    """The library that reads lines takes orjson where it is installed, which rounds numbers of more than 64 bits."""
    (tmp_path / "orjson.py").write_text("def loads(text): return {'id': 0.5}\ndef dumps(value): return b'{}'\n")
    (tmp_path / "rows.jsonl").write_text(f'{{"id": {2**70}}}\n')
    code = "import pathlib, sys, sweet.runs.jsonl as j; print(*j.read_rows(pathlib.Path(sys.argv[1])))"
    words, own = [sys.executable, "-c", code, str(tmp_path / "rows.jsonl")], {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, env=os.environ | own, capture_output=True, text=True, check=True)
    assert done.stdout == f"(1, {{'id': {2**70}}})\n"
