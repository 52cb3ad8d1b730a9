"""Ends of calls in real processes: exit codes, signals, readers that exit, disks that are full or read-only.

In every case there is one panel on stderr, no traceback, and no temporary file remains.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests import programs
from tests.cli.processes import PROGRAM, environment, left_behind, misbehaving, started, sweet
from tests.cli.test_commands import row

ROLLOUT = ("--tasks", "micro", "--num-tasks", "4", "--agent", "m", "--agent-url")


@pytest.fixture
def imported(workplace: Path) -> Path:
    """A run with rollouts-1 and scores-1."""
    rows = [row(f"d{number}", number % 2) for number in range(60)]
    (workplace / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in rows))
    run_data_import(Path("in.jsonl"), Path("runs/in"), DataImportConfig(), Silent())
    return Path("runs/in")


def is_panel(text: str) -> bool:
    """Whether stderr has one error panel, and neither a traceback nor an internal error."""
    return (
        text.count("╭─") == 1
        and "Traceback" not in text
        and "bug in sweet" not in text
        and "Exception ignored" not in text
    )


def test_0_success(imported: Path) -> None:
    command = [*PROGRAM, "label", str(imported), "--json"]
    result = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0
    assert json.loads(result.stdout)["metrics"]["pairs"] > 0


def test_2_usage(imported: Path) -> None:
    for words in ("label --nonsense", "label nowhere", "nonsense", "label --from scores-9", "label --config none.toml"):
        result = sweet(*words.split())
        assert (result.returncode, result.stdout) == (2, "")
        assert is_panel(result.stderr)


def test_3_an_unreachable_server(workplace: Path) -> None:
    result = sweet("rollout", "runs/r", *ROLLOUT, "http://127.0.0.1:9/v1", "--retry-timeout", "0")
    assert (result.returncode, result.stdout) == (3, "")
    assert is_panel(result.stderr)
    assert "127.0.0.1:9" in result.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--agent", "m", "--agent-url", "http://127.0.0.1:9/v1", "--retry-timeout", "0"), 3),
        (("--agent", "./nowhere"), 2),
    ],
)
def test_a_run_whose_first_call_failed_at_once_is_deleted(workplace: Path, words: tuple[str, ...], code: int) -> None:
    result = sweet("rollout", "--tasks", "micro", "--num-tasks", "1", *words)
    assert result.returncode == code, result.stderr
    assert list(Path("runs").iterdir()) == []


def test_4_more_failures_than_allowed(workplace: Path) -> None:
    with misbehaving("refuse") as server:
        result = sweet("rollout", "runs/r", *ROLLOUT, server.url, "--json")
    assert result.returncode == 4, result.stderr
    assert json.loads(result.stdout)["metrics"]["failed"] == 4
    assert is_panel(result.stderr)


@pytest.fixture
def blocked(workplace: Path) -> Iterator[subprocess.Popen[str]]:
    """A rollout that waits for its agent's first reply."""
    with misbehaving("wait") as server:
        process = started(["rollout", "runs/r", *ROLLOUT, server.url])
        assert server.request_received.wait(60)
        time.sleep(0.3)
        yield process
        process.kill()
        process.communicate()


def stderr_of(process: subprocess.Popen[str]) -> str:
    """Wait until the process exits with 130, and return its stderr."""
    _, stderr = process.communicate(timeout=90)
    assert process.returncode == 130, stderr
    assert is_panel(stderr)
    assert "sweet rollout runs/r" in stderr
    assert left_behind(Path("runs/r")) == []
    assert {attempt.status for attempt in Run.open(Path("runs/r")).manifest().attempts} == {"interrupted"}
    return stderr


def test_130_an_interrupt_does_not_wait_for_replies_that_do_not_come(blocked: subprocess.Popen[str]) -> None:
    blocked.send_signal(signal.SIGINT)
    assert "What was said is kept" in stderr_of(blocked)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_130_sigterm_and_sighup_stop_at_once(blocked: subprocess.Popen[str], number: signal.Signals) -> None:
    blocked.send_signal(number)
    stderr_of(blocked)


