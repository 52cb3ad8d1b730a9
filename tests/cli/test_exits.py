"""How calls end, each in a real process: exit codes, signals, readers that leave, disks that are full or read-only.

Whatever happens, there is one panel on stderr, no traceback, and no temporary file stays.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweet.datasets.import_export import DataImportConfig, run_data_import
from sweet.runs.run import Run
from sweet.stages.base import Silent
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


def is_a_panel(text: str) -> bool:
    """Whether a call said what is wrong in a panel, and nothing of its own insides."""
    return (
        text.count("╭─") == 1
        and "Traceback" not in text
        and "bug in sweet" not in text
        and "Exception ignored" not in text
    )


def test_0_done(imported: Path) -> None:
    made = sweet("label", str(imported), "--json")
    assert made.returncode == 0
    assert json.loads(made.stdout)["metrics"]["pairs"] > 0


def test_2_usage(imported: Path) -> None:
    for words in ("label --nonsense", "label nowhere", "nonsense", "label --from scores-9", "label --config none.toml"):
        made = sweet(*words.split())
        assert (made.returncode, made.stdout) == (2, "")
        assert is_a_panel(made.stderr)


def test_3_a_server_that_is_not_there(workplace: Path) -> None:
    made = sweet("rollout", "runs/r", *ROLLOUT, "http://127.0.0.1:9/v1", "--retry-timeout", "0")
    assert (made.returncode, made.stdout) == (3, "")
    assert is_a_panel(made.stderr)
    assert "127.0.0.1:9" in made.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--agent", "m", "--agent-url", "http://127.0.0.1:9/v1", "--retry-timeout", "0"), 3),
        (("--agent", "./nowhere"), 2),
    ],
)
def test_a_run_in_which_nothing_could_begin_is_not_the_newest(
    workplace: Path, words: tuple[str, ...], code: int
) -> None:
    made = sweet("rollout", "--tasks", "micro", "--num-tasks", "1", *words)
    assert made.returncode == code, made.stderr
    assert list(Path("runs").iterdir()) == []


def test_4_more_failures_than_allowed(workplace: Path) -> None:
    with misbehaving("refuse") as server:
        made = sweet("rollout", "runs/r", *ROLLOUT, server.url, "--json")
    assert made.returncode == 4, made.stderr
    assert json.loads(made.stdout)["metrics"]["failed"] == 4
    assert is_a_panel(made.stderr)


@pytest.fixture
def waiting(workplace: Path) -> Iterator[subprocess.Popen[str]]:
    """A rollout that waits for its agent's first word."""
    with misbehaving("wait") as server:
        process = started(["rollout", "runs/r", *ROLLOUT, server.url])
        assert server.asked.wait(60)
        time.sleep(0.3)
        yield process
        process.kill()
        process.communicate()


def ends(process: subprocess.Popen[str]) -> str:
    """What it said on stderr until it exit_code_of with 130."""
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert is_a_panel(said)
    assert "sweet rollout runs/r" in said
    assert left_behind(Path("runs/r")) == []
    assert {attempt.status for attempt in Run.open(Path("runs/r")).manifest().attempts} == {"interrupted"}
    return said


def test_130_an_interrupt_drains_and_a_second_one_stops(waiting: subprocess.Popen[str]) -> None:
    waiting.send_signal(signal.SIGINT)
    time.sleep(1)
    assert waiting.poll() is None
    waiting.send_signal(signal.SIGINT)
    assert "Ctrl-C again" in ends(waiting)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_130_sigterm_and_a_terminal_that_is_closed_stop_at_once(
    waiting: subprocess.Popen[str], number: signal.Signals
) -> None:
    waiting.send_signal(number)
    ends(waiting)


def test_130_sigterm_where_ctrl_c_is_ignored_as_behind_a_shells_ampersand() -> None:
    work = "import time; print('at it', flush=True); time.sleep(60)"
    code = f"from sweet.cli.signals import exit_with; exit_with(lambda: exec({work!r}) or 0)"
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
        process.communicate(timeout=30)
    assert process.returncode == 130


def test_130_a_storm_of_interrupts(waiting: subprocess.Popen[str]) -> None:
    while waiting.poll() is None:
        waiting.send_signal(signal.SIGINT)
        time.sleep(0.02)
    _, said = waiting.communicate(timeout=30)
    assert waiting.returncode == 130, said
    assert "Traceback" not in said
    assert left_behind(Path("runs/r")) == []


