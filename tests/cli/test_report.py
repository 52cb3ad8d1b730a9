"""`sweet report` through the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Program
from tests.report_run import report_run


@pytest.fixture
def path(workplace: Path) -> Path:
    return report_run(workplace / "runs" / "one").path


def test_the_newest_run_gets_a_page(sweet: Program, path: Path) -> None:
    outcome = sweet("report")
    assert (outcome.code, outcome.out) == (0, "runs/one/report.html\n")
    assert "Using runs/one" in outcome.err
    assert (path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert json.loads(sweet("status", "--json").out)["unknown"] == []


def test_another_file(sweet: Program, path: Path) -> None:
    outcome = sweet("report", str(path), "--out", "page.html")
    assert (outcome.code, outcome.out) == (0, "page.html\n")
    assert not (path / "report.html").exists()
    assert Path("page.html").exists()


def test_markdown_and_json_write_no_page(sweet: Program, path: Path) -> None:
    outcome = sweet("report", str(path), "--markdown")
    assert outcome.code == 0
    assert outcome.out.startswith("### sweet run `one`\n")
    found = json.loads(sweet("report", str(path), "--json").out)
    assert (found["stage"], found["run"]) == ("report", str(path))
    assert found["artifacts"][0].keys() >= {"id", "kind", "path", "rows"}
    assert found["metrics"]["success_rate"] == 0.75
    assert not (path / "report.html").exists()
    assert sweet("report", str(path), "--markdown", "--out", "page.html").code == 0
    assert Path("page.html").exists()


@pytest.mark.parametrize("out", ["nowhere/page.html", "runs"])
def test_an_invalid_output_file_is_a_usage_error(sweet: Program, path: Path, out: str) -> None:
    outcome = sweet("report", str(path), "--out", out)
    assert outcome.code == 2
    assert "try" in outcome.err


def test_a_folder_without_write_permission(sweet: Program, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "x")

    monkeypatch.setattr(os, "replace", refused)
    outcome = sweet("report", str(path))
    assert outcome.code == 2
    assert "Permission denied" in outcome.err
    assert not list(path.glob("*.part"))


def test_damaged_files_are_warned_about(sweet: Program, path: Path) -> None:
    (path / "scores" / "scores-1.jsonl").write_text("broken\n")
    outcome = sweet("report", str(path))
    assert outcome.code == 0
    assert "scores-1.jsonl" in outcome.err


def test_a_missing_run_is_a_usage_error(sweet: Program, workplace: Path) -> None:
    assert sweet("report").code == 2
    assert sweet("report", "nothing").code == 2
