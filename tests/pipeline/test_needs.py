"""What `sweet train` finds out before its first dialogue, and `--dry-run` shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import ServerError, UsageError
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.needs import check_needs, needs_of
from sweet.pipeline.recipe import Recipe, resolve
from sweet.pipeline.servers import Servers
from sweet.pipeline.stage import run_train
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests.llm.stand_in import StandIn, install
from tests.stages.learn_runs import make_agent


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return install(tmp_path, monkeypatch)


def recipe(*settings: str, **options: Any) -> Recipe:
    return resolve(LoopConfig.model_validate(options | {"set_": list(settings)}), None)


def statuses(found: Recipe) -> dict[str, tuple[str, str]]:
    return {need.need: (need.status, need.found) for need in needs_of(None, found)}


def test_every_need_of_later_steps_is_listed(vllm: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm.show_gpus("8, 80000", "80000, 80000")
    found = statuses(recipe())
    assert {name: status for name, (status, _) in found.items()} == {
        "test tasks that the scripted human plays": "ok",
        "train tasks that the scripted human plays": "ok",
        "scorer of code tasks": "ok",
        "model micro": "ok",
        "engine torch": "ok",
        "memory to train micro": "missing",
        "memory to rank by micro": "ok",
    }
    assert found["memory to train micro"][1] == (
        "Too little memory: weights, gradients and moments of micro on each GPU: 15.7 MB needed, 8.4 MB free."
    )
    agent = make_agent(tmp_path / "agent")
    Path(agent, "model.safetensors").unlink()
    monkeypatch.setattr("sweet.pipeline.needs.find_vllm", lambda: None)
    settings = ("rank.judge=llm", "rank.judge-model=j", "rank.judge-url=http://127.0.0.1:1", "servers.agent.gpus=3")
    missing = {
        name: what for name, (status, what) in statuses(recipe(*settings, agent=agent)).items() if status != "ok"
    }
    assert missing.pop("GPUs of the servers").startswith("3 GPUs are needed at the same time")
    assert missing.pop("server of j").startswith("The server at http://127.0.0.1:1/v1 could not be reached")
    assert missing.pop(f"model {agent}").endswith("has no weights (*.safetensors).")
    assert missing.pop("vllm") == "vllm is not installed."
    assert missing == {}
    vllm.show_gpus("20000, 80000", "80000, 80000")
    assert statuses(recipe("servers.agent.gpus=1"))["GPUs of the servers"][1] == (
        "Other processes hold memory that servers need: 75% of GPU 0."
    )


def test_tasks_without_facts_for_the_scripted_human_are_missing(tmp_path: Path) -> None:
    rows = [{"problem_description": f"p{i} def f(x)", "ground_truth": f"def f(x): return {i}"} for i in range(20)]
    (tmp_path / "tasks.jsonl").write_text(
        "".join(json.dumps(row | {"test_cases": {"a": "f(1)"}}) + "\n" for row in rows)
    )
    found = statuses(recipe(tasks=str(tmp_path / "tasks.jsonl")))
    status, what = found["train tasks that the scripted human plays"]
    assert status == "missing"
    assert what.startswith("The scripted human speaks from a task's facts")


def test_a_server_that_is_asked_once_was_not_waited_for() -> None:
    judge = ("rank.judge=llm", "rank.judge-model=j", "rank.judge-url=http://127.0.0.1:1")
    assert "could not be reached: " in statuses(recipe(*judge))["server of j"][1]


def test_a_missing_need_ends_a_training_before_its_first_dialogue(vllm: StandIn, tmp_path: Path) -> None:
    vllm.show_gpus()
    run = Run.create(tmp_path / "run")
    judge = ("rank.judge=llm", "rank.judge-model=j", "rank.judge-url=http://127.0.0.1:1")
    with pytest.raises(ServerError, match="could not be reached"):
        run_train(run, LoopConfig(set_=list(judge)), Silent())
    assert not run.manifest().of_kind("rollouts")
    wrong = recipe(*judge, "train-actor.model=nowhere/nothing")
    with Servers(run, {}, tmp_path / "log", Silent()) as servers, pytest.raises(UsageError) as raised:
        check_needs(run, wrong, servers)
    assert "could not be reached" in raised.value.what
    assert "nowhere/nothing" in raised.value.what
