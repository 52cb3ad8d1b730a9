"""An index after whatever happened to the file says what a fresh one says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweet.errors import InputError
from sweet.files import UNFINISHED
from sweet.runs import index as indexing
from sweet.runs.content import CLOCK_SLACK
from sweet.runs.entries import CANDIDATES, PAIRS, ROLLOUTS, SCORES, RolloutEntry, RowEntry, ScoreEntry
from sweet.runs.index import Index, index_path
from sweet.runs.jsonl import JsonlWriter, parse_row
from sweet.runs.run import Run
from tests.runs.conftest import Settings


@pytest.fixture(autouse=True)
def _every_index_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "WORTH_KEEPING", 1)


def row(name: str = "a", text: str = "", **fields: Any) -> dict[str, Any]:
    history = [{"role": "user", "content": "x"}, {"role": "assistant", "content": text}]
    return {"id": name, "task": {"id": "t"}, "dialogue_history": history, **fields}


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def settle() -> None:
    """Until a change leaves another time on a file."""
    time.sleep(2 * CLOCK_SLACK)


def listed(path: Path) -> list[str]:
    return [entry.id for entry in Index(path, ROLLOUTS).entries]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that were parsed."""
    parsed: list[bytes] = []

    def count(line: bytes, *rest: Any) -> Any:
        parsed.append(line)
        return parse_row(line, *rest)

    monkeypatch.setattr("sweet.runs.index.parse_row", count)
    return parsed


def test_an_entry_holds_what_a_list_shows(tmp_path: Path) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    usage = {"completion_tokens": 7, "seconds": 1.5}
    whole = row("ü", "yes", sample=3, seed=5, outcome="human_error", fault="refusal", reward=0.25, usage=usage)
    path.write_bytes(lines(row(), whole))
    first, second = Index(path, ROLLOUTS).entries
    begin = len(lines(row()))
    assert first == RolloutEntry(0, begin - 1, "a", "t", "answered", None, 0, None, None, 1, None, None)
    length = len(lines(whole)) - 1
    assert second == RolloutEntry(begin, length, "ü", "t", "human_error", "refusal", 3, 5, 0.25, 1, 7, 1.5)
    score: dict[str, Any] = {"id": "a", "outcome": "failed", "reward": None, "passed": 1, "total": 2, "detail": {}}
    path.write_bytes(lines(score))
    assert Index(path, SCORES).entries == [ScoreEntry(0, len(lines(score)) - 1, "a", "failed", None, 1, 2)]
    for form in (CANDIDATES, PAIRS):
        path.write_bytes(lines({"trajectory_id": "a"}))
        assert Index(path, form).entries == [RowEntry(0, 22, "a")], "an index of another kind does not count"


@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        ("Adds\n  two\tnumbers. ", "Adds two numbers."),
        ("x" * 160, "x" * 160),
        ("x" * 161, "x" * 159 + "…"),
        ("word " * 1000, ("word " * 32)[:159].rstrip() + "…"),
        (" " * 10_000 + "x", "…"),
    ],
)
def test_an_entry_has_the_beginning_of_the_request(tmp_path: Path, request_: str, shown: str) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines({**row(), "task": {"id": "t", "problem_description": request_}}))
    (entry,) = Index(path, ROLLOUTS).entries
    assert entry.request == shown


def test_what_is_kept_is_not_read_again(tmp_path: Path, reads: list[bytes]) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("a"), row("b")))
    settle()
    assert listed(path) == listed(path) == ["a", "b"]
    assert len(reads) == 2
    with path.open("ab") as file:
        file.write(lines(row("c")))
    settle()
    assert listed(path) == listed(path) == ["a", "b", "c"]
    assert len(reads) == 5


def test_an_untouched_file_is_not_read(tmp_path: Path) -> None:
    """A file of the same size, time and inode counts as untouched: other content in it goes unnoticed."""
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("a"), row("b")))
    settle()
    assert listed(path) == ["a", "b"]
    stat = path.stat()
    with path.open("r+b") as file:
        file.write(lines(row("c")))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert listed(path) == ["a", "b"]


def test_a_young_file_is_not_known_by_its_time(tmp_path: Path) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("a"), row("b")))
    times = (time.time_ns() + 10**10,) * 2
    os.utime(path, ns=times)
    assert listed(path) == ["a", "b"]
    with path.open("r+b") as file:
        file.write(lines(row("c")))
    os.utime(path, ns=times)
    assert listed(path) == ["c", "b"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}', b"\xff\x00", None])
def test_a_damaged_index_is_made_anew(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("a")))
    settle()
    assert listed(path) == ["a"]
    kept = index_path(path)
    if content is None:
        told = json.loads(kept.read_bytes())
        kept.write_text(json.dumps({**told, "version": 0, "entries": []}))
    else:
        kept.write_bytes(content)
    assert listed(path) == ["a"]
    assert json.loads(kept.read_bytes())["version"] == indexing.VERSION


def test_where_nothing_can_be_written_it_is_made_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("a")))

    def read_only(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(indexing, "write_whole", read_only)
    assert listed(path) == ["a"]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_small_file_gets_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("a")))
    monkeypatch.setattr(indexing, "WORTH_KEEPING", path.stat().st_size + 1)
    assert listed(path) == ["a"]
    assert not index_path(path).exists()


