"""Every attempt has results and a row in the documentation, and stages accept the settings of those that can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import sweet_attempts
from benchmarks.micro_tuning import FIRST_SEED
from benchmarks.sweet_attempts import ATTEMPTS, BEGIN, END, PAGE, Attempt, block, measure, read
from sweet.cli.generated import put_between
from sweet.preferences.config import PairConfig
from sweet.ranking.config import RankConfig
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.study.settings import METHODS, StudyConfig
from sweet.training.config import TrainActorConfig, TrainCriticConfig


def test_the_page_has_the_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == put_between(page, BEGIN, END, block(read())), "run: python -m benchmarks.sweet_attempts --page"


def test_every_attempt_has_results_on_seeds_that_the_study_does_not_use() -> None:
    names = [attempt.name for attempt in ATTEMPTS]
    assert len(set(names)) == len(names)
    success = read()["success"]
    assert success.keys() == set(names)
    seeds = {int(seed) for found in success.values() for seed in found}
    assert min(seeds) >= FIRST_SEED > max(StudyConfig().all_seeds)


@pytest.mark.parametrize("attempt", [one for one in ATTEMPTS if one.method is not None], ids=lambda one: one.name)
def test_the_stages_accept_the_settings(attempt: Attempt) -> None:
    assert attempt.method is not None
    for config, options in (
        (TrainCriticConfig, attempt.method.critic),
        (RankConfig, attempt.method.rank),
        (PairConfig, attempt.method.pair),
        (TrainActorConfig, attempt.method.actor),
    ):
        assert config.model_validate(options).model_dump(include=set(options)) == options


def test_an_attempt_is_measured_on_validation_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweet_attempts, "TASKS", 4)
    sizes = {"train_tasks": 6, "samples": 2, "candidates": 4, "fraction": 1.0, "device": "cpu"}
    attempt = Attempt("x", "", "", METHODS["oracle"], sizes)
    found = measure(tmp_path, attempt, FIRST_SEED, Silent())
    assert found in {number / 8 for number in range(9)}
    run = Run.open(tmp_path / f"seed-{FIRST_SEED}")
    scored = [artifact for artifact in run.manifest().artifacts if artifact.kind == "scores"]
    assert scored[-1].rows == 8
    played = run.artifact(str(scored[-1].meta["rollouts"]))
    assert (played.meta["split"], played.meta["samples"]) == ("validation", 2)
