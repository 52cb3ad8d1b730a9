"""The stages on real nodes: the same rows as on one machine, and what is recorded about the nodes."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import SweetError, UsageError
from sweet.learn.rows import CandidateRow
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.sandbox.tiers import probe_tiers
from sweet.scoring.config import EvalConfig
from sweet.scoring.on_ray import _Agreed
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.tasks.trajectory import Trajectory
from tests.cluster.conftest import NODES
from tests.stages.counting import Counting
from tests.stages.learn_runs import make_agent


def has_safe_sandbox() -> bool:
    return any(status.works for status in probe_tiers() if status.name != "unsafe")


SANDBOX: Any = "auto" if has_safe_sandbox() else "unsafe"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Dialogues of the packaged agent."""
    run = Run.create(tmp_path_factory.mktemp("run") / "run", task="code")
    run_rollout(run, RolloutConfig(agent="micro", num_tasks=12, samples=2, max_turns=6, max_tokens=128), Silent())
    return run


def content(run: Run, result: Any) -> bytes:
    return run.file(result.artifacts[0]).read_bytes()


def test_scores_are_the_same_bytes_and_every_node_is_recorded(nodes: Any, run: Run) -> None:
    here = run_eval(run, EvalConfig(sandbox=SANDBOX, scorer="both"), Silent())
    there = run_eval(run, EvalConfig(sandbox=SANDBOX, scorer="both", ray=nodes.address), Silent())
    assert content(run, there) == content(run, here)
    here_metrics, there_metrics = here.metrics.as_json(), there.metrics.as_json()
    recorded = there_metrics["nodes"]
    assert len(recorded) == NODES
    assert sum(node["items"] for node in recorded.values()) == 24
    assert {node["sandbox"] for node in recorded.values()} == {here_metrics["sandbox"]} == {there_metrics["sandbox"]}
    assert {key: value for key, value in there_metrics.items() if key not in ("nodes", "seconds")} == {
        key: value for key, value in here_metrics.items() if key != "seconds"
    }
    assert run.manifest().attempts[-1].environment["nodes"] == recorded
    assert there.artifacts[0].meta == here.artifacts[0].meta


class Killer(Counting):
    """Kills a node when the first row has been written, while the other rows are in work."""

    def __init__(self, nodes: Any, node: Any) -> None:
        self.thread = threading.Thread(target=nodes.remove_node, args=(node,), kwargs={"allow_graceful": False})

    def counted(self, title: str, by: int) -> None:
        if self.thread.ident is None:
            self.thread.start()


def test_a_node_killed_while_scoring_loses_and_doubles_no_row(nodes: Any, run: Run) -> None:
    here = run_eval(run, EvalConfig(sandbox=SANDBOX), Silent())
    extra = nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    killer = Killer(nodes, extra)
    there = run_eval(run, EvalConfig(sandbox=SANDBOX, ray=nodes.address), killer)
    killer.thread.join()
    assert content(run, there) == content(run, here)