@pytest.mark.parametrize("damage", [b"{broken\n", b"[]\n", b"{}\n", b"\xff\n", b'{"id": 1}\n'])
def test_a_damaged_line_is_told_by_its_number(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    for content in (damage, lines(row("b")) + damage):
        path.write_bytes(lines(row("a")) + b"\n" + content)
        number = 2 + content.count(b"\n")
        with pytest.raises(InputError, match=f"line {number}"):
            Index(path, ROLLOUTS)
    path.write_bytes(lines(row("c")))
    assert listed(path) == ["c"], "mended"


def test_a_line_that_is_not_where_it_was_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("a"), row("b")))
    index = Index(path, ROLLOUTS)
    second = index.entries[1]
    assert json.loads(index.line(second)) == row("b")
    for content in (lines(row("b"), row("a")), lines(row("a")), b"x" * 500):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not where it was"):
            index.line(second)
    path.unlink()
    with pytest.raises(InputError, match="not where it was"):
        index.line(second)
    with pytest.raises(InputError, match="cannot be read"):
        Index(path, ROLLOUTS)


def test_what_a_killed_process_left_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("a")))
    old, young = (tmp_path / f".{index_path(path).name}.{pid}{UNFINISHED}" for pid in (1, 2))
    for orphan in (old, young):
        orphan.write_bytes(b"half")
    os.utime(old, (1, 1))
    settle()
    assert listed(path) == ["a"]
    assert (old.exists(), young.exists()) == (False, True)


def test_many_viewers_at_once(tmp_path: Path) -> None:
    """Processes open a file while it grows; each sees its beginning, and what is kept in the end is right."""
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("n0")))
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from sweet.runs import index
        from sweet.runs.entries import ROLLOUTS
        index.WORTH_KEEPING = 1
        for _ in range(20):
            entries = index.Index(Path(sys.argv[1]), ROLLOUTS).entries
            assert [e.id for e in entries] == [f"n{n}" for n in range(len(entries))]
        """
    )
    viewers = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(2)]
    with JsonlWriter(path) as writer:
        for number in range(1, 300):
            writer.write(row(f"n{number}"))
            time.sleep(0.002)
    assert [viewer.wait(60) for viewer in viewers] == [0, 0]
    assert listed(path) == [f"n{number}" for number in range(300)]


def test_an_index_is_no_unknown_file_of_a_run(run: Run) -> None:
    with run.attempt("rollout", Settings()) as attempt:
        draft = attempt.start_artifact("rollouts")
        with JsonlWriter(draft.path) as writer:
            writer.write(row("a"))
        artifact = attempt.finish_artifact(draft, rows=1)
    settle()
    assert listed(run.file(artifact)) == ["a"]
    manifest = run.manifest()
    assert index_path(run.file(artifact)).exists()
    assert run.unknown_files(manifest) == []
    assert run.staleness(manifest)(artifact) is None


# What may happen to a file, as (what, how much).
EVENTS = st.tuples(
    st.sampled_from(
        ["append", "append", "torn", "whole without feed", "blank", "truncate", "edit", "replace", "rewrite", "spoil"]
    ),
    st.integers(0, 400),
)


def happen(path: Path, what: str, number: int) -> None:
    content = path.read_bytes()
    new = row(f"n{number}", "é" * (number % 40))
    place = number % (len(content) + 1)
    match what:
        case "append":
            changed = content + lines(new)
        case "torn":
            changed = content + lines(new)[: number % len(lines(new))]
        case "whole without feed":
            changed = content + lines(new)[:-1]
        case "blank":
            changed = content + b"\n \n"
        case "truncate":
            changed = content[:place]
        case "edit":  # of the same length: in an id, a text, or where it breaks the line
            changed = content[:place] + b"z" + content[place + 1 :]
        case "replace":
            changed = content.replace(b'"id": "n', b'"id": "m')
            other = path.with_name("other")
            other.write_bytes(changed)
            other.replace(path)
            return
        case "rewrite":
            changed = lines(new, row("w"))
        case _:
            index_path(path).write_bytes(content[:place])
            return
    if changed.startswith(content):
        with path.open("ab") as file:
            file.write(changed[len(content) :])
    else:
        path.write_bytes(changed)


def said(look: Any) -> Any:
    """The entries, or the line of the damage."""
    try:
        return look()
    except InputError as error:
        return error.line


def fresh(path: Path) -> list[RolloutEntry]:
    copy = path.with_name("copy.jsonl")
    index_path(copy).unlink(missing_ok=True)
    copy.write_bytes(path.read_bytes())
    return Index(copy, ROLLOUTS).entries


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(EVENTS, st.booleans()), max_size=12))
def test_after_anything_an_index_says_what_a_fresh_one_says(events: list[tuple[tuple[str, int], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rollouts-1.jsonl"
        path.write_bytes(lines(row("a"), row("b")))
        for (what, number), looked in events:
            happen(path, what, number)
            if looked:
                expected = said(lambda: fresh(path))
                assert said(lambda: Index(path, ROLLOUTS).entries) == expected


@pytest.mark.parametrize("change", [{"length": 10**15}, {"length": -1}, {"offset": -1}, {"offset": 10**15}])
def test_what_a_saved_index_says_is_not_believed(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("a"), row("b")))
    settle()
    entry = RolloutEntry._make({**Index(path, ROLLOUTS).entries[0]._asdict(), **change}.values())
    saved = json.loads(index_path(path).read_bytes())
    saved["entries"][0] = list(entry)
    index_path(path).write_text(json.dumps(saved))
    index = Index(path, ROLLOUTS)
    assert index.entries[0] == entry
    with pytest.raises(InputError, match="not where it was"):
        index.line(entry)