def test_130_sigterm_stops_a_background_job_that_ignores_ctrl_c() -> None:
    work = "import time; print('at it', flush=True); time.sleep(60)"
    code = f"from sweet.cli.exits import exit_with; exit_with(lambda: exec({work!r}) or 0)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at it\n"
        process.terminate()
        process.communicate(timeout=90)
    assert process.returncode == 130


def test_130_many_interrupts(blocked: subprocess.Popen[str]) -> None:
    while blocked.poll() is None:
        blocked.send_signal(signal.SIGINT)
        time.sleep(0.02)
    _, stderr = blocked.communicate(timeout=90)
    assert blocked.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert left_behind(Path("runs/r")) == []


INTERRUPTED_IMPORT = """
import os, signal, sys
from sweet.cli import main
wanted, sys.argv = sys.argv[1], ["sweet", "rollout", "runs/r"]
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
main()
"""


@pytest.mark.parametrize("module", ["sweet.cli.app", "sweet.cli.exits", "sweet.cli.calls", "sweet.rollouts.stage"])
def test_an_interrupt_during_start_up(workplace: Path, module: str) -> None:
    result = subprocess.run(
        [PROGRAM[0], "-c", INTERRUPTED_IMPORT, module],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 130
    assert "Traceback" not in result.stderr
    assert not Path("runs").exists()


@pytest.mark.parametrize("words", ["status --schema", "data export", "rollout --help", "status"])
def test_a_reader_that_exits_is_not_an_error(imported: Path, words: str) -> None:
    process = started(words.split())
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in stderr
    assert "Exception ignored" not in stderr
    assert "╭─" not in stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full does not exist")  # noqa: PTH110
@pytest.mark.parametrize(
    "words", ["--help", "--version", "status", "status --schema", "data export", "status --json", "view"]
)
def test_a_full_output_device_is_an_error(imported: Path, words: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        result = sweet(*words.split(), stdout=full)
    assert result.returncode == 1
    assert is_panel(result.stderr), result.stderr
    assert "No space left on device" in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full does not exist")  # noqa: PTH110
def test_a_full_output_device_is_an_error_without_buffering(imported: Path) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        result = sweet("status", stdout=full, env={"PYTHONUNBUFFERED": "1"})
    assert result.returncode == 1
    assert is_panel(result.stderr), result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full does not exist")  # noqa: PTH110
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["label runs/in", "status --json", "--version"])
def test_closed_standard_streams(imported: Path, words: str, closed: str) -> None:
    line = ["sh", "-c", f"{shlex.join(PROGRAM)} {words} {closed}"]
    result = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "bug in sweet" not in result.stderr
    assert Run.open(imported).manifest().artifact("scores-1")  # nothing else was written into the manifest


def test_a_deleted_working_directory(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workplace / "gone").mkdir()
    monkeypatch.chdir("gone")
    (workplace / "gone").rmdir()
    result = sweet("rollout", "--tasks", "micro", "--num-tasks", "1")
    assert result.returncode == 2
    assert is_panel(result.stderr)
    assert "folder has been deleted" in result.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_errors_of_stderr_do_not_stop_the_work(imported: Path, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        result = sweet("label", "--json", stderr=full, env={"PYTHONUNBUFFERED": unbuffered} if unbuffered else {})
    assert json.loads(result.stdout)["metrics"]["pairs"] > 0
    assert result.returncode == 0


LIMITED = """
import resource, runpy, sys
size = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
runpy.run_module("sweet", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("size", [100, 9000, 20_000])
def test_a_limit_on_the_size_of_files(imported: Path, size: int) -> None:
    before = (imported / "manifest.json").read_bytes()
    result = programs.run(["-c", LIMITED, str(size), "label", str(imported)])
    assert result.returncode in (0, 1), result.stderr
    if result.returncode:
        assert is_panel(result.stderr), result.stderr
        assert "File too large" in result.stderr
    assert left_behind(imported) == []
    assert Run.open(imported).manifest().artifacts[0].status == "done"
    if size == 100:
        assert (imported / "manifest.json").read_bytes() == before


IN_NAMESPACE = """
import ctypes, os, runpy, subprocess, sys

user, group = os.getuid(), os.getgid()
if ctypes.CDLL(None).unshare(0x10020000):  # CLONE_NEWUSER | CLONE_NEWNS
    sys.exit(77)
for name, content in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(content)

def shell(script):
    sys.stdout.flush()
    return subprocess.run(["sh", "-c", script]).returncode

def sweet(*words):
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.argv[1:] = words
    runpy.run_module("sweet", run_name="__main__", alter_sys=True)

if shell("mount --make-rprivate /"):
    sys.exit(77)
"""
"""The beginning of a program that becomes root of a user and mount namespace of its own. It ends with status 77 where
that, or a mount, is not permitted."""


def in_namespace(program: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program in a namespace, in which it has `shell` and `sweet`; skip the test if that is not
    permitted."""
    result = programs.run(["-c", IN_NAMESPACE + program], stdin=subprocess.DEVNULL)
    if result.returncode == 77:
        pytest.skip("user namespaces with mounts are not permitted")
    return result


FULL_DISK = """
if shell("mkdir disk && mount -t tmpfs -o size=200k none disk && cp -r runs/in disk/"):
    sys.exit(77)
shell("dd if=/dev/zero of=disk/filler bs=1k count=1000 2>/dev/null")
code = sweet("label", "disk/in")
os.remove("disk/filler")
if sweet("status", "disk/in"):
    sys.exit(78)
shell("find disk -name '.manifest-*' -o -name '*.new' -o -name '*.part'")
sys.exit(code)
"""


def test_a_full_disk(imported: Path) -> None:
    result = in_namespace(FULL_DISK)
    assert result.returncode == 1, result.stderr
    assert is_panel(result.stderr), result.stderr
    assert "No space left on device" in result.stderr
    assert ".manifest-" not in result.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [("status", 0), ("view", 0), ("data export", 0), ("status --json", 0), ("label", 2), ("eval --sandbox unsafe", 2)],
)
def test_a_read_only_run(imported: Path, words: str, code: int) -> None:
    command, dashes, options = words.partition(" --")
    call = [*command.split(), "runs/in", *(dashes.strip() + options).split()]
    result = in_namespace(
        "if shell('mount --bind runs/in runs/in && mount -o remount,ro,bind runs/in'):\n    sys.exit(77)\n"
        f"sys.exit(sweet(*{call!r}))\n"
    )
    assert result.returncode == code, result.stderr
    if code:
        assert is_panel(result.stderr), result.stderr
        assert "Read-only file system" in result.stderr
        assert result.stdout == ""


def test_a_run_that_is_deleted_during_a_call(blocked: subprocess.Popen[str]) -> None:
    shutil.rmtree("runs/r")
    blocked.send_signal(signal.SIGTERM)
    _, stderr = blocked.communicate(timeout=60)
    assert blocked.returncode in (1, 2, 130)
    assert is_panel(stderr), stderr


@pytest.mark.parametrize("columns", ["40", "80"])
def test_panels_on_a_narrow_terminal_are_complete(workplace: Path, columns: str) -> None:
    result = sweet(
        "rollout", "--tasks", "a-file-with-a-rather-long-name-that-is-not-there.jsonl", env={"COLUMNS": columns}
    )
    assert result.returncode == 2
    assert max(map(len, result.stderr.splitlines())) <= int(columns)
    whole = "".join(line.strip("│ ") for line in result.stderr.splitlines())
    assert "a-file-with-a-rather-long-name-that-is-not-there.jsonl" in whole
    assert "…" not in result.stderr


def test_130_with_json_is_one_object_with_the_command_that_goes_on(workplace: Path) -> None:
    with misbehaving("wait") as server:
        process = started(["rollout", "runs/r", *ROLLOUT, server.url, "--json"])
        assert server.request_received.wait(60)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=60)
    found = json.loads(stdout)
    assert (process.returncode, found["exit_code"], found["where"]) == (130, 130, "runs/r")
    assert found["fix"].startswith("sweet rollout runs/r")
    assert is_panel(stderr)
