"""The file of an attempt's progress: its counts and its rate, and what is found in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweet.runs.progress import LARGEST, ProgressFile, read_progress


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "rollout-1.progress.json"


def test_it_is_written_at_most_once_a_second(path: Path, clock: Clock) -> None:
    file = ProgressFile(path, clock=clock)
    with file.counting("dialogues", 10) as counter:
        for _ in range(3):
            counter.advance()
        found = read_progress(path)
        assert found is not None
        assert (found.title, found.done, found.total) == ("dialogues", 0, 10)
        clock.now += 1
        counter.note(failed=1, answered="50%", seen=Path("x"))
        found = read_progress(path)
    assert found is not None
    assert (found.done, found.figures) == (3, {"failed": 1, "answered": "50%", "seen": "x"})


def test_the_rate_is_that_of_the_last_minute(path: Path, clock: Clock) -> None:
    file = ProgressFile(path, clock=clock)
    with file.counting("dialogues", 1000) as counter:
        for _ in range(100):  # 1/s
            clock.now += 1
            counter.advance()
        for _ in range(60):  # 4/s
            clock.now += 1
            counter.advance(4)
        found = read_progress(path)
    assert found is not None
    assert found.done == 340
    assert found.per_second == pytest.approx(4)
    assert found.seconds_left == pytest.approx(660 / 4)


def test_no_rate_is_known_where_nothing_is_done(path: Path, clock: Clock) -> None:
    file = ProgressFile(path, clock=clock)
    with file.counting("turns", 4) as counter:
        clock.now += 30
        counter.note(failed=0)
        found = read_progress(path)
    assert found is not None
    assert (found.per_second, found.seconds_left) == (None, None)


def test_an_inner_count_is_shown_while_it_lasts(path: Path, clock: Clock) -> None:
    file = ProgressFile(path, clock=clock)
    with file.counting("answers", 2) as outer:
        outer.advance()
        with file.counting("screenshots", None):
            found = read_progress(path)
        assert found is not None
        assert (found.title, found.total) == ("screenshots", None)
        found = read_progress(path)
        assert found is not None
        assert (found.title, found.done) == ("answers", 1)
    found = read_progress(path)
    assert found is not None
    assert found.title == ""


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"done": -1, "changed": "2026-01-01T00:00:00Z"}', b" " * (LARGEST + 1)]
)
def test_a_damaged_file_shows_nothing(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    assert read_progress(path) is None


def test_what_is_no_file_stops_no_work(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    file = ProgressFile(path)
    with file.counting("dialogues", 1) as counter:
        counter.advance()
    assert read_progress(path) is None


def test_a_key_is_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key-1")
    file, note = ProgressFile(path), {"server": "http://user:pass@host/?key=abc secret-key-1"}
    with file.counting("dialogues", 1) as counter:
        counter.note(**note)
        with file.counting("more", None):
            pass
        assert "secret-key-1" not in path.read_text()
