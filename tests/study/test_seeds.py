"""The processes of a study's seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweet.cli.reporter import ConsoleReporter
from sweet.study import seeds
from sweet.study.settings import METHODS, StudySizes
from sweet.study.study_steps import SeedJob


def test_a_worker_that_ends_before_it_has_read_its_job_is_a_failure_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeds, "PROGRAM", "no_such_module")
    more_than_a_pipe_holds = (METHODS["zero-shot"],) * 10_000
    job = SeedJob(folder=tmp_path, seed=3, sizes=StudySizes(), methods=more_than_a_pipe_holds, figures=False)
    assert seeds.run_seeds([job], 1, ConsoleReporter()) == [
        f"seed-3: its process ended with status 1; see {tmp_path / 'seed-3.log'}"
    ]
    assert "No module named" in (tmp_path / "seed-3.log").read_text(encoding="utf-8")
