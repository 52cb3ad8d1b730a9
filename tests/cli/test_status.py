"""`sweet status` of one run and of all runs, also of damaged ones."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.preferences.config import PairConfig
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from tests.cli.conftest import Program
from tests.cli.test_commands import row


@pytest.fixture
def scored(workplace: Path) -> Run:
    file = workplace / "in.jsonl"
    file.write_text("".join(json.dumps(row(name, None)) + "\n" for name in "ab"))
    run_data_import(file, Path("runs/scored"), DataImportConfig(), Silent())
    run = Run(Path("runs/scored"))
    run_eval(run, EvalConfig(sandbox="unsafe"), Silent())
    return run


def interrupted(run: Run) -> None:
    """Start pairs and stop before they are finished; they would be made anew."""
    with suppress(KeyboardInterrupt), run.attempt("pair", PairConfig()) as attempt:
        draft = attempt.start_artifact("pairs")
        draft.path.write_bytes(b"x" * 5000)
        raise KeyboardInterrupt


def test_status_of_one_run(sweet: Program, scored: Run) -> None:
    interrupted(scored)
    shown = sweet("status")
    for words in ("size on the disk: ", "next: "):
        assert words in shown.out
    output = json.loads(sweet("status", "--json").out)
    assert output["bytes"] == sum(path.stat().st_size for path in scored.path.rglob("*") if path.is_file())
    assert [one["bytes"] for one in output["artifacts"] if one["kind"] == "pairs"] == [5000]


def test_all_runs_have_one_line_each_damaged_ones_too(
    sweet: Program, scored: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in (
        ("torn", b'{"schema_version": 1'),
        ("newer", b'{"schema_version": 99}'),
        ("bytes", b"\xff\xfe\x00"),
        ("evil\x1b[31m", b"[]"),
    ):
        (Path("runs") / name).mkdir()
        (Path("runs") / name / "manifest.json").write_bytes(content)
    Run.create(Path("runs/fresh"), "code")
    (Path("runs") / "notes").mkdir()
    (Path("runs") / "manifest.json").write_text("no folder")
    monkeypatch.setenv("COLUMNS", "120")
    shown = sweet("status", "--all")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    (line,) = [line for line in lines if "scored" in line]
    assert "eval done" in line
    assert "success 0.0 % [" in line
    assert sum("broken: " in line for line in lines) == 4
    assert "\x1b" not in shown.out
    output = json.loads(sweet("status", "--all", "--json").out)
    assert len(output["runs"]) == 6
    assert sum(run["problem"] is not None for run in output["runs"]) == 4
    assert {Path(run["run"]).name for run in output["runs"] if run["problem"]} == {
        "torn",
        "newer",
        "bytes",
        "evil\x1b[31m",
    }
    assert sweet("status", "--all", "runs", "--json").out.count('"run"') == 7


def test_all_runs_of_an_empty_folder(sweet: Program, workplace: Path) -> None:
    assert sweet("status", "--all").code == 2
    (workplace / "mine").mkdir()
    assert "0 runs" in sweet("status", "--all", "mine").out


@pytest.mark.parametrize("columns", ["40", "80"])
def test_narrow_terminals_show_everything(
    sweet: Program, scored: Run, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for words in (["status"], ["status", "--all"]):
        shown = sweet(*words).out
        lines = [line for line in shown.splitlines() if not line.startswith("next: ")]
        assert max(map(len, lines)) <= int(columns), "only commands are not broken"
        assert "…" not in shown
