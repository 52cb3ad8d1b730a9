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


@pytest.mark.parametrize(("given", "jobs", "threads"), [(None, 1, "4"), (None, 2, "2"), ("1", 1, "1"), ("8", 2, "2")])
def test_a_seed_has_its_share_of_the_cores_or_fewer_threads(
    given: str | None, jobs: int, threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that wait for each other while others use the cores are many times slower than one."""
    seen = []

    async def run(job: SeedJob, environment: dict[str, str], *_: object) -> list[str]:
        seen.append(environment["OMP_NUM_THREADS"])
        return []

    monkeypatch.setattr(seeds, "_run", run)
    for module in ("sweet.device", "sweet.study.seeds"):
        monkeypatch.setattr(f"{module}.usable_cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    work = [
        SeedJob(folder=tmp_path, seed=seed, sizes=StudySizes(), methods=(METHODS["zero-shot"],), figures=False)
        for seed in range(jobs)
    ]
    assert seeds.run_seeds(work, None, ConsoleReporter()) == []
    assert seen == [threads] * jobs
