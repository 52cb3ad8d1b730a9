"""Every method is tuned with the same number of settings, and results of methods that did not run are kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import micro_tuning
from benchmarks.micro_tuning import BUDGET, GRIDS, OUT, main, variants, with_kept
from sweet.credit.registry import credit_rule
from sweet.online.config import TrainOnlineConfig
from sweet.preferences.config import PairConfig
from sweet.runs.run import Run
from sweet.study.settings import METHODS, TUNED, Options
from sweet.training.config import TrainActorConfig, TrainCriticConfig


def test_every_tuned_method_has_a_grid() -> None:
    assert sorted(GRIDS) == sorted(TUNED)


@pytest.mark.parametrize("name", TUNED)
def test_each_method_tries_as_many_different_settings_which_its_stages_accept(name: str) -> None:
    tried = list(variants(METHODS[name]))
    assert len({json.dumps(one.settings(), sort_keys=True) for one in tried}) == len(tried)
    assert len(tried) == BUDGET
    for one in tried:
        TrainCriticConfig.model_validate(one.critic)
        PairConfig.model_validate(one.pair)
        actor = (TrainOnlineConfig if one.online else TrainActorConfig).model_validate(one.actor)
        credit_rule(one.learns, actor.rule_option)


def test_methods_that_did_not_run_are_kept_with_what_they_were_tuned_with() -> None:
    existing = {
        "sizes": {"train_tasks": 300},
        "tasks": 256,
        "seeds": [1000, 1001],
        "methods": {"rft": {"tried": [1]}, "sweet": {"tried": [2], "tasks": 64}},
    }
    new = {"sizes": {"train_tasks": 300}, "tasks": 64, "seeds": [1000, 1001], "methods": {"grpo": {"tried": [3]}}}
    found = with_kept(existing, new)
    assert found["tasks"] == 64
    assert list(found["methods"].items()) == [
        ("rft", {"tried": [1], "tasks": 256}),
        ("grpo", {"tried": [3]}),
        ("sweet", {"tried": [2]}),
    ]
    again = with_kept(found, {**new, "methods": {"rft": {"tried": [4]}}})
    assert again["methods"]["rft"] == {"tried": [4]}
    assert with_kept({}, new) == new


@pytest.mark.usefixtures("forked_python")
def test_a_method_is_tuned_alone_and_finished_steps_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    two: list[tuple[Options, Options, Options]] = [({}, {}, {"lr": lr, "epochs": 1}) for lr in (1e-3, 2e-3)]
    monkeypatch.setattr(micro_tuning, "GRIDS", {"rft": two})
    monkeypatch.setattr(micro_tuning, "BUDGET", 2)
    monkeypatch.setattr(micro_tuning, "SIZES", {"train_tasks": 12, "candidates": 2, "fraction": 0.05})
    folder, out = tmp_path / "tuning", tmp_path / "out.json"
    words = [str(folder), "--methods", "rft", "--seeds", "1", "--tasks", "4", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["micro_tuning", *words])
    main()
    results = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == results
    assert results["failed"] == []
    assert [row["settings"]["actor"]["lr"] for row in results["methods"]["rft"]["tried"]] == [1e-3, 2e-3]
    best = results["methods"]["rft"]["best"]
    assert best["success"] == max(row["success"] for row in results["methods"]["rft"]["tried"])
    attempts = len(Run.open(folder / "seed-1000").manifest().attempts)
    main()
    assert json.loads(out.read_text()) == results
    assert len(Run.open(folder / "seed-1000").manifest().attempts) == attempts


def test_the_recorded_tuning_has_as_many_settings_of_each_method() -> None:
    tried = {name: method["tried"] for name, method in json.loads(OUT.read_bytes())["methods"].items()}
    assert {*TUNED} <= {*tried}
    for name in TUNED:
        assert len({json.dumps(row["settings"], sort_keys=True) for row in tried[name]}) == BUDGET
        assert all(row["success"] is not None for row in tried[name])
