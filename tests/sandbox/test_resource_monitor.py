"""What the processes under one use together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweet.sandbox.resource_monitor import excess

PROGRAM = """
import os, sys
shared = bytearray(b"x") * (64 << 20)
for _ in range(4):
    if os.fork() == 0:
        if sys.argv[1] == "written":
            for at in range(0, len(shared), 4096):
                shared[at] = 0
        break
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not say what is shared")
@pytest.mark.parametrize(("what", "expected"), [("shared", None), ("written", "more than 128 MiB of memory")])
def test_memory_that_processes_share_counts_once(what: str, expected: str | None) -> None:
    """Four processes have 64 MiB each, of which none is theirs until they write to it."""
    command = [sys.executable, "-I", "-c", PROGRAM, what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(5):
            assert process.stdout.readline() == b"ready\n"
        assert excess([process.pid], 128 << 20, 64).get(process.pid) == expected
        assert excess([process.pid], 64 << 30, 3) == {process.pid: "more than 3 threads and processes"}
        assert process.stdin is not None
        process.stdin.close()
