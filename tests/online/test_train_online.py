"""Online training on the packaged tasks: what it makes, and that a killed training ends with the same weights."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sweet import collector
from sweet.errors import Interrupted, UsageError
from sweet.online.config import TrainOnlineConfig
from sweet.online.loop import OnlineLoop
from sweet.online.metrics import OnlineMetrics
from sweet.online.stage import run_train_online
from sweet.runs.progress import read_progress
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests import programs

OPTIONS: dict[str, Any] = {
    "algorithm": "grpo",
    "steps": 4,
    "tasks_per_step": 1,
    "group": 4,
    "tasks": "micro",
    "max_turns": 6,
    "max_tokens": 64,
    "seed": 8,  # some dialogues of most steps solve their task, and some do not
    "save_every": 2,
}


def weights(run: Run, actor: str = "actor-1") -> dict[str, torch.Tensor]:
    return load_file(run.path / "actor" / actor / "model.safetensors")


def rows(run: Run, kind: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / kind / f"{kind}-1.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("algorithm", "staleness"), [("grpo", 1), ("rft", 0)])
def test_an_online_training_makes_an_actor_and_records_every_dialogue(
    tmp_path: Path, algorithm: str, staleness: int
) -> None:
    run = Run.create(tmp_path / "run", "code")
    config = TrainOnlineConfig.model_validate(
        OPTIONS | {"algorithm": algorithm, "staleness": staleness, "validate_every": 2, "validation_tasks": 4}
    )
    metrics = run_train_online(run, config, Silent()).metrics
    assert (metrics.steps, metrics.ended, metrics.episodes) == (4, "steps", 16)
    assert [point.step for point in metrics.curve] == [1, 2, 3, 4]
    assert metrics.curve[-1].tokens == metrics.completion_tokens > 0
    assert metrics.kept_step in (2, 4)
    dialogues, scores = rows(run, "rollouts"), rows(run, "scores")
    assert len({row["id"] for row in dialogues}) == 16
    assert {row["id"] for row in dialogues} == {row["id"] for row in scores}
    for row in dialogues:
        spoken = [turn for turn in row["dialogue_history"] if turn["role"] == "assistant"]
        assert len(row["versions"]) == len(spoken)
        assert all(row["step"] - 1 - staleness <= version < row["step"] for version in row["versions"])
        assert all(len(turn["logprobs"]) == len(turn["token_ids"]) for turn in spoken)
    manifest = run.manifest()
    assert {artifact.status for artifact in manifest.artifacts} == {"done"}
    made_from = {artifact.id: [ref.id for ref in artifact.inputs] for artifact in manifest.artifacts}
    assert made_from == {"actor-1": ["scores-1", "rollouts-1"], "rollouts-1": [], "scores-1": ["rollouts-1"]}
    assert {run.stale(artifact) for artifact in manifest.artifacts} == {None}
    assert not list((run.path / "actor" / "actor-1").glob("checkpoint*"))


def test_a_budget_of_tokens_ends_the_training(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "code")
    config = TrainOnlineConfig.model_validate(OPTIONS | {"steps": None, "generated_tokens": 1})
    metrics = run_train_online(run, config, Silent()).metrics
    assert (metrics.steps, metrics.ended) == (1, "tokens")


def test_freed_memory_is_given_back_before_and_after_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[None] = []
    monkeypatch.setattr(collector, "give_back", lambda: given.append(None))
    run = Run.create(tmp_path / "run", "code")
    run_train_online(run, TrainOnlineConfig.model_validate(OPTIONS | {"steps": 1}), Silent())
    assert len(given) == 2


@pytest.mark.parametrize(("keep", "step"), [("best", 2), ("last", 4)])
def test_the_actor_has_the_best_weights_on_validation_tasks_or_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, step: int
) -> None:
    play = OnlineLoop._validate

    async def falling(self: OnlineLoop, step: int) -> float:
        await play(self, step)
        return 1 / step

    monkeypatch.setattr(OnlineLoop, "_validate", falling)
    run = Run.create(tmp_path / "run", "code")
    options = OPTIONS | {"keep": keep, "validate_every": 2, "validation_tasks": 4}
    metrics = run_train_online(run, TrainOnlineConfig.model_validate(options), Silent()).metrics
    assert (metrics.kept_step, metrics.validation) == (step, 1 / step)
    assert [point.validation for point in metrics.curve] == [None, 0.5, None, 0.25]
    before = [point.validation_seconds for point in metrics.curve]
    assert before[:2] == [0, 0]
    assert 0 < before[2] == before[3] < metrics.validation_seconds < metrics.seconds


def test_a_rule_that_learns_from_recorded_rows_alone_is_refused(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "code")
    with pytest.raises(UsageError, match="does not learn online"):
        run_train_online(run, TrainOnlineConfig.model_validate(OPTIONS | {"algorithm": "sweet"}), Silent())


EXACT = OPTIONS | {"deterministic": True, "resume": True}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, OnlineMetrics]:
    """A training that is never stopped."""
    run = Run.create(tmp_path_factory.mktemp("whole") / "run", "code")
    return run, run_train_online(run, TrainOnlineConfig.model_validate(EXACT), Silent()).metrics


def test_a_training_stops_at_the_limit_of_the_cost_and_goes_on_with_a_higher_one(
    whole: tuple[Run, OnlineMetrics], tmp_path: Path
) -> None:
    """A token that the agent writes costs 1. The training ends as one that was not stopped."""
    prices = tmp_path / "prices.toml"
    prices.write_text("[agent]\ncompletion = 1000000\n")
    options = EXACT | {"save_every": 10}
    (free_run, free), stopped = whole, Run.create(tmp_path / "stopped", "code")
    assert "cost" not in free.as_json()
    limit = (free.curve[1].tokens + free.curve[2].tokens) / 2  # in the third of four steps
    priced = TrainOnlineConfig.model_validate(options | {"prices": prices, "max_cost": limit, "concurrency": 2})
    with pytest.raises(Interrupted, match="Dialogues of step 3"):
        run_train_online(stopped, priced, Silent())
    assert (stopped.path / "actor" / "actor-1" / "checkpoint.pt").exists(), "what was learned is kept"
    played = len(rows(stopped, "rollouts"))
    assert 8 < played < 12
    with pytest.raises(Interrupted, match="Dialogues of step 3"):
        run_train_online(stopped, priced, Silent())
    assert len(rows(stopped, "rollouts")) == played
    metrics = run_train_online(stopped, priced.model_copy(update={"max_cost": 1e9}), Silent()).metrics
    assert metrics.completion_tokens == free.completion_tokens
    ended_at_their_next_turn = (
        2 * priced.max_turns * priced.max_tokens
    )  # the dialogues under way, which are played again
    assert 0 <= (metrics.cost or 0) - metrics.completion_tokens <= ended_at_their_next_turn
    expected, found = weights(free_run), weights(stopped)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


PROGRAM = """
import json, sys
from sweet.online.config import TrainOnlineConfig
from sweet.online.stage import run_train_online
from sweet.runs.run import Run
from sweet.stages.base import Silent
run_train_online(Run.open(sys.argv[1]), TrainOnlineConfig.model_validate(json.loads(sys.argv[2])), Silent())
"""


@pytest.mark.parametrize(("number", "kept"), [(signal.SIGKILL, 2), (signal.SIGINT, 3)])
def test_a_killed_training_ends_with_bitwise_the_same_weights(
    whole: tuple[Run, OnlineMetrics], tmp_path: Path, number: int, kept: int
) -> None:
    (free_run, metrics), killed = whole, Run.create(tmp_path / "killed", "code")
    assert metrics.updates > 1
    command = ["-c", PROGRAM, str(killed.path), json.dumps(EXACT)]
    path = killed.path / "rollouts" / "rollouts-1.jsonl"
    with programs.start(command, torch=True) as process:
        # In the fourth step, after the checkpoint of the second: one step is learned again, one is half played.
        while not path.exists() or path.read_bytes().count(b"\n") < 13:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        process.send_signal(number)
    assert process.returncode != 0
    checkpoint = torch.load(killed.path / "actor" / "actor-1" / "checkpoint.pt", weights_only=True)
    assert checkpoint["state"]["step"] == kept, "an interrupt writes a checkpoint"
    before = rows(killed, "rollouts")
    run_train_online(killed, TrainOnlineConfig.model_validate(EXACT), Silent())
    after = rows(killed, "rollouts")
    assert after[: len(before)] == before, "no dialogue is played twice"
    assert len(after) == 16
    assert [artifact.id for artifact in killed.manifest().of_kind("actor")] == ["actor-1"]
    expected, found = weights(free_run), weights(killed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


class Watching(Silent):
    """Reads, at each line that the stage says, what other terminals see of it."""

    def __init__(self, run: Run) -> None:
        self.run, self.titles = run, set[str]()

    def progress(self, title: str, total: int | None) -> Any:
        return Watched(self, super().progress(title, total))


class Watched:
    def __init__(self, watching: Watching, inner: Any) -> None:
        self.watching, self.inner = watching, inner

    def __enter__(self) -> Any:
        self.bar = self.inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)

    def advance(self, by: int = 1) -> None:
        found = read_progress(self.watching.run.path / "logs" / "train-online-1.progress.json")
        self.watching.titles |= {found.title} if found is not None and found.title else set()

    def note(self, **figures: object) -> None:
        pass


def test_other_terminals_see_the_steps_and_not_only_the_dialogues(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "code")
    watching = Watching(run)
    run_train_online(run, TrainOnlineConfig.model_validate(OPTIONS | {"steps": 2}), watching)
    assert watching.titles == {"steps"}
