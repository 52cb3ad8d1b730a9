"""The public names of the package, pinned, and their reference."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import sweet
from docs.tools.api import METHODS, SECTIONS, api_page
from sweet.runs.stages import STAGES
from tests.docs.pages import ROOT

NAMES = """
    CompareConfig EvalConfig GatewayConfig LabelConfig LoopConfig PairConfig PlayConfig Progress RankConfig Reporter
    RolloutConfig Run Silent StageResult SweetError Task TrainActorConfig TrainCriticConfig TrainOnlineConfig Trajectory
    __version__ compare evaluate gateway import_trajectories label load_tasks pair play rank read_trajectories
    register_kind rollout train train_actor train_critic train_online
"""


def test_the_public_names_are_these() -> None:
    """A name that is added or removed here is a change of the public interface: CHANGELOG.md mentions it."""
    assert sweet.__all__ == NAMES.split()
    assert dir(sweet) == sweet.__all__


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in sweet.__all__ if getattr(sweet, name) is None] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rolout'"):
        sweet.rolout  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import sweet; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {name for name in done.stdout.split() if "importlib" not in name} - {"__future__", "warnings"} == {
        "sweet",
        "sweet.installation",
    }


def test_the_names_cost_no_torch() -> None:
    code = "import sys, sweet; [getattr(sweet, name) for name in sweet.__all__]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


def test_every_stage_has_a_function_and_a_configuration() -> None:
    for each in STAGES:
        name = "evaluate" if each.name == "eval" else each.name.replace("-", "_")
        assert callable(getattr(sweet, name))
        assert getattr(sweet, each.config.__name__) is each.config


def test_the_reference_is_current() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert page == api_page(), "run: python -m docs.tools.api"
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted({*sweet.__all__} - {"__version__"})
    assert METHODS.keys() <= {*sweet.__all__}


def test_tasks_are_loaded_by_name_and_from_a_file(tmp_path: Path) -> None:
    tasks = sweet.load_tasks("micro", split="test")
    assert tasks == sweet.load_tasks(split="test")
    (tmp_path / "tasks.jsonl").write_text("".join(f"{task.model_dump_json()}\n" for task in tasks[:3]))
    assert sweet.load_tasks(tmp_path / "tasks.jsonl") == tasks[:3]


def test_a_run_from_python(tmp_path: Path) -> None:
    run = sweet.Run.create(str(tmp_path / "run"))
    config = sweet.RolloutConfig(tasks="micro", num_tasks=2, max_tokens=48)
    played = sweet.rollout(run, config)
    assert [artifact.id for artifact in played.artifacts] == ["rollouts-1"]
    assert all(trajectory.reward is None for trajectory in sweet.read_trajectories(run))
    scored = sweet.evaluate(sweet.Run.open(str(tmp_path / "run")))
    rewards = [trajectory.reward for trajectory in sweet.read_trajectories(run, "rollouts-1")]
    assert [reward is not None for reward in rewards] == [True, True]
    assert scored.as_json()["metrics"]["success_rate"] == rewards.count(1) / 2


def test_a_stage_can_be_called_where_an_event_loop_runs(tmp_path: Path) -> None:
    """Every cell of a notebook runs inside the kernel's event loop."""

    async def cell() -> sweet.StageResult:
        result = sweet.rollout(sweet.Run.create(tmp_path), sweet.RolloutConfig(num_tasks=1, max_tokens=48))
        await asyncio.sleep(0)
        return result

    assert asyncio.run(cell()).as_json()["metrics"]["episodes"] == 1


def test_errors_name_options_and_commands_as_they_are_typed(tmp_path: Path) -> None:
    run = sweet.Run.create(tmp_path)
    with pytest.raises(sweet.SweetError, match=f"try: sweet rollout {tmp_path}"):
        sweet.evaluate(run)
    with pytest.raises(sweet.SweetError, match=r"try: --judge-model MODEL"):
        sweet.rank(run, sweet.RankConfig(judge="llm"))
