"""A real server of OpenEnv as tasks: the same rewards as its own client gets for the same actions."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweet.errors import SweetError
from sweet.plugins import plugins
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.tasks.base import Message, ToolCall
from sweet.tasks.registry import register_kind, task_kind
from sweet.tasks.scores import ScoringRequest
from tests.environments.conftest import Played
from tests.environments.test_exporting import exported
from tests.rollouts.given import Agent, Nobody

openenv = pytest.importorskip("openenv", reason="openenv is not installed (pip install -e examples/openenv_kind)")


@pytest.fixture(autouse=True, scope="module")
def kind() -> None:
    from sweet_openenv import OpenEnvKind

    if "openenv" not in plugins():
        register_kind(OpenEnvKind)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(str(Path(__file__).with_name("openenv_server.py"))) as url:
        yield url


@contextmanager
def serving(*words: str) -> Iterator[str]:
    """Run a program of Python that serves the port in its last argument."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, *words, str(port)]) as process:
        try:
            for _ in range(600):
                with socket.socket() as asked:
                    if asked.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


SERVED = "import sys, uvicorn; sys.path.insert(0, sys.argv[1]); import {0}; uvicorn.run({0}.app, port=int(sys.argv[2]))"


def test_an_exported_environment_gives_the_rewards_of_an_evaluation(played: Played, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    package = exported(played.run, tmp_path / "env", to="openenv")
    found = {}
    with serving("-c", SERVED.format(package.name), str(package.parent)) as url:
        for recorded in played.trajectories:
            with openenv.GenericEnvClient(base_url=url).sync() as client:
                seen = client.reset(task=recorded.task_id)
                assert seen.observation["text"] == recorded.task.problem_description
                for index in recorded.agent_turns:
                    assert not seen.done
                    assert len(seen.observation["messages"]) == index + 1
                    seen = client.step({"text": recorded.dialogue_history[index].said})
                assert seen.done
                found[seen.observation["task"]] = seen.reward
    assert found == played.rewards


def theirs(url: str, seed: int, guesses: list[int]) -> list[float]:
    """Return the rewards of the steps that the library's own client takes."""
    found = []
    with openenv.GenericEnvClient(base_url=url).sync() as client:
        client.reset(seed=seed)
        for guess in guesses:
            result = client.step({"number": guess})
            found.append(result.reward)
            if result.done:
                break
    return found


@pytest.mark.parametrize("guesses", [[], [0, 9, 7], [6, 7, 5], [1, 2, 3, 4, 5]])
def test_rewards_are_those_of_the_environment(url: str, guesses: list[int], tmp_path: Path) -> None:
    kind = task_kind(f"openenv:{url}")
    task = kind.load(url, "train")[1]
    assert json.loads(task.problem_description)["text"] == "Guess a digit; it is odd."
    rules = Rules(max_turns=4, temperature=1.0, top_p=1.0, max_tokens=64, protocol="paper")
    made: list[object] = [*guesses[:1], "five", *guesses[1:]] if guesses else []
    agent = Agent(*([ToolCall.of("act", number=guess)] for guess in made), "I stop.")
    played = asyncio.run(Dialogue(Assignment(task, 0, 0), agent, Nobody(), kind, rules).play())  # type: ignore[arg-type]
    rewards = theirs(url, 1, guesses)
    assert [r for turn in played.dialogue_history for r in (turn.rewards or {}).values()] == [*filter(None, rewards)]
    with kind.open_scorer(ScoringRequest(run=tmp_path, say=print)) as scorer:
        ((_, score),) = scorer.score([played])
    assert score.reward == sum(rewards)
    assert played.outcome == "answered"
    errors = [turn.content for turn in played.dialogue_history if turn.is_error]
    assert len(errors) == bool(guesses) + len(guesses) - len(rewards), "words are no number, and ended is ended"


def test_without_a_server_the_address_is_named(url: str) -> None:
    with pytest.raises(SweetError, match="does not answer"):
        task_kind("openenv:http://127.0.0.1:9").load("http://127.0.0.1:9", "train")
    assert task_kind(f"openenv:{url}").prompts.agent != Message(role="system", content="").content
