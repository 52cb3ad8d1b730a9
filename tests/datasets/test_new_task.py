"""`sweet data new-task`: the skeleton works at once and passes the linters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweet.cli.app import run
from sweet.datasets.skeletons import NewTaskConfig, run_new_task
from sweet.errors import UsageError
from tests.packages import EXAMPLE, register

ROOT = EXAMPLE.parent.parent
TYPED = """
[[tool.mypy.overrides]]
module = ["sweet.tasks.*", "sweet.errors", "sweet.json_value", "pydantic.*", "pytest.*", "_pytest.*"]
follow_imports = "normal"

[[tool.mypy.overrides]]
module = ["numpy.*"]
follow_imports = "skip"
follow_imports_for_stubs = true
"""
"""What the skeleton imports has types. To read the others too (torch, transformers, …) takes mypy a minute."""


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "haiku"
    result = run_new_task(folder, NewTaskConfig(name="haiku-2"))
    assert result.metrics.as_json() == {"name": "haiku-2", "package": "sweet_haiku_2", "files": 13}
    return folder


def test_what_is_written_is_played_and_scored(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in register(made, made.parent / "site"):
        monkeypatch.syspath_prepend(path)
    monkeypatch.chdir(made)

    def sweet(*words: str) -> str:
        code, said = run(words), capsys.readouterr()
        assert code == 0, said.err
        return said.out

    def metrics(*words: str) -> dict[str, Any]:
        return dict(json.loads(sweet(*words, "--json"))["metrics"])

    play = ("rollout", "runs/haiku", "--task", "haiku-2", "--agent", "scripted", "--samples", "8")
    commands = (made / "README.md").read_text()
    assert f"$ sweet {' '.join(play).replace('runs/haiku', 'runs/haiku-2')}\n" in commands
    assert metrics(*play)["episodes"] == 8
    assert 0 < metrics("eval", "runs/haiku")["tests_passed"] < 1
    assert metrics("label", "runs/haiku")["pairs"] > 0
    assert "Dear Ada" in sweet("view", "runs/haiku", "--id", "tiny-train-1-s2")


def test_what_is_written_passes_its_own_tests_and_checks(made: Path) -> None:
    paths = [str(path) for path in (*register(made, made.parent / "site"), ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def call(*words: str) -> str:
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=made, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "passed" in call("pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml")
    call("ruff", "check", "--no-cache", ".")
    call("ruff", "check", "--config", str(ROOT / "pyproject.toml"), "--ignore", "I001", "--no-cache", ".")
    call("ruff", "format", "--check", "--no-cache", ".")
    table = "[tool.mypy]\nstrict = true\n"
    settings = (made / "pyproject.toml").read_text()
    assert table in settings
    (made.parent / "pyproject.toml").write_text(settings.replace(table, f'{table}follow_imports = "skip"\n') + TYPED)
    call("mypy", "--config-file", "../pyproject.toml", "--cache-dir", os.devnull, ".")


def test_nothing_is_left_to_fill_in(made: Path) -> None:
    texts = [path.read_text() for path in made.rglob("*") if path.is_file()]
    assert not [text for text in texts if "@" in text.replace("@contextmanager", "").replace("@p", "")]
    assert not [path for path in made.parent.iterdir() if path != made]


def test_nothing_is_overwritten(made: Path, tmp_path: Path) -> None:
    (made / "README.md").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        run_new_task(made, NewTaskConfig(name="other"))
    assert (made / "README.md").read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        run_new_task(tmp_path / "file", NewTaskConfig(name="other"))


def test_an_empty_folder_is_filled_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert run_new_task(Path(), NewTaskConfig(name="other")).metrics.files == 13
    assert Path("pyproject.toml").is_file()
    assert list(tmp_path.iterdir()) == [tmp_path / "empty"]


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("---", "--name mine"),
        ("Haiku", "--name haiku"),
        ("9lives", "--name lives"),
        ("a b/../c", "--name a-b-c"),
        ("x-", "--name x"),
        ("héllo\n", "--name h-llo"),
        ("a" * 41, "--name " + "a" * 40),
        ("code", "--name my-code"),
        ("rl", "--name my-rl"),
        ("colbench", "--name my-colbench"),
        ("task", "--name my-task"),
    ],
)
def test_names_that_cannot_be(tmp_path: Path, name: str, fix: str) -> None:
    with pytest.raises(UsageError) as error:
        run_new_task(tmp_path / "new", NewTaskConfig(name=name))
    assert error.value.fix == fix
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("workplace")
def test_the_command_says_what_comes_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "new-task", "a folder", "--name", "haiku"]) == 0
    result = capsys.readouterr().err
    assert "next: pip install -e 'a folder'" in result
    assert "next: sweet rollout runs/haiku --task haiku --agent scripted --samples 8" in result
    assert run(["data", "new-task", "other"]) == 2