IMPATIENT = """
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
def test_an_interrupt_while_the_program_starts(workplace: Path, module: str) -> None:
    made = subprocess.run(
        [PROGRAM[0], "-c", IMPATIENT, module],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert made.returncode == 130
    assert "Traceback" not in made.stderr
    assert not Path("runs").exists()


@pytest.mark.parametrize("words", ["status --schema", "data export", "rollout --help", "status"])
def test_a_reader_that_leaves_is_no_error(imported: Path, words: str) -> None:
    process = started(words.split())
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert "╭─" not in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize(
    "words", ["--help", "--version", "status", "status --schema", "data export", "status --json", "view"]
)
def test_an_output_that_is_full(imported: Path, words: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        made = sweet(*words.split(), stdout=full)
    assert made.returncode == 1
    assert is_a_panel(made.stderr), made.stderr
    assert "No space left on device" in made.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")  # noqa: PTH110
def test_an_output_that_is_full_and_not_buffered(imported: Path) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        made = sweet("status", stdout=full, env={"PYTHONUNBUFFERED": "1"})
    assert made.returncode == 1
    assert is_a_panel(made.stderr), made.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["label runs/in", "status --json", "--version"])
def test_streams_that_are_closed(imported: Path, words: str, closed: str) -> None:
    line = ["sh", "-c", f"{shlex.join(PROGRAM)} {words} {closed}"]
    made = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert made.returncode == 0, made.stderr
    assert "bug in sweet" not in made.stderr
    assert Run.open(imported).manifest().artifact("scores-1")  # nothing else was written into the manifest


def test_a_folder_that_has_been_deleted(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workplace / "gone").mkdir()
    monkeypatch.chdir("gone")
    (workplace / "gone").rmdir()
    made = sweet("rollout", "--tasks", "micro", "--num-tasks", "1")
    assert made.returncode == 2
    assert is_a_panel(made.stderr)
    assert "folder has been deleted" in made.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_narration_that_cannot_be_written_does_not_stop_the_work(imported: Path, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        made = sweet("label", "--json", stderr=full, env={"PYTHONUNBUFFERED": unbuffered})
    assert json.loads(made.stdout)["metrics"]["pairs"] > 0
    assert made.returncode == 0


def limited(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("size", [100, 9000, 20_000])
def test_a_file_that_may_not_grow(imported: Path, size: int) -> None:
    before = (imported / "manifest.json").read_bytes()
    made = sweet("label", str(imported), preexec_fn=lambda: limited(size))
    assert made.returncode in (0, 1), made.stderr
    if made.returncode:
        assert is_a_panel(made.stderr), made.stderr
        assert "File too large" in made.stderr
    assert left_behind(imported) == []
    assert Run.open(imported).manifest().artifacts[0].status == "done"
    if size == 100:
        assert (imported / "manifest.json").read_bytes() == before


def in_namespace(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script as root of a user and mount namespace of its own; skips where that is not allowed."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespace with mounts of its own is allowed here")
    program = " ".join(PROGRAM)
    return subprocess.run(
        [unshare, "-rm", "sh", "-c", script.replace("SWEET", program)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_disk_that_is_full(imported: Path) -> None:
    made = in_namespace(
        "mkdir disk && mount -t tmpfs -o size=200k none disk && cp -r runs/in disk/ || exit 77; "
        "dd if=/dev/zero of=disk/filler bs=1k count=1000 2>/dev/null; "
        "SWEET label disk/in; code=$?; rm disk/filler; SWEET status disk/in || exit 78; "
        "find disk -name '.manifest-*' -o -name '*.new' -o -name '*.part'; exit $code"
    )
    if made.returncode == 77:
        pytest.skip("no tmpfs may be mounted here")
    assert made.returncode == 1, made.stderr
    assert is_a_panel(made.stderr), made.stderr
    assert "No space left on device" in made.stderr
    assert ".manifest-" not in made.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [("status", 0), ("view", 0), ("data export", 0), ("status --json", 0), ("label", 2), ("eval --sandbox unsafe", 2)],
)
def test_a_run_that_cannot_be_written(imported: Path, words: str, code: int) -> None:
    command, _, options = words.replace("data export", "data\xa0export").partition(" ")
    command = command.replace("\xa0", " ")
    made = in_namespace(
        "mount --bind runs/in runs/in && mount -o remount,ro,bind runs/in || exit 77; "
        f"SWEET {command} runs/in {options} </dev/null"
    )
    if made.returncode == 77:
        pytest.skip("nothing may be mounted read-only here")
    assert made.returncode == code, made.stderr
    if code:
        assert is_a_panel(made.stderr), made.stderr
        assert "Read-only file system" in made.stderr
        assert made.stdout == ""


def test_a_run_that_is_deleted_while_it_is_in_use(waiting: subprocess.Popen[str]) -> None:
    shutil.rmtree("runs/r")
    waiting.send_signal(signal.SIGTERM)
    _, said = waiting.communicate(timeout=60)
    assert waiting.returncode in (1, 2, 130)
    assert is_a_panel(said), said


@pytest.mark.parametrize("columns", ["40", "80"])
def test_panels_on_a_narrow_terminal_lose_nothing(workplace: Path, columns: str) -> None:
    made = sweet(
        "rollout", "--tasks", "a-file-with-a-rather-long-name-that-is-not-there.jsonl", env={"COLUMNS": columns}
    )
    assert made.returncode == 2
    assert max(map(len, made.stderr.splitlines())) <= int(columns)
    whole = "".join(line.strip("│ ") for line in made.stderr.splitlines())
    assert "a-file-with-a-rather-long-name-that-is-not-there.jsonl" in whole
    assert "…" not in made.stderr
