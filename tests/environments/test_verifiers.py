"""An exported package, played by the command of the real library verifiers: the same dialogues, the same rewards.

The library requires another version of `openai` than other tests, so that it is not installed with them (.ci/run).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory
from tests.environments.conftest import MODEL, Played, conversations
from tests.environments.test_exporting import exported

pytest.importorskip("verifiers", reason="verifiers is not installed (pip install '.[environments]')")


def vf_eval(package: Path, url: str, outputs: Path, *options: str) -> list[dict[str, Any]]:
    """Play the package by verifiers' command, and return the lines of its results."""
    command = [sys.executable, "-c", "from verifiers.v1.cli.eval.main import main; main()"]
    command += [package.name.replace("_", "-"), "--model", MODEL, "--client.base-url", url]
    command += ["--no-push", "--no-rich", "--output-dir", str(outputs), "--run.name", "played", *options]
    paths = os.pathsep.join([str(package.parent), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": paths, "HOME": str(outputs.parent), "PRIME_API_KEY": "none"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    results = outputs / "played" / "traces.jsonl"
    assert done.returncode == 0, done.stderr[-3000:]
    assert results.is_file(), done.stderr[-3000:]
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    errors = [error for row in rows for error in [*row["errors"], *(e for t in row["traces"] for e in t["errors"])]]
    assert not errors, errors
    return rows


def test_verifiers_plays_the_package_as_sweet_does(played: Played, tmp_path: Path) -> None:
    package = exported(played.run, tmp_path / "env")
    played.server.asked.clear()
    rows = vf_eval(package, played.server.url, tmp_path / "outputs")
    assert conversations(played.server.asked) == played.asked, "the agent reads what it read in the rollout"
    traces = {trace["task"]["data"]["id"]: trace for row in rows for trace in row["traces"]}
    assert {name: trace["rewards"]["reward"]["score"] for name, trace in traces.items()} == played.rewards
    assert all(trace["metrics"]["fault"] == 0 for trace in traces.values())

    run = Run.open(
        run_data_import(tmp_path / "outputs/played/traces.jsonl", tmp_path / "in", DataImportConfig(), Silent()).run
    )
    imported = {found.task_id: found for found in read_jsonl(run.file(run.artifact("rollouts-1")), Trajectory)}
    for recorded in played.trajectories:
        found = imported[recorded.task_id]
        assert (found.task, found.answer, found.outcome) == (recorded.task, recorded.answer, recorded.outcome)
        for ours, theirs in zip(recorded.dialogue_history, found.dialogue_history, strict=True):
            assert (ours.role, ours.said) == (theirs.role, theirs.said)
        assert found.observation(3, None)[1:] == recorded.observation(3, None)
    run_eval(run, EvalConfig(), Silent())
    for scores in ("scores-1", "scores-2"):
        again = read_jsonl(run.file(run.artifact(scores)), Score)
        assert {score.task_id: score.reward for score in again} == played.rewards


def test_another_harness_may_play_it(played: Played, tmp_path: Path) -> None:
    """A harness that keeps the conversation itself: the agent reads its replies as they were."""
    package = exported(played.run, tmp_path / "env")
    (package.parent / "echoing.py").write_text(OTHER)
    played.server.asked.clear()
    rows = vf_eval(package, played.server.url, tmp_path / "outputs", "--env.agent.harness.id", "echoing", "-n", "1")
    [trace] = [trace for row in rows for trace in row["traces"]]
    assert trace["rewards"]["reward"]["score"] == played.rewards[trace["task"]["data"]["id"]] == 1
    said = [message for message in played.server.asked[-1]["messages"] if message["role"] == "assistant"]
    assert "OUTPUT:" in said[0]["content"]


OTHER = """
import httpx
import verifiers.v1 as vf


class Echoing(vf.Harness[vf.HarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        system, prompt = self.resolve_prompt(data)
        said = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [
            message.model_dump(exclude_none=True) for message in prompt
        ]
        messages = [{"role": "system", "content": system}, *said]
        async with httpx.AsyncClient() as client:
            await client.post(
                f"{endpoint}/chat/completions",
                json={"model": ctx.model, "messages": messages},
                headers={"Authorization": f"Bearer {secret}"},
            )
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["Echoing"]
"""
