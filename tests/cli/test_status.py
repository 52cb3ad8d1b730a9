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


@pytest.mark.parametrize("columns", ["40", "80"])
def test_narrow_terminals_show_everything(
    sweet: Program, scored: Run, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = sweet("status").out
    lines = [line for line in shown.splitlines() if not line.startswith("next: ")]
    assert max(map(len, lines)) <= int(columns), "only commands are not broken"
    assert "…" not in shown
