"""Hostile answers, all of them under every tier of this machine, as root and as an ordinary user.

None gets a reward, each ends as expected, nothing is left behind, and the honest answer after it gets the full reward.
Without libseccomp the `bwrap` tier runs without its filter: then more can be done inside the jail, but not outside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sweet.sandbox.pool import open_jails
from sweet.sandbox.program import Limits
from sweet.sandbox.tiers import SAFE_TIERS, probe_tier
from tests import programs
from tests.sandbox.redteam.answers import Hostile, deed, hostile
from tests.sandbox.redteam.ordinary import ROOT, can_become_ordinary, ordinary
from tests.sandbox.redteam.run import ANSWERS, Surroundings, Team, has_children

CASES = [
    *((tier, user) for tier in SAFE_TIERS for user in ("root", "ordinary")),
    ("bwrap-without-seccomp", "ordinary"),
]

DONE = "got 'done'"
"""The detail of the score of an answer that could do something forbidden."""


def wrong(answer: Hostile, fate: dict[str, Any], filtered: bool) -> list[str]:
    """Return the unexpected parts of an answer's result."""
    found = []
    if filtered or not answer.needs_filter:
        if fate["outcome"] not in answer.outcome.split("|"):
            found.append(f"outcome {fate['outcome']}, not {answer.outcome}")
        if DONE in fate["detail"]:
            found.append("it could do it")
    if fate["reward"] != 0.0:
        found.append(f"reward {fate['reward']}")
    if fate["honest"] != 1.0:
        found.append(f"the honest answer after it: {fate['honest_told']}")
    return found + [f"left behind: {left}" for left in fate["left"]] + ([fate["detail"]] if found else [])


@pytest.mark.parametrize(("tier", "user"), CASES)
def test_red_team(tier: str, user: str) -> None:
    jail, _, left_out = tier.partition("-without-")
    status = probe_tier(jail)
    if not status.works:
        pytest.skip(f"{jail}: {status.detail}")
    if user == "root" and os.geteuid() != 0:
        pytest.skip("the tests do not run as root")
    if user == "ordinary" and not can_become_ordinary():
        pytest.skip("util-linux is needed to become an ordinary user")
    words = ["-m", "tests.sandbox.redteam.run", tier]
    words += ["--brief"] if (tier, user) != CASES[0] else []  # one case with the same limits for all answers
    if user == "root":
        done = programs.run(words, executable=sys.executable, cwd=ROOT, timeout=240)
    else:
        with tempfile.TemporaryDirectory() as home:
            command, environment = ordinary([sys.executable, *words], Path(home))
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    if user == "ordinary" and done.returncode != 0 and "Permission denied" in done.stderr:
        pytest.skip(f"an ordinary user cannot run the tests here: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr[-3000:]
    fates = json.loads(done.stdout)
    assert fates.pop("")["left"] == []
    assert len(fates) == len(ANSWERS), "every answer has a name of its own"
    faults = {answer.name: wrong(answer, fates[answer.name], not left_out) for answer in ANSWERS}
    assert {name: found for name, found in faults.items() if found} == {}


def test_the_red_team_detects_what_is_done() -> None:
    """Without a jail, a forbidden action is reported and its traces are found; a daemon is killed even then."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Surroundings(Path(folder)) as around,
        open_jails("unsafe", 1, Limits()) as box,
    ):
        team = Team(box, around, "expected-0123456789abcdef")
        fate = team.attack(deed("file", "os", "open('@FOLDER@/@MARK@', 'w')"))
        assert DONE in fate["detail"]
        assert fate["left"] == [folder]
        Path(folder, around.mark).unlink()
        assert team.attack(deed("network", "socket", "socket.create_connection(('127.0.0.1', @TCP@))"))["left"]
        assert team.attack(hostile("knows", "def f(): return 'expected-0123456789abcdef'"))["reward"] == 1.0
        daemon = """
            import os, time
            def f():
                if os.fork() == 0:
                    os.setsid()
                    if os.fork() == 0: time.sleep(99)
                    os._exit(0)
                return "done"
            """
        with subprocess.Popen(["sleep", "99"]) as left:
            assert has_children(os.getpid())
            left.kill()
        fate = team.attack(hostile("daemon", daemon))
        assert DONE in fate["detail"]
        assert fate["left"] == []
