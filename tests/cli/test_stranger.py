"""A run from a stranger: whatever lies in the place of its files, no command follows a link out of it or waits."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweet.errors import InputError
from sweet.render.page import RenderFailed
from sweet.render.store import ScreenshotStore
from sweet.runs.run import Run
from tests.cli.conftest import Program
from tests.report_run import report_run

ROLLOUTS = "rollouts/rollouts-1.jsonl"
SCORES = "scores/scores-1.jsonl"
ACTOR = "runs/one/actor/actor-1"
TRAIN = ("train-actor", "runs/one", "--algorithm", "rft", "--from", "scores-1", "--model", ACTOR, "--allow-test")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_run(tmp_path_factory.mktemp("made") / "one").path


@pytest.fixture
def run(made: Path, workplace: Path) -> Path:
    path = workplace / "runs" / "one"
    shutil.copytree(made, path)
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the user's, outside of the run."""
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """Whoever waits for a pipe or reads a device to its end fails."""

    def waited(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def link(run: Path, place: str, outside: Path) -> Path:
    """Move a file or folder of the run out of it, and put a link in its place."""
    path, target = run / place, outside / "target"
    if path.exists():
        path.rename(target)
    else:
        path.parent.mkdir(exist_ok=True)
        target.write_text("private")
    path.symlink_to(target)
    return target


def content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file): file.read_bytes() for file in files}


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("report", "runs/one"), "report.html"),
        (("report", "runs/one"), "manifest.json"),
        (("view", "runs/one", "--html", "runs/one/page.html", "--limit", "1"), "page.html"),
        (("data", "export", "runs/one", "--out", "runs/one/out.jsonl"), "out.jsonl"),
        (("eval", "runs/one"), "scores"),
        (("eval", "runs/one"), "logs"),
        (("eval", "runs/one"), ".locks"),
        (("eval", "runs/one"), ".locks/manifest.lock"),
        (("eval", "runs/one"), "manifest.json"),
        (("eval", "runs/one", "--from", "rollouts-1"), ROLLOUTS),
        (("eval", "runs/one", "--from", "rollouts-1"), "rollouts"),
        (("label", "runs/one", "--from", "scores-1", "--allow-test"), SCORES),
        (("status", "runs/one"), "manifest.json"),
        (("compare", "runs/one:scores-1", "runs/one:scores-2"), SCORES),
        (TRAIN, "actor/actor-1/config.json"),
    ],
)
def test_no_link_is_followed(sweet: Program, run: Path, outside: Path, words: tuple[str, ...], place: str) -> None:
    if words[0] == "train-actor":
        (run / "actor/actor-1/config.json").write_text("{}")
    target = link(run, place, outside)
    before = content(target)
    outcome = sweet(*words)
    assert outcome.code == 2
    assert "symbolic link" in " ".join(outcome.err.split())
    assert content(target) == before
    assert [entry.name for entry in outside.iterdir()] == ["target"]


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("view", "runs/one", "--from", "rollouts-1", "--print"), ROLLOUTS),
        (("eval", "runs/one", "--from", "rollouts-1"), ROLLOUTS),
        (("eval", "runs/one"), ".locks/manifest.lock"),
        (("label", "runs/one", "--from", "scores-1", "--allow-test"), SCORES),
        (("status", "runs/one"), "manifest.json"),
        (("report", "runs/one"), "report.html"),
        (("compare", "runs/one:scores-1", "runs/one:scores-2"), SCORES),
    ],
)
def test_no_pipe_is_waited_for(sweet: Program, run: Path, words: tuple[str, ...], place: str) -> None:
    (run / place).unlink(missing_ok=True)
    os.mkfifo(run / place)
    outcome = sweet(*words)
    assert outcome.code == 2
    assert "named pipe" in " ".join(outcome.err.split())


@pytest.mark.parametrize("place", [ROLLOUTS, SCORES, "candidates/candidates-1.jsonl", "logs/train-critic-1.jsonl"])
@pytest.mark.parametrize("put", ["pipe", "link", "zeros"])
def test_a_report_and_the_status_say_what_is_wrong(sweet: Program, run: Path, place: str, put: str) -> None:
    (run / place).rename(run.parent / "elsewhere")
    if put == "pipe":
        os.mkfifo(run / place)
    else:
        (run / place).symlink_to("/dev/zero" if put == "zeros" else run.parent / "elsewhere")
    outcome = sweet("report", str(run), "--markdown")
    assert outcome.code == 0
    said = "named pipe" if put == "pipe" else "symbolic link"
    assert said in " ".join(outcome.err.split())
    if not place.startswith("logs"):
        assert said in sweet("status", str(run), "--json").out


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_commands_do_not_need_may_not_be_followed_either(run: Path, put: Callable[[Path], None]) -> None:
    Run.open(run)  # declares the folder to be a run
    put(run / "screenshots")
    with pytest.raises(InputError, match=r"a file, not a folder|link"):
        ScreenshotStore(run / "screenshots").put("0" * 64, RenderFailed("too_large", "endless"))


def test_a_new_run_over_a_link(workplace: Path) -> None:
    (workplace / "disk").mkdir()
    (workplace / "runs").symlink_to("disk")
    run = Run.create(Path("runs/one"), "code")
    assert Run.open(Path("runs/one")).manifest() == run.manifest()


@pytest.mark.parametrize(
    ("words", "place", "code"),
    [
        (("eval", "runs/one", "--from", "rollouts-1"), ROLLOUTS, 2),
        (("label", "runs/one", "--from", "scores-1", "--allow-test"), ROLLOUTS, 2),
        (("label", "runs/one", "--from", "scores-1", "--allow-test"), SCORES, 2),
        ((*TRAIN, "--no-verify"), SCORES, 2),
        ((*TRAIN, "--dry-run"), ROLLOUTS, 2),
        (
            ("rank", "runs/one", "--agent", "micro", "--judge", "random", "--rollouts", "rollouts-1", "--allow-test"),
            ROLLOUTS,
            2,
        ),
        (("pair", "runs/one"), "candidates/candidates-1.jsonl", 2),
        (("data", "export", "runs/one", "--from", "rollouts-1"), ROLLOUTS, 2),
        (("report", "runs/one"), ROLLOUTS, 0),
        (("report", "runs/one"), SCORES, 0),
        (("view", "runs/one", "--from", "rollouts-1", "--print"), ROLLOUTS, 0),
    ],
)
def test_a_file_that_was_cut_is_not_used_silently(
    sweet: Program, run: Path, words: tuple[str, ...], place: str, code: int
) -> None:
    (run / "actor/actor-1/config.json").unlink(missing_ok=True)
    rows = (run / place).read_bytes().splitlines(keepends=True)
    (run / place).write_bytes(b"".join(rows[: len(rows) // 2]))
    outcome = sweet(*words)
    assert outcome.code == code
    said = " ".join(outcome.err.split())
    assert (f"{len(rows) // 2} of {len(rows)} rows" in said) == (words[0] != "view")
    if code == 2:
        assert "make it again: sweet" in said
