"""The supervisor between a server and the process that started it leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sweet import supervisor
from tests.llm.stand_in import StandIn, gone, install


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return install(tmp_path, monkeypatch)


ORPHAN = """\
import os, subprocess, sys, time
process = subprocess.Popen(
    [sys.executable, sys.argv[1], str(os.getpid()), "0.3", "--", *sys.argv[2:]], start_new_session=True
)
print(process.pid, flush=True)
time.sleep(600)
"""


def test_the_supervisor_kills_a_server_that_ignores_signals(vllm: StandIn) -> None:
    words = ["vllm", "--stubborn", "--served-model-name", "m", "--slow"]
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, supervisor.__file__, *words], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        vllm.started()
        parent.kill()
        assert gone(process)
    assert vllm.all_gone()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux notifies a process that its parent has died")
def test_a_killed_supervisor_ends_the_server(vllm: StandIn) -> None:
    words = ["vllm", "--served-model-name", "m", "--slow"]
    with subprocess.Popen([sys.executable, supervisor.__file__, str(os.getpid()), "1", "--", *words]) as process:
        start = vllm.started()
        process.kill()
    assert gone(start["pid"])
    os.kill(start["worker"], signal.SIGKILL)  # unlike vllm, the stand-in does not end its worker


SHARING = """\
import os, signal, sys, time
from multiprocessing.shared_memory import SharedMemory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(SharedMemory(create=True, size=99).name, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
def test_a_killed_process_leaves_no_shared_memory() -> None:
    words = [sys.executable, supervisor.__file__, str(os.getpid()), "1", "--", sys.executable, "-c", SHARING]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert Path("/dev/shm", name).exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 137
    assert not Path("/dev/shm", name).exists()


LEAVING = """\
import os, subprocess, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
print(os.getpid(), flush=True)
time.sleep(600 if os.getsid(0) == os.getpid() else WAITS)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt its descendants")
@pytest.mark.parametrize("waits", [1, 600])
def test_what_has_left_the_group_is_killed(waits: int) -> None:
    code = LEAVING.replace("WAITS", str(waits))
    words = supervisor.supervised([sys.executable, "-c", code], 1, "--adopt")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = [int(process.stdout.readline()) for _ in range(4)]
        if waits > 1:
            process.send_signal(signal.SIGINT)
        process.wait(60)
    assert all(map(gone, found))


def test_the_supervisor_returns_the_exit_status() -> None:
    for code, status in (("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)):
        command = [sys.executable, supervisor.__file__, str(os.getpid()), "1", "--", sys.executable, "-c", code]
        assert subprocess.run(command, timeout=60).returncode == status
    nothing = [sys.executable, supervisor.__file__, str(os.getpid()), "1", "--", "/nothing/here"]
    done = subprocess.run(nothing, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "/nothing/here cannot be started" in done.stderr) == (127, True)
