"""The report for a bug has what one needs to know about the machine, and nothing private."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from sweet.inspection.doctor import Check, bug_report, libraries
from sweet.installation import VERSION


def test_versions_and_checks_are_rows() -> None:
    report = bug_report([Check("torch", "ok", "2.9, 4 threads", "all"), Check("vllm", "missing", "", "speed")], {})
    assert f"sweet-colbench {VERSION}" in report
    assert f"Python {platform.python_version()}" in report
    assert f"torch {libraries()['torch']}" in report
    assert report.endswith("| torch | ok | 2.9, 4 threads |\n| vllm | missing |  |\n")
    assert "set variables: none" in report


def test_nothing_private_is_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    monkeypatch.setattr(platform, "node", lambda: "laptop-of-ada")
    monkeypatch.setenv("HF_TOKEN", "very-secret-token")
    found = f"{tmp_path}/ada/models on laptop-of-ada, very-secret-token, http://me:pass@host |\nsecond line"
    report = bug_report([Check("disk", "problem", found, "all")], {"SWEET_AGENT_API_KEY": "abcdefgh"})
    row = report.splitlines()[-1]
    assert "~/models on HOST, ***, http://***@host \\| second line" in row
    assert "SWEET_AGENT_API_KEY" in report
    for private in ("ada/", "laptop", "secret", "abcdefgh", "pass@"):
        assert private not in report


def test_a_short_name_of_a_machine_leaves_words_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "vm")
    assert "| vmstat of vm |" in bug_report([Check("memory", "ok", "vmstat of vm", "all")], {})
