"""Start-up: help and completion import no heavy modules, once the options of a command are stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.stages.base import Silent
from tests.cli.test_commands import row

HEAVY = (
    "pydantic",
    "pydantic_core",
    "filelock",
    "openai",
    "torch",
    "transformers",
    "textual",
    "asyncio",
)
LIGHT = ("sweet.runs", "sweet.runs.stages", "sweet.cli.commands")
"""The table of the stages, which imports no heavy modules."""
ROOMS = ("stages", "runs", "tasks", "llm", "learn", "humans", "render", "sandbox")
ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
sys.argv = ["sweet", *json.loads(sys.argv[1])]
from sweet.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.stdout.flush()
    with open("loaded.json", "w") as file:
        json.dump(sorted(sys.modules), file)
"""


def loaded_by(words: list[str], folder: Path, **environment: str) -> tuple[set[str], str]:
    """The modules that a call of the program imports, and its stdout."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
    return set(json.loads((folder / "loaded.json").read_text())), result.stdout


def heavy_modules(modules: set[str]) -> list[str]:
    rooms = tuple(f"sweet.{room}" for room in ROOMS)
    needed = {name for name in modules if name in HEAVY or name.startswith(rooms)}
    return sorted(needed.difference(LIGHT))


@pytest.mark.parametrize("words", ["", "-h", "--help", "rollout -h", "train-critic --help", "data", "data import -h"])
def test_help_imports_no_heavy_modules(tmp_path: Path, words: str) -> None:
    loaded_by(words.split(), tmp_path)
    modules, shown = loaded_by(words.split(), tmp_path)
    assert heavy_modules(modules) == []
    assert shown.startswith("Usage: sweet")


@pytest.mark.parametrize(
    "line", ["sweet ", "sweet ro", "sweet rollout --ta", "sweet label RUN --from ", "sweet data i"]
)
def test_completion_imports_no_heavy_modules(tmp_path: Path, line: str) -> None:
    words = line.split(" ")
    asked = {"_SWEET_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    loaded_by([], tmp_path, **asked)
    modules, _ = loaded_by([], tmp_path, **asked)
    assert heavy_modules(modules) == []


def test_a_command_imports_no_other_command(tmp_path: Path) -> None:
    modules, _ = loaded_by(["status", "--schema"], tmp_path)
    assert {name for name in modules if name.startswith("sweet.cli.commands.")} == {"sweet.cli.commands.status"}
    assert not {"torch", "transformers", "openai", "textual"} & modules


def test_an_export_that_needs_no_tokenizer_imports_no_torch(tmp_path: Path) -> None:
    rows = tmp_path / "in.jsonl"
    rows.write_text(json.dumps(row("d1", 1)) + "\n")
    run_data_import(rows, tmp_path / "run", DataImportConfig(), Silent())
    modules, shown = loaded_by(["data", "export", "run", "--quiet"], tmp_path)
    assert len(shown.splitlines()) == 1
    assert not {"torch", "transformers"} & modules


def test_options_are_stored_until_a_module_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_CACHE", str(tmp_path / "cache"))
    first, shown = loaded_by(["pair", "--help"], tmp_path)
    (stored,) = (tmp_path / "cache" / "options").iterdir()
    again, shown_again = loaded_by(["pair", "--help"], tmp_path)
    assert ("sweet.preferences.config" in first, "sweet.preferences.config" in again) == (True, False)
    assert shown_again == shown
    content = json.loads(stored.read_text())
    assert content["files"][str(ROOT / "sweet" / "preferences" / "config.py")]
    content["files"][str(ROOT / "sweet" / "preferences" / "config.py")][0] -= 1
    stored.write_text(json.dumps(content | {"options": []}))
    assert loaded_by(["pair", "--help"], tmp_path)[1] == shown, "a module is newer"
    for text in ("", "[]", '{"files": {}}', '{"files": {}, "options": [{"unknown": 1}]}'):
        stored.write_text(text)
        assert loaded_by(["pair", "--help"], tmp_path)[1] == shown, "the file is damaged"
    monkeypatch.setenv("SWEET_CACHE", "/dev/null")
    assert loaded_by(["pair", "--help"], tmp_path)[1] == shown, "nothing can be stored"
