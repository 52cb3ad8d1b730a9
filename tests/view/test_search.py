"""A search finds texts in dialogues, reports errors, and can be stopped at any time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweet.runs.jsonl import encode
from sweet.tasks.trajectory import Turn, dump
from sweet.view.search import Search
from sweet.view.search_worker import matcher, may_hold, needle_of, search
from tests.view.conftest import HOSTILE, trajectory

CATASTROPHE = "(a+)+$"
ENDLESS = "a" * 60 + "!"


def row(number: int, **changes: Any) -> dict[str, Any]:
    return dump(trajectory(number, **changes))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """t000 … t003; each text of t001 names its field, t003 has hostile output."""
    turns = (
        Turn(role="user", content="said by the human"),
        Turn(role="assistant", content="SAID by the agent", output="thought of first. SAID by the agent"),
    )
    task = {
        "id": "x",
        "problem_description": "the request",
        "ground_truth": "return secret",
        "hidden_information": "hidden words",
        "test_cases": {"test1": "checked(1)"},
    }
    rows = [
        row(0),
        row(1, task=task, dialogue_history=turns, answer="def answered():\n    return 'größer'"),
        row(2),
        row(3, answer=HOSTILE + '"quoted" \\ back/slash'),
    ]
    file = tmp_path / "rollouts-1.jsonl"
    file.write_bytes(b"".join(encode(one) + b"\n" for one in rows))
    return file


def found(path: Path, pattern: str, *, regex: bool = False, hidden: bool = False) -> list[str]:
    with Search(path, pattern, regex=regex, hidden=hidden) as asked:
        ids = asked.wait()
        assert asked.error is None
        assert asked.seen == 1
    return ids


def answers(path: Path, pattern: str, *, regex: bool = False, hidden: bool = False) -> list[str]:
    """Search without a process."""
    result = list(search(path, pattern, regex=regex, hidden=hidden))
    assert result[-1] == {"done": True}
    return [answer["found"] for answer in result if "found" in answer]


@pytest.mark.parametrize(
    ("pattern", "regex", "ids"),
    [
        ("THE REQUEST", False, ["t001"]),
        ("said by the h", False, ["t001"]),
        ("said by the agent", False, ["t001"]),
        ("thought of first", False, ["t001"]),
        ("GRÖSSER", False, []),
        ("GRÖßER", False, ["t001"]),
        ("def answered():\n", False, ["t001"]),
        ('"QUOTED"', False, ["t003"]),
        ("\\ back/slash", False, ["t003"]),
        ("\x1b[31m", False, ["t003"]),
        ("a.c", False, []),
        ("", False, ["t000", "t001", "t002", "t003"]),
        ("nowhere", False, []),
        ("secret", False, []),
        ("(?i)SAID BY THE (agent|human)", True, ["t001"]),
        ("SAID BY", True, []),
        (r"^    return 'g", True, ["t001"]),
        (r"I WANT TO ANSWER: def add\(a\): return a \+ [02]$", True, ["t000", "t002"]),
    ],
)
def test_what_is_found(path: Path, pattern: str, regex: bool, ids: list[str]) -> None:
    assert answers(path, pattern, regex=regex) == ids


@pytest.mark.parametrize("pattern", ["return SECRET", "hidden words", "checked(1)"])
def test_the_hidden_only_where_asked(path: Path, pattern: str) -> None:
    assert answers(path, pattern) == []
    assert answers(path, pattern, hidden=True) == ["t001"]


def test_a_process_finds_the_same(path: Path) -> None:
    assert found(path, "größer") == ["t001"]
    assert found(path, "return a [+] [02]", regex=True) == ["t000", "t002"]
    assert found(path, "checked(1)", hidden=True) == ["t001"]


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.sampled_from("aAkKsSiI ı\u0130\u017f\u212a1/\\\"'\n\té"), max_size=12),
    st.text(st.sampled_from('aAkKsSiI 1/\\"é'), max_size=3),
    st.booleans(),
)
def test_no_line_is_passed_over_that_holds_it(text: str, pattern: str, escaped: bool) -> None:
    line = json.dumps({"answer": text}, ensure_ascii=escaped).encode()
    if escaped:
        line = line.replace(b"/", b"\\/").replace(b"A", b"\\u0041")
    assert json.loads(line) == {"answer": text}
    if matcher(pattern, regex=False).search(text):
        assert may_hold(line, needle_of(pattern, regex=False))


def test_what_cannot_hold_it_is_not_parsed(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    needle = needle_of("größer".replace("ö", "o"), regex=False)
    assert needle is None
    assert [may_hold(line, needle_of("The Request", regex=False)) for line in lines] == [False, True, False, True]


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "(?P<n>a)(?P<n>b)", "a{99999999999}", "(?z)"])
def test_an_invalid_expression_is_reported(path: Path, pattern: str) -> None:
    with Search(path, pattern, regex=True) as asked:
        assert asked.wait() == []
        assert str(asked.error).startswith("The regular expression cannot be read")
        assert asked.done


def test_damage_is_reported_and_an_incomplete_line_skipped(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": "torn said by')
    assert answers(path, "said by") == ["t001"]
    path.write_bytes(b"{said by}\n" + whole)
    with Search(path, "said by") as asked:
        assert asked.wait() == []
        assert "line 1" in str(asked.error)
    path.unlink()
    with Search(path, "x") as asked:
        asked.wait()
        assert "No such file" in str(asked.error)


def children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    below: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            below += [int(entry.name), *children(int(entry.name))]
    return below


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(holds: Callable[[], object], seconds: float = 90) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "timed out"
        time.sleep(0.02)


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """The second row causes catastrophic backtracking."""
    file = tmp_path / "endless.jsonl"
    file.write_bytes(b"".join(encode(one) + b"\n" for one in (row(0, answer="aaa"), row(1, answer=ENDLESS))))
    return file


def test_an_expression_that_never_ends_is_stopped(endless: Path) -> None:
    others = children(os.getpid())  # other tests of this process have left them
    asked = Search(endless, CATASTROPHE, regex=True)
    until(lambda: asked.poll() == ["t000"])  # what was found before is there
    time.sleep(0.2)
    assert asked.poll() == []
    assert asked.seen < 1
    below = [pid for pid in children(os.getpid()) if pid not in others]
    assert len(below) >= 2
    began = time.monotonic()
    asked.stop()
    assert time.monotonic() - began < 5
    until(lambda: not any(map(alive, below)))
    assert asked.done
    assert asked.error is None
    assert asked.poll() == []
    asked.stop()


def test_it_ends_with_who_asked(endless: Path) -> None:
    """The search also ends when the parent is killed."""
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from sweet.view.search import Search
        asked = Search(Path(sys.argv[1]), sys.argv[2], regex=True)
        while not asked.poll():
            time.sleep(0.02)
        print("found", flush=True)
        time.sleep(60)
        """
    )
    command = [sys.executable, "-c", program, str(endless), CATASTROPHE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "found\n"
        below = children(parent.pid)
        assert len(below) == 2
        parent.send_signal(signal.SIGKILL)
    until(lambda: not any(map(alive, below)))


def test_a_process_that_dies_is_reported(endless: Path) -> None:
    others = children(os.getpid())
    with Search(endless, CATASTROPHE, regex=True) as asked:
        until(asked.poll)
        (keeper,) = [pid for pid in children(os.getpid()) if pid not in others and children(pid)]
        os.kill(children(keeper)[0], signal.SIGKILL)
        asked.wait()
        assert "before it was complete" in str(asked.error)
