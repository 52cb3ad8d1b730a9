"""Programs that the zygote forks are like those that a new interpreter runs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import programs

DESCRIBE = (programs.ROOT / "tests" / "described.py").read_text()
linux = pytest.mark.skipif(programs.FOLDER not in os.environ, reason="programs are not forked")


@linux
@pytest.mark.parametrize("torch", [False, True])
@pytest.mark.parametrize("how", ["-c", "-m", "file"])
def test_a_forked_program_is_like_one_of_a_new_interpreter(tmp_path: Path, how: str, torch: bool) -> None:
    (tmp_path / "described.py").write_text(DESCRIBE)
    words = {"-c": ["-c", DESCRIBE], "-m": ["-m", "described"], "file": [str(tmp_path / "described.py")]}[how]
    env = os.environ | {"SWEET_ANYTHING": "1"}
    options: dict[str, Any] = {"cwd": tmp_path, "env": env, "stdin": subprocess.DEVNULL, "start_new_session": True}
    forked = programs.run([*words, "a b", ""], torch=torch, **options)
    new = subprocess.run([sys.executable, *words, "a b", ""], text=True, capture_output=True, timeout=60, **options)
    assert forked.stderr == new.stderr == ""
    assert forked.stdout.replace(programs.interpreter(), sys.executable) == new.stdout
    assert forked.args[1:] == new.args[1:]


@linux
def test_what_a_test_sets_is_not_in_the_zygote(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("LC_ALL", "C")
        programs.run(["-c", ""])
    with programs.start(["-c", ""]) as process:
        assert process.wait(60) == 0
        assert isinstance(process, programs.Forked)


@linux
def test_what_only_a_new_interpreter_reads_starts_one(tmp_path: Path) -> None:
    words = ["-c", "import sys; print(sys.stdout.write_through)"]
    for name, seen in (("PYTHONUNBUFFERED", "True\n"), ("SWEET_X", "False\n"), ("PYTHONBREAKPOINT", "False\n")):
        with programs.start(words, env=os.environ | {name: "1"}, stdout=subprocess.PIPE, text=True) as process:
            assert process.communicate(timeout=60)[0] == seen
            assert isinstance(process, programs.Forked) == (name != "PYTHONUNBUFFERED")


@pytest.mark.parametrize(("code", "ends"), [("pass", 0), ("raise SystemExit(3)", 3), ("import sys; sys.exit('no')", 1)])
def test_the_exit_code_is_the_program_s(code: str, ends: int) -> None:
    assert programs.run(["-c", code]).returncode == ends


def test_an_error_ends_a_program_with_its_traceback() -> None:
    ended = programs.run(["-c", "1/0"])
    assert ended.returncode == 1
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_program(number: signal.Signals) -> None:
    words = ["-c", "import time; print('up', flush=True); time.sleep(60)"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with programs.start(words, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait(60) == -number
        assert process.poll() == -number


def test_a_program_reads_its_input_and_runs_beside_others() -> None:
    words = ["-c", "import sys; sys.stdout.write(sys.stdin.read().upper())"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with programs.start(words, text=True, **pipes) as one, programs.start(words, text=True, **pipes) as other:
        assert other.communicate("other", timeout=60)[0] == "OTHER"
        assert one.communicate("one", timeout=60)[0] == "ONE"
    assert (one.returncode, other.returncode) == (0, 0)


@linux
def test_a_program_whose_zygote_is_killed_is_an_error_each_time_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(programs.FOLDER, "")  # so that it is restored
    with programs.zygotes(tmp_path / "zygotes"):
        control = programs.zygote.__wrapped__("commands")
        words = ["-c", "import os, sys; print(os.getppid(), flush=True); sys.stdin.read()"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = programs.Forked(control, words, dict(os.environ), text=True, **pipes)
        assert process.stdin is not None
        assert process.stdout is not None
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
        for wait in (process.wait, process.poll, process.poll, process.wait):
            with pytest.raises(RuntimeError):
                wait()
        process.stdin.close()
        assert process.stdout.read() == "", "it reads until its input is closed, and ends"
        process.stdout.close()
        control.close()


def by_stand_in(*words: str, **options: Any) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([programs.interpreter(), *words], **pipes | options)


@linux
@pytest.mark.parametrize("how", [["-m"], ["-u", "-m"], ["-P", "-m"]])
def test_what_the_stand_in_forks_is_like_the_program_of_a_new_interpreter(tmp_path: Path, how: list[str]) -> None:
    changed = {"PYTHONPATH": str(programs.ROOT), "PYTHONWARNINGS": "ignore", "RANK": "1"}
    changed |= {} if "-P" in how else {"PYTHONSAFEPATH": "1"}
    options: dict[str, Any] = {"cwd": tmp_path, "env": os.environ | changed, "start_new_session": True}
    words = ["-m", "tests.described", "3", "", "a b"]
    with by_stand_in(*how[:-1], *words, stdin=subprocess.DEVNULL, **options) as forked:
        found = json.loads(forked.communicate(timeout=60)[0])
    new = subprocess.run(
        [sys.executable, *how[:-1], *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, **options
    )
    expected = json.loads(new.stdout)
    assert forked.returncode == new.returncode == 3
    assert found["orig_argv"] == found["shown"] == [programs.interpreter(), *words]
    assert found["executable"] == programs.interpreter()
    other = {"orig_argv", "shown", "executable", "leads"}
    assert {name: found[name] for name in found.keys() - other} == {
        name: expected[name] for name in found.keys() - other
    }


COMPUTING = """
import os
import torch
from tests import zygote
zygote.use_one_thread()
torch.zeros(1 << 20).fill_(1)
if not os.fork():
    zygote.apply(dict(os.environ))
    print(torch.get_num_threads(), torch.zeros(1 << 20).fill_(1).sum().item(), flush=True)
    os._exit(0)
