"""Stages with a model without an address: what runs it is chosen, said, recorded, and ended with the stage."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import SweetError, UsageError
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests import programs
from tests.llm.stand_in import StandIn, install
from tests.stages.heard import Heard


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return install(tmp_path, monkeypatch)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def config(**changes: Any) -> RolloutConfig:
    defaults: dict[str, Any] = {"num_tasks": 3, "max_turns": 2, "agent": "org/model", "retry_timeout": 1.0}
    return RolloutConfig(**{**defaults, "local_engine": "vllm", **changes})


def test_agent_and_human_on_one_server(vllm: StandIn, run: Run) -> None:
    reporter = Heard()
    result = run_rollout(run, config(sim="org/model", vllm_options=["--seed", "4"]), reporter)
    assert (result.metrics.episodes, result.metrics.failed) == (3, 0)
    assert len(vllm.asked()) == 3 * (2 + 1), "the human speaks between the agent's turns"
    assert len(vllm.starts()) == 1
    assert vllm.starts()[0]["args"][-2:] == ["--seed", "4"]
    assert vllm.all_gone()
    attempt = run.manifest().attempts[-1]
    found = {name: attempt.environment[name] for name in ("agent_engine", "sim_engine", "agent_vllm_version")}
    assert found == {"agent_engine": "vllm", "sim_engine": "vllm", "agent_vllm_version": "9.8.7"}
    assert (run.path / "logs" / "rollout-1.vllm-agent.log").read_text()
    assert any("org/model is run by vllm" in line and "as --local-engine says" in line for line in reporter.said)
    assert run_rollout(run, config(sim="org/model"), Silent()).metrics.episodes == 3
    assert len(vllm.starts()) == 1, "what is finished needs no server"


def test_a_server_that_dies_fails_the_stage_and_is_recorded(vllm: StandIn, run: Run) -> None:
    with pytest.raises(SweetError, match="EngineDeadError") as error:
        run_rollout(run, config(vllm_options=["--die-when-asked"]), Silent())
    assert error.value.exit_code == 1
    attempt = run.manifest().attempts[-1]
    assert (attempt.status, attempt.environment["agent_engine"]) == ("failed", "vllm")
    assert vllm.all_gone()


def test_auto_falls_back_to_this_process_and_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if (Path(sys.executable).parent / "vllm").exists():
        pytest.skip("a real vllm lies beside this Python")
    monkeypatch.setenv("PATH", "")
    from sweet.llm.pretrained import model_path

    reporter = Heard()
    agent = model_path("micro")
    run_rollout(run, config(local_engine="auto", agent=agent, num_tasks=1, max_turns=1, max_tokens=8), reporter)
    assert f"The agent {agent} is run in this process (embedded engine): no vllm is installed." in reporter.said
    environment = run.manifest().attempts[-1].environment
    assert environment["agent_engine"] == "embedded"
    assert environment["agent_engine_why"] == "no vllm is installed"


def test_vllm_that_is_not_installed_is_a_usage_error_before_anything_is_made(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (Path(sys.executable).parent / "vllm").exists():
        pytest.skip("a real vllm lies beside this Python")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="not installed") as error:
        run_rollout(run, config(), Silent())
    assert error.value.exit_code == 2
    assert "--local-engine embedded" in str(error.value.fix)
    assert run.manifest().attempts == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_a_signal_to_the_program_ends_the_server(vllm: StandIn, workplace: Path, number: int, code: int) -> None:
    words = [
        "rollout",
        "r",
        "--agent",
        "org/model",
        "--local-engine",
        "vllm",
        "--num-tasks",
        "2",
        "--",
        "--never-answer",
    ]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with programs.start([*programs.SWEET, *words], text=True, **pipes) as program:
        vllm.wait_for(vllm.asked)
        program.send_signal(number)
        if number == signal.SIGINT:  # the first one waits for the dialogues under way, which never end here
            time.sleep(1)
            program.send_signal(number)
        _, err = program.communicate(timeout=60)
    assert program.returncode == code, err
    assert vllm.all_gone()
    if number == signal.SIGINT:
        assert "sweet rollout r --resume" in " ".join(err.replace("│", " ").split()), (
            "the attempt has the other settings"
        )


def test_what_follows_two_dashes_needs_no_run_before_it(workplace: Path) -> None:
    def resolved(*words: str) -> Any:
        done = programs.run([*programs.SWEET, *words])
        if not done.stdout:
            return done.returncode, done.stderr
        return json.JSONDecoder().raw_decode(done.stdout)[0]["vllm_options"]

    for command in ("rollout", "rank"):
        assert resolved(command, "--dry-run", "--", "--a", "1") == ["--a", "1"]
        assert resolved(command, "run", "--dry-run", "--", "b", "--", "c") == ["b", "--", "c"]
    Path("c.toml").write_text('[rollout]\nvllm-options = ["--y"]\n')
    assert resolved("rollout", "--dry-run", "--config", "c.toml") == ["--y"]
    code, err = resolved("rollout", "run", "stray", "--dry-run")
    assert code == 2
    assert "unexpected extra argument (stray)" in err
