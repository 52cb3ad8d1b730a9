"""An artifact that is not as it was finished is not used: another size, other rows, another content."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sweet.errors import InputError
from sweet.runs import content
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from tests.runs.conftest import Settings, make

ROWS = "".join(f'{{"n": {n}}}\n' for n in range(8))


@pytest.fixture
def rollouts(run: Run) -> Artifact:
    return make(run, "rollout", "rollouts", text=ROWS, num_tasks=20)


def use(run: Run, artifact: Artifact, *, verify: bool = True) -> str | None:
    """Use an artifact as a stage does; return the sha256 that is recorded of it."""
    found = run.find("rollouts", artifact.id, needed_by="eval")
    with run.attempt("eval", Settings(), inputs=[found], verify=verify):
        pass
    return run.manifest().attempts[-1].inputs[0].sha256


def rewrite(path: Path, text: str) -> None:
    """Write a file, with a time of change before it was finished."""
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


def forget(run: Run, *keys: str) -> None:
    """Remove what early versions did not record."""
    path = run.path / "manifest.json"
    value = json.loads(path.read_text())
    for key in keys:
        del value["artifacts"][0][key]
    path.write_text(json.dumps(value))


def test_what_is_unchanged_is_used(run: Run, rollouts: Artifact) -> None:
    assert use(run, rollouts) == use(run, rollouts, verify=False) == rollouts.sha256
    os.utime(run.file(rollouts))
    assert use(run, rollouts) == rollouts.sha256


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(("text", "rows"), [(ROWS[:36], 4), (ROWS[:40], 4), ("", 0), (ROWS + ROWS, 16)])
def test_other_rows(run: Run, rollouts: Artifact, text: str, rows: int, verify: bool) -> None:
    rewrite(run.file(rollouts), text)
    with pytest.raises(InputError, match=f"rollouts-1 is not as it was finished: it has {rows} of 8 rows") as error:
        use(run, rollouts, verify=verify)
    assert error.value.path == run.file(rollouts)
    assert error.value.fix == (f"restore it from a copy, or make it again: sweet rollout {run.path} --num-tasks 20")
    assert len(run.manifest().attempts) == 1, "nothing was begun"
    with pytest.raises(InputError, match=f"{rows} of 8 rows"), run.attempt("eval", Settings(), inputs=[rollouts]):
        pass
    assert run.find("rollouts", needed_by="view", as_it_is=True) == rollouts


def test_the_same_size(run: Run, rollouts: Artifact) -> None:
    rewrite(run.file(rollouts), ROWS.replace('{"n": 7}', '{"n": 9}'))
    with pytest.raises(InputError, match="its sha256 is another") as error:
        use(run, rollouts)
    assert "; --no-verify uses it as it is" in (error.value.fix or "")
    os.utime(run.file(rollouts))
    assert use(run, rollouts, verify=False) not in (None, rollouts.sha256)


def test_the_same_size_and_fewer_rows(run: Run, rollouts: Artifact) -> None:
    rewrite(run.file(rollouts), ROWS.replace('}\n{"n": 1', "}          "))
    with pytest.raises(InputError, match="7 of 8 rows"):
        use(run, rollouts, verify=False)


def test_a_run_of_an_early_version(run: Run, rollouts: Artifact) -> None:
    forget(run, "bytes")
    assert use(run, rollouts) == rollouts.sha256
    rewrite(run.file(rollouts), ROWS[:36])
    with pytest.raises(InputError, match="4 of 8 rows"):
        use(run, rollouts)
    forget(run, "rows")
    with pytest.raises(InputError, match="its sha256 is another"):
        use(run, rollouts)


def test_imported_dialogues(run: Run) -> None:
    rollouts = make(run, "data-import", "rollouts", text=ROWS)
    rewrite(run.file(rollouts), ROWS[:9])
    with pytest.raises(InputError, match="1 of 8 rows") as error:
        use(run, rollouts)
    assert "sweet data import FILE" in (error.value.fix or "")


def test_a_model(run: Run) -> None:
    with run.attempt("train-critic", Settings()) as attempt:
        draft = attempt.start_artifact("critic", suffix="")
        (draft.path / "weights").write_bytes(b"1234")
        critic = attempt.finish_artifact(draft)
    assert run.find("critic", needed_by="rank") == critic
    (draft.path / "weights").write_bytes(b"4321")
    assert run.find("critic", needed_by="rank") == critic
    with pytest.raises(InputError, match="its sha256 is another"), run.attempt("rank", Settings(), inputs=[critic]):
        pass
    (draft.path / "weights").write_bytes(b"12")
    with pytest.raises(InputError, match="it has 2 of 4 bytes"):
        run.find("critic", needed_by="rank")


def test_a_large_file_is_summed_once(run: Run, rollouts: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_WORTH_CACHING", 1)
    monkeypatch.setenv("SWEET_CACHE", str(run.path / "cache"))
    os.utime(run.file(rollouts), (1e9, 1e9))
    read: list[Path] = []

    def sum_of(path: Path) -> str:
        read.append(path)
        return rollouts.sha256 or ""

    monkeypatch.setattr(content, "file_sha256", sum_of)
    for _ in range(3):
        run.verify(rollouts)
    assert read == [run.file(rollouts)]


def test_a_file_of_another_size_is_not_read_to_know_that_it_is_stale(run: Run, rollouts: Artifact) -> None:
    scores = make(run, "eval", "scores", rollouts)
    os.truncate(run.file(rollouts), 1 << 42)  # a hole, which takes no room
    assert run.stale(rollouts) == "rollouts/rollouts-1.jsonl was changed since it was finished"
    assert run.stale(scores) == "its input rollouts-1 was changed since"
