"""Programs that `test_processes` starts and kills. `python -m tests.runs.victims NAME ARGUMENTS`.

`kill-everywhere` looks at the files of one piece of work at each event (a file opened, renamed, removed, cut or synced,
a folder made), in a child, and copies them where they have changed: a SIGKILL just before that event would leave these
files, and nothing else of the process. When the child has ended, it puts each copy in the place of the run, and checks
what is left and that the same work goes on.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sweet.errors import UsageError
from sweet.runs.jsonl import JsonlWriter, read_rows
from sweet.runs.run import Run
from tests.runs.conftest import Settings, make

ROWS = 4
EVENTS = {"open", "os.rename", "os.remove", "os.truncate", "os.mkdir"}


def work(path: Path) -> None:
    """Dialogues that may be gone on with, a folder that is made anew, and a file that is written at once."""
    run = Run.open_or_create(path, "code")
    with run.attempt("rollout", Settings()) as attempt:
        draft = attempt.start_artifact("rollouts", meta={"agent": "micro"}, resume=True)
        with JsonlWriter(draft.path) as writer:
            for number in range(writer.rows, ROWS):
                writer.write({"id": number})
        rollouts = attempt.finish_artifact(draft, rows=writer.rows)
    with run.attempt("train-critic", Settings(), inputs=[rollouts]) as attempt:
        draft = attempt.start_artifact("critic", suffix="", resume=True)
        (draft.path / "weights").write_bytes(b"123")
        attempt.finish_artifact(draft)
    with run.attempt("label", Settings(), inputs=[rollouts]) as attempt:
        draft = attempt.start_artifact("preferences", restart=True)
        with JsonlWriter(draft.path) as writer:
            writer.write({"id": 0})
        attempt.finish_artifact(draft, rows=1)


def check(path: Path, event: int) -> None:
    """Nothing is lost or unknown after a kill; the same work goes on, and ends as if nothing had been."""
    if (path / "manifest.json").exists():
        run = Run.open(path)
        manifest = run.manifest()
        assert run.unknown_files(manifest) == [], event
        assert all(attempt.status != "running" for attempt in manifest.attempts), event
        before = [artifact for artifact in manifest.artifacts if artifact.status == "done"]
        labelled = any((attempt.stage, attempt.status) == ("label", "done") for attempt in manifest.attempts)
        assert [run.stale(artifact) for artifact in before] == [None] * len(before), event
    else:
        before, labelled = [], False
    work(path)
    run = Run.open(path)
    rollouts, critic = run.find("rollouts", needed_by="x"), run.find("critic", needed_by="x")
    assert [row["id"] for _, row in read_rows(run.file(rollouts))] == list(range(ROWS)), event
    assert (rollouts.id, rollouts.rows, critic.id) == ("rollouts-1", ROWS, "critic-1"), event
    assert run.stale(critic) is None, event
    made = [artifact.id for artifact in run.manifest().of_kind("preferences")]
    assert made == ["preferences-1", "preferences-2"][: 1 + labelled], event
    after = {artifact.id: artifact.sha256 for artifact in run.manifest().artifacts}
    assert all(after[artifact.id] == artifact.sha256 for artifact in before), event
    leftovers = [entry.name for entry in path.iterdir() if entry.name.startswith(".manifest-")]
    assert leftovers == [], event


def before_each_event(root: Path, act: Callable[[int], None]) -> None:
    """Call `act` with its number before each event of this process that concerns `root`."""
    number, acting = 0, False

    def count() -> None:
        nonlocal number, acting
        if not acting:
            acting = True
            act(number)
            number, acting = number + 1, False

    def audit(name: str, arguments: tuple[object, ...]) -> None:
        if name in EVENTS and (str(root) in str(arguments[0]) or isinstance(arguments[0], int)):
            count()

    vars(os)["fsync"] = lambda file: count()
    sys.addaudithook(audit)


def in_child(act: Callable[[], object]) -> int:
    """Return the status with which a fork of this process ends that does this."""
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def state(root: Path) -> list[tuple[str, bytes]]:
    """All files and folders and their content, but for its digits: process ids, times and sums differ each time."""
    return sorted(
        (str(path), re.sub(rb"[0-9a-f]*[0-9][0-9a-f]*", b"0", path.read_bytes()) if path.is_file() else b"folder")
        for path in root.rglob("*")
    )


def look_at_each_event(root: Path, copies: Path) -> None:
    """Do the work, and copy the files before each event since which they have changed to the folder of its number."""
    last: list[tuple[str, bytes]] | None = None

    def look(event: int) -> None:
        nonlocal last
        now = state(root)
        if now != last:
            (copies / str(event)).mkdir(parents=True)
            if root.exists():
                shutil.copytree(root, copies / str(event) / root.name)
        last = now

    before_each_event(root, look)
    work(root)


def kill_everywhere(folder: Path) -> None:
    vars(os)["fsync"] = lambda file: None  # what a killed process has written is there without it
    work(folder / "first")  # what is kept in memory from now on is read, and is no event of one child alone
    root, copies = folder / "run", folder / "copies"
    assert in_child(partial(look_at_each_event, root, copies)) == 0
    numbers = sorted(int(copy.name) for copy in copies.iterdir())
    check(root, len(numbers))
    for event in numbers:
        shutil.rmtree(root)
        left = copies / str(event) / root.name
        if left.exists():
            left.rename(root)
        check(root, event)
    print(len(numbers))


def many(path: Path, name: str, count: int) -> None:
    """Attempts one after the other in a run that others use too."""
    run = Run.open_or_create(path, "code")
    for number in range(count):
        make(run, "rollout", "rollouts", text=f'{{"by": "{name}-{number}"}}\n')


def hold(path: Path) -> None:
    """Write two rows of a dialogue file and wait to be killed."""
    run = Run.open_or_create(path, "code")
    with run.attempt("rollout", Settings()) as attempt:
        draft = attempt.start_artifact("rollouts", resume=True)
        with JsonlWriter(draft.path) as writer:
            writer.write({"id": 0})
            os.write(writer._file, b'{"id": ')
            print("ready", flush=True)
            sys.stdin.read()


def slow(path: Path, rows: int) -> None:
    """Write rows one by one until there are enough."""
    run = Run.open_or_create(path, "code")
    print("ready", flush=True)
    with run.attempt("rollout", Settings()) as attempt:
        draft = attempt.start_artifact("rollouts", resume=True)
        with JsonlWriter(draft.path) as writer:
            for number in range(writer.rows, rows):
                writer.write({"id": number, "text": "x" * 20_000})
                time.sleep(0.001)
        attempt.finish_artifact(draft, rows=writer.rows)


def main(name: str, folder: str, *rest: str) -> None:
    path = Path(folder)
    programs: dict[str, Callable[[], None]] = {
        "kill-everywhere": lambda: kill_everywhere(path),
        "many": lambda: many(path, rest[0], int(rest[1])),
        "hold": lambda: hold(path),
        "slow": lambda: slow(path, int(rest[0])),
    }
    try:
        programs[name]()
    except UsageError as error:
        print(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