os.wait()
"""


@linux
def test_a_child_computes_in_threads_after_its_zygote_has_computed() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", COMPUTING]
    done = subprocess.run(command, env=environment, cwd=programs.ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "2 1048576.0\n", done.stderr


@linux
def test_the_stand_in_forks_given_code() -> None:
    with by_stand_in("-c", "import os, sys; print(os.getpid(), sys.executable, *sys.argv)", "a b") as process:
        pid, *rest = process.communicate(timeout=60)[0].split(" ", 2)
    assert (int(pid) != process.pid, rest) == (True, [programs.interpreter(), "-c a b\n"])


@linux
def test_the_stand_in_runs_all_else_in_its_own_process() -> None:
    for words in (["-S", "-c"], ["-I", "-S", "-c"]):
        with by_stand_in(*words, "import os, sys; print(os.getpid(), sys.executable)") as process:
            assert process.communicate(timeout=60)[0].split() == [str(process.pid), sys.executable]
    with by_stand_in("-m", "tests.described", "wait", env=os.environ | {"PYTHONHASHSEED": "1"}) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["executable"] == sys.executable
        assert process.stdout.readline() == f"{process.pid}\n"
        process.kill()


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_stand_in_ends_what_it_has_forked(number: signal.Signals) -> None:
    with by_stand_in("-m", "tests.described", "wait") as process:
        assert process.stdout is not None
        process.stdout.readline()
        forked = os.pidfd_open(int(process.stdout.readline()))
        process.send_signal(number)
        assert process.wait(60) == -number
        assert select.select([forked], [], [], 60)[0], "it has ended"
        os.close(forked)


@linux
def test_a_signal_that_comes_after_what_was_forked_has_ended_is_not_an_error() -> None:
    with by_stand_in("-m", "tests.described", "wait") as process:
        assert process.stdout is not None
        process.stdout.readline()
        forked = int(process.stdout.readline())
        process.send_signal(signal.SIGSTOP)  # so that it does not hear of the end before the next signal comes
        os.kill(forked, signal.SIGTERM)
        while Path(f"/proc/{forked}").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == -signal.SIGTERM
