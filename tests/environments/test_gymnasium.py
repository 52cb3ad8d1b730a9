"""An exported package, played by Gymnasium: its own checks, and the rewards of an evaluation for the same replies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import SweetError, UsageError
from tests.environments.conftest import TURNS, Played
from tests.environments.test_exporting import exported

gymnasium: Any = pytest.importorskip("gymnasium", reason="gymnasium is not installed (pip install '.[environments]')")


@pytest.fixture
def made(played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    package = exported(played.run, tmp_path / "env", to="gymnasium")
    monkeypatch.syspath_prepend(str(package.parent))
    environment = gymnasium.make(f"{package.name}:SweetEnvCodeMicro-v0", render_mode="ansi")
    try:
        yield environment
    finally:
        environment.close()
        del gymnasium.registry["SweetEnvCodeMicro-v0"], sys.modules[package.name]


def test_the_rewards_are_those_of_an_evaluation(played: Played, made: Any) -> None:
    found = {}
    for recorded in played.trajectories:
        said, info = made.reset(options={"task": recorded.task_id})
        assert said == recorded.task.problem_description
        total, over = 0.0, False
        for index in recorded.agent_turns:
            assert not over
            assert info["messages"][1:] == [m.model_dump(exclude_none=True) for m in recorded.observation(index, None)]
            said, reward, over, truncated, info = made.step(recorded.dialogue_history[index].said)
            assert not truncated
            total += reward
        assert over
        assert (info["outcome"], info["answer"]) == (recorded.outcome, recorded.answer)
        found[recorded.task_id] = total
        assert recorded.task.problem_description in made.render()
    assert found == played.rewards


def test_gymnasium_finds_nothing_wrong(made: Any) -> None:
    from gymnasium.utils.env_checker import check_env

    check_env(made.unwrapped, skip_render_check=True)


def test_a_seed_draws_the_task(made: Any) -> None:
    assert made.reset(seed=3)[1]["task"] == made.reset(seed=3)[1]["task"]
    assert len({made.reset(seed=seed)[1]["task"] for seed in range(12)}) > 3


def test_a_dialogue_ends_when_the_turns_are_used_up(made: Any) -> None:
    made.reset(seed=0)
    over = [made.step("How is it rounded? €")[2] for _ in range(TURNS)]
    assert over == [False] * (TURNS - 1) + [True]
    with pytest.raises(UsageError, match="no dialogue under way"):
        made.unwrapped.step("more")


def test_what_cannot_be_played_is_refused(played: Played, made: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no task 'micro-test-000x'"):
        made.reset(options={"task": "micro-test-000x"})
    folder = next(path.parent for path in tmp_path.rglob("environment.json"))
    from sweet.environments.gymnasium_env import SweetEnv

    with pytest.raises(SweetError, match="persona"):
        SweetEnv(folder, persona=["shouting"])
    with pytest.raises(SweetError, match="invalid"):
        SweetEnv(folder, sims="x")
    environment = SweetEnv(folder, persona=["terse"])
    environment.reset(seed=1)
    environment.close()
    environment.close()
    with pytest.raises(UsageError, match="closed"):
        environment.reset()