def test_nodes_without_a_sandbox_are_refused_unless_none_is_asked_for(
    nodes: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = run_eval(run, EvalConfig(sandbox="unsafe", ray=nodes.address), Silent())
    assert there.artifacts[0].meta["sandbox"] == "unsafe"
    monkeypatch.delenv("SWEET_SANDBOX_IMAGE", raising=False)
    missing: Any = next((status.name for status in probe_tiers() if not status.works), None)
    if missing is None:
        pytest.skip("every sandbox works here")
    with pytest.raises(SweetError, match="No node of the cluster can do the work") as caught:
        run_eval(run, EvalConfig(sandbox=missing, ray=nodes.address), Silent())
    assert caught.value.what.count(f"The sandbox tier {missing} does not work here") == NODES


def test_the_weakest_sandbox_is_recorded_and_a_weaker_one_is_refused_later() -> None:
    def info(tier: str, **meta: Any) -> dict[str, Any]:
        return {"name": "strict", "sandbox": tier, "meta": {"sandbox": tier, "tolerance": 0.0, **meta}}

    agreed = _Agreed()
    assert [agreed.accept(name, info(tier)) for name, tier in (("a", "bwrap"), ("b", "docker"), ("c", "bwrap"))] == [
        None
    ] * 3
    assert agreed.sandbox == "docker"
    assert "tolerance 0.1" in str(agreed.accept("d", info("bwrap", tolerance=0.1)))
    agreed.fixed = True
    assert agreed.accept("e", info("landlock")) is None
    assert "weaker than the recorded docker" in str(agreed.accept("f", info("unsafe")))


def test_advantages_are_the_same_as_on_one_machine(nodes: Any, run: Run, tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "agent")
    config = {"judge": "untrained", "reference": agent, "candidates": 3, "limit": 9, "max_tokens": 16, "device": "cpu"}
    shutil.copytree(run.path, tmp_path / "other")  # the same command would resume with the existing rows
    other = Run.open(tmp_path / "other")
    here = run_rank(run, RankConfig.model_validate(config), Silent())
    there = run_rank(other, RankConfig.model_validate(config | {"ray": nodes.address}), Silent())
    rows = [
        {row.key: row for row in read_jsonl(owner.file(result.artifacts[0]), CandidateRow)}
        for owner, result in ((run, here), (other, there))
    ]
    assert rows[0].keys() == rows[1].keys()
    for key, row in rows[0].items():
        for one, two in zip(row.candidates, rows[1][key].candidates, strict=True):
            assert one.text == two.text
            assert one.advantage == pytest.approx(two.advantage, abs=1e-5)
    recorded: Any = other.manifest().attempts[-1].environment["nodes"]
    assert {node["device"] for node in recorded.values()} == {"cpu"}
    assert sum(node["items"] for node in recorded.values()) == 1
    assert {node["cores"] for node in recorded.values()} == {1}


def test_a_rollout_is_judged_on_the_nodes_as_on_one_machine(nodes: Any, tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "agent")
    config = RolloutConfig.model_validate(
        {"agent": agent, "num_tasks": 3, "max_turns": 3, "max_tokens": 12, "device": "cpu"}
        | {"best_of": 3, "judge": "untrained"}
    )
    found = []
    for ray in (None, nodes.address):
        run = Run.create(tmp_path / f"run-{ray is None}", task="code")
        result = run_rollout(run, config.model_copy(update={"ray": ray}), Silent())
        found.append({t.id: t for t in read_jsonl(run.file(result.artifacts[0]), Trajectory)})
        recorded: Any = run.manifest().attempts[-1].environment.get("nodes", {})
        assert len(recorded) == (0 if ray is None else NODES)
    here, there = found
    assert here.keys() == there.keys()
    for name, dialogue in here.items():
        for one, two in zip(dialogue.dialogue_history, there[name].dialogue_history, strict=True):
            assert (one.said, one.token_ids) == (two.said, two.token_ids)
            if one.choice is not None and two.choice is not None:
                assert one.choice.advantages == pytest.approx(two.choice.advantages, abs=1e-5)
        assert sum(turn.choice is not None for turn in dialogue.dialogue_history) == len(dialogue.agent_turns)


def test_each_gpu_of_the_cluster_has_a_replica(
    nodes: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")  # Ray compares its number of GPUs
    agent = make_agent(tmp_path / "agent")
    shutil.copytree(run.path, tmp_path / "other")
    other = Run.open(tmp_path / "other")
    more = nodes.add_node(num_cpus=2, num_gpus=2)  # as Ray counts them
    nodes.wait_for_nodes()
    try:
        options = {"judge": "untrained", "reference": agent, "candidates": 3, "limit": 9, "max_tokens": 16}
        config = RankConfig.model_validate(options | {"ray": nodes.address})
        rank = run_rank(other, config, Silent())
    finally:
        nodes.remove_node(more)
    assert (rank.metrics.turns, rank.metrics.failed) == (9, 0)
    environment: Any = other.manifest().attempts[-1].environment
    assert [node["cores"] for node in environment["nodes"].values()] == [2]


def test_ray_is_refused_if_there_is_nothing_to_distribute(nodes: Any, run: Run) -> None:
    with pytest.raises(UsageError, match="No critic judges"):
        run_rollout(run, RolloutConfig(num_tasks=1, ray=nodes.address), Silent())
    with pytest.raises(UsageError, match="--ray is an option of --judge critic"):
        run_rank(run, RankConfig(judge="random", ray=nodes.address), Silent())
