"""The study of a real model: the warm-up, its results, and their files. The model is a random Llama."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks import smollm2
from benchmarks.gpu.studies import random_model
from benchmarks.smollm2 import COMPARED, SIZES, Size, for_larger, main, warmed_up
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.study.outcomes import method_results
from sweet.study.results import SeedOutcome, StudyResults, read_results
from sweet.study.settings import METHODS
from sweet.tasks.orders.generator import ORDERS


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random Llama of a few thousand weights with a tokenizer for the dialogues."""
    return str(random_model(tmp_path_factory.mktemp("models") / "random-llama"))


def test_the_warm_up_learns_from_every_scripted_dialogue_and_is_done_once(model: str, tmp_path: Path) -> None:
    size = Size(dialogues=48, study={}, training={"lr": 1e-2, "batch": 4})
    folder = warmed_up(model, tmp_path / "warm-up", ORDERS["orders"], size, "cpu", Silent())
    assert (folder / "model.safetensors").is_file()
    run = Run.open(tmp_path / "warm-up")
    before = run.manifest()
    (actor,) = before.of_kind("actor", "done")
    assert (actor.meta["algorithm"], actor.meta["base"]) == ("sft", model)
    (training,) = [attempt for attempt in before.attempts if attempt.stage == "train-actor"]
    assert training.metrics["examples"] == 48
    rows = [json.loads(line) for line in (run.path / "logs" / f"{training.id}.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < losses[0] - 0.5
    assert warmed_up(model, tmp_path / "warm-up", ORDERS["orders"], size, "cpu", Silent()) == folder
    assert run.manifest() == before


@pytest.mark.usefixtures("forked_python")
def test_a_method_without_data_is_reported_and_the_others_are_kept(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "RESULTS_FOLDER", tmp_path / "kept")
    out = tmp_path / "out"
    asked = ["--model", model, "--out", str(out), "--device", "cpu", "--size", "tiny", "--methods", "zero-shot,rft"]
    assert main([*asked, "--json"]) == 4
    captured = capsys.readouterr()
    result = json.loads(captured.out)["metrics"]
    assert [row["method"] for row in result["methods"]] == ["zero-shot"]
    assert (result["family"], result["model"], result["size"]) == ("orders", "random-llama", "tiny")
    assert result["test_tasks"] == SIZES["tiny"].study["eval_tasks"]
    assert result["versions"]["device"] == "cpu"
    assert "rft" in captured.err
    assert StudyResults.model_validate_json((out / "orders.json").read_bytes()).methods[0].success.mean == 0.0
    assert not (tmp_path / "kept").exists()


def test_a_larger_model_has_rates_and_adapters_of_its_own_and_nothing_else() -> None:
    for name in COMPARED:
        ours, theirs = (method.settings() for method in (for_larger(METHODS[name], {}), METHODS[name]))
        for training in ("critic", "actor"):
            mine, usual = (dict(side.get(training, {})) for side in (ours, theirs))  # type: ignore[arg-type]
            if mine:
                assert mine.pop("lora") == 16
                assert usual.pop("lr")
                assert mine.pop("lr") in (2e-4, 3e-4, 5e-4)
            for changed in ("epochs", "batch"):
                mine.pop(changed, None), usual.pop(changed, None)
            assert mine == usual
        assert {**ours, "critic": 0, "actor": 0} == {**theirs, "critic": 0, "actor": 0}
    assert for_larger(METHODS["sweet"], {"limit": 3}).critic["limit"] == 3
    assert "limit" not in for_larger(METHODS["grpo"], {"limit": 3}).actor


def test_the_seeds_of_full_runs_are_added_to_the_recorded_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = tmp_path / "results" / "orders-cpu.json"
    recorded.parent.mkdir()
    monkeypatch.setattr(smollm2, "RESULTS_FOLDER", recorded.parent)
    study = tmp_path / "study.json"
    for size, seed, success in (("tiny", 0, "0001"), ("full", 0, "0011"), ("full", 2, "0111")):
        outcome = SeedOutcome(success=success, tests_passed=0.5, greedy_success=0.5, generated_tokens=9, seconds=1.0)
        found = StudyResults(
            schema_version=1,
            family="orders",
            seeds=[seed],
            test_tasks=4,
            methods=method_results({"zero-shot": {seed: outcome}}, {"zero-shot": {}}),
            settings={"agent": str(tmp_path)},
        )
        study.write_text(found.model_dump_json())
        options = argparse.Namespace(model=f"{tmp_path}/SmolLM2", out=tmp_path, tasks="orders", size=size, device="cpu")
        smollm2.write_results(options, study)
        assert recorded.exists() == (size == "full")
    both = read_results(recorded)
    assert (both.seeds, both.methods[0].success_by_seed) == ([0, 2], [0.5, 0.75])
    assert str(tmp_path) not in recorded.read_text()
    assert both.settings["agent"] == "SmolLM2, warmed up"
