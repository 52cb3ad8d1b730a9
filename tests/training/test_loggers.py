"""`--log-to`: metrics also go to other logs; a missing log is an error, a failing one is not."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.training import loggers
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.loggers import LogTarget, MetricLogs, check_logs, flat
from sweet.training.stage import run_train_actor, run_train_critic
from tests.stages.heard import Heard
from tests.stages.learn_runs import make_agent, make_run
from tests.training.test_train import put_pairs, stopped


def needs(name: LogTarget) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed")


BLOCK = 32768
CONFIG = TrainCriticConfig(epochs=3, batch=2, lr=1e-3, save_every=2, holdout=0.2)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"))
    run_label(run, LabelConfig(), Silent())
    return run


class Fails:
    """A log that fails after one row."""

    closed = 0

    def __init__(self, *_about: object) -> None:
        self.left = 1

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("nobody there")

    def close(self) -> None:
        Fails.closed += 1


def rows(run: Run, attempt: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "logs" / f"{attempt}.jsonl").read_text().splitlines()]


def trained_in_two_parts(run: Run, target: LogTarget) -> list[dict[str, Any]]:
    """Train in two parts, interrupted after a checkpoint; return the rows of the final training."""
    config = CONFIG.model_copy(update={"log_to": (target,)})
    stopped(run, config, 7)
    run_train_critic(run, config.model_copy(update={"resume": True}), Silent())
    first, second = rows(run, "train-critic-1"), rows(run, "train-critic-2")
    assert [second[0]["step"], first[-1]["step"]] == [7, 8]
    return [row for row in first if row["step"] < 7] + second


def test_numbers_of_a_row_are_flattened() -> None:
    row = {"step": 3, "loss": 0.5, "accuracy": None, "advantage_chosen": [0.1, None, -2], "name": "x", "right": True}
    assert flat(row) == {"loss": 0.5, "advantage_chosen/1": 0.1, "advantage_chosen/3": -2}


def test_a_log_that_is_not_installed_is_an_error_before_the_training(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="wandb is not installed") as caught:
        run_train_critic(run, CONFIG.model_copy(update={"log_to": ("wandb",)}), Silent())
    assert caught.value.fix == "pip install wandb"
    assert not any(attempt.stage == "train-critic" for attempt in run.manifest().attempts)
    with pytest.raises(UsageError, match="tensorboard"):
        check_logs(["tensorboard"])


def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_about: object) -> Fails:
        raise PermissionError("no key\nand more")

    monkeypatch.setitem(loggers.OPENERS, "wandb", refuse)
    with pytest.raises(UsageError, match="cannot be opened: no key ·"):
        MetricLogs(["wandb"], Run.create(tmp_path / "run"), "critic-1", {}, Silent())


def test_a_failing_log_warns_once_and_the_training_continues(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda name: True)
    monkeypatch.setitem(loggers.OPENERS, "wandb", Fails)
    heard = Heard()
    result = run_train_critic(run, CONFIG.model_copy(update={"log_to": ("wandb",)}), heard)
    assert heard.warnings == ["Logging to wandb stopped (nobody there); the run has all metrics."]
    assert Fails.closed == 1
    assert result.metrics.steps == len([row for row in rows(run, "train-critic-1") if "loss" in row])


def test_openrlhf_supports_no_logs(run: Run) -> None:
    put_pairs(run)
    with pytest.raises(UsageError, match="does not report its metrics"):
        run_train_actor(run, TrainActorConfig(engine="openrlhf", log_to=("tensorboard",)), Silent())


@needs("tensorboard")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_each_step_once(run: Run) -> None:
    from importlib import import_module

    expected = trained_in_two_parts(run, "tensorboard")
    reader = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(run.path / "logs" / "tensorboard" / "critic-1"))
    events.Reload()
    expected_values: dict[str, list[tuple[int, float]]] = {}
    for row in expected:
        for name, value in flat(row).items():
            expected_values.setdefault(name, []).append((row["step"], value))
    assert set(events.Tags()["scalars"]) == set(expected_values)
    assert {"loss", "heldout_accuracy", "advantage_chosen/1", "sharing"} <= set(expected_values)
    for name, values in expected_values.items():
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in values], name


def leveldb_records(data: bytes, at: int) -> Iterator[bytes]:
    """Read the records of a log in LevelDB's format, which begins at byte `at` of its file."""
    place, parts = 0, b""
    while place < len(data):
        left = BLOCK - (place + at) % BLOCK
        if left < 7:
            place += left
            continue
        _crc, length, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


@needs("wandb")
@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_the_run_offline(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import import_module

    monkeypatch.setenv("WANDB_MODE", "offline")
    expected = trained_in_two_parts(run, "wandb")
    files = sorted((run.path / "logs" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert len({file.name for file in files}) == 1
    messages = import_module("wandb.proto.wandb_internal_pb2")
    found: dict[int, float] = {}
    for file in files:
        for raw in leveldb_records(file.read_bytes()[7:], at=7):
            record = messages.Record()
            record.ParseFromString(raw)
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            if "loss" in items:
                found[items["step"]] = items["loss"]
    assert found == {row["step"]: row["loss"] for row in expected if "loss" in row}
