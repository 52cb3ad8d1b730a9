"""Online trainings whose servers die, whose dialogues fail, that learn nothing, or whose files end in half a line."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sweet.errors import ServerError, TooManyFailures
from sweet.llm.base import Completion, Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.listening import listening
from sweet.llm.server import make_app
from sweet.online.config import TrainOnlineConfig
from sweet.online.stage import run_train_online
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message
from tests.disk_log import recorded
from tests.rollouts.small import TOO_SHORT, late_replies
from tests.runs.conftest import Settings
from tests.stages.counting import Copying, StoppedError, Stopping
from tests.stages.learn_runs import make_agent

OPTIONS: dict[str, Any] = {
    "steps": 2,
    "tasks_per_step": 2,
    "group": 3,
    "tasks": "micro",
    "max_turns": 2,
    "max_tokens": 6,
    "save_every": 1,
    "device": "cpu",
    "retry_timeout": 1.0,
}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny random model, which solves nothing: all rewards are 0."""
    return make_agent(tmp_path_factory.mktemp("model") / "agent")


def config(agent: str, **more: Any) -> TrainOnlineConfig:
    return TrainOnlineConfig.model_validate(OPTIONS | {"agent": agent} | more)


def rows(run: Run, kind: str, number: int = 1) -> list[dict[str, Any]]:
    path = run.path / kind / f"{kind}-{number}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps(run: Run, number: int = 1) -> list[dict[str, Any]]:
    log = (run.path / "logs" / f"train-online-{number}.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, log) if "reward" in row]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def equal(first: Path, second: Path) -> bool:
    one, other = weights(first), weights(second)
    return all(torch.equal(one[name], other[name]) for name in one)


@contextmanager
def serving(agent: str, dies_at: int | None = None) -> Iterator[tuple[str, list[Path]]]:
    """A server of the model that offers what vLLM does, in another thread.

    Args:
        dies_at: the request for a reply at which it stops.

    Yields:
        Its address, and the folders of the weights that it has loaded.
    """
    ready: Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Queue()
    reloads: list[Path] = []

    async def serve() -> None:
        client, stop, asked = EmbeddedClient.load(agent, device="cpu"), asyncio.Event(), 0

        chat = client.chat

        async def counted(messages: Sequence[Message], sampling: Sampling) -> Completion:
            nonlocal asked
            asked += 1
            if asked == dies_at:
                stop.set()
            return await chat(messages, sampling)

        client.chat = counted  # type: ignore[method-assign]

        async def reload(request: Request) -> Response:
            reloads.append(Path((await request.json())["kwargs"]["weights_path"]))
            await client.update(weights(reloads[-1]), len(reloads))
            return JSONResponse({"results": [None]})

        async def reset(request: Request) -> Response:
            return JSONResponse({"success": True})

        app = make_app(client)
        app.routes.append(Route("/collective_rpc", reload, methods=["POST"]))
        app.routes.append(Route("/reset_prefix_cache", reset, methods=["POST"]))
        async with listening(app, "127.0.0.1", 0) as url:
            ready.put((url, asyncio.get_running_loop(), stop))
            await stop.wait()
        await client.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    url, loop, stop = ready.get(timeout=60)
    try:
        yield url, reloads
    finally:
        loop.call_soon_threadsafe(stop.set) if thread.is_alive() else None
        thread.join(30)


def test_a_training_on_a_server_that_dies_goes_on_at_another_one(
    tmp_path: Path, agent: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Run.create(tmp_path / "run", "code")
    asked = {"algorithm": "opsd", "concurrency": 2, "resume": True}
    with serving(agent, dies_at=16) as (url, reloads), pytest.raises(ServerError) as error:
        run_train_online(run, config(agent, agent_url=[url], **asked), Silent())
    assert url in str(error.value.where)
    assert len(reloads) == 1, "it died in the second step"
    before = rows(run, "rollouts")
    assert 6 <= len(before) < 12
    [attempt] = run.manifest().attempts
    assert (attempt.status, attempt.exit_code) == ("failed", 3)
    with serving(agent) as (url, reloads):
        result = run_train_online(run, config(agent, agent_url=[url], **asked), Silent())
    assert [path.name for path in reloads] == ["version-1", "version-2"], "it got the weights of the checkpoint first"
    assert result.artifacts[0].id == "actor-1"
    after = rows(run, "rollouts")
    assert after[: len(before)] == before
    assert len(after) == 12
    assert {version for row in after for version in row["versions"]} == {0, 1}
    assert not (run.path / ".policy").exists(), "no weights stay behind"
    assert not capfd.readouterr().err, "no library draws a bar"


def test_too_many_failed_dialogues_end_the_training(tmp_path: Path, agent: str) -> None:
    run = Run.create(tmp_path / "run", "code")
    too_many = pytest.raises(TooManyFailures, match="6 of the 6 dialogues of step 1 failed")
    with late_replies(), too_many as error:
        run_train_online(run, config(agent, deadline=TOO_SHORT, fail_on_error=0.5), Silent())
    assert str(error.value.where).endswith("train-online-1.jsonl")
    failures = [
        row for row in map(json.loads, Path(str(error.value.where)).read_text().splitlines()) if "failed" in row
    ]
    assert {row["error"] for row in failures} == {f"no reply within {TOO_SHORT} seconds"}
    assert len(failures) == 12, "each was tried twice"
    again = run_train_online(run, config(agent, fail_on_error=0.5, resume=True), Silent())
    assert again.artifacts[0].id == "actor-1"
    assert again.metrics.episodes == 12


@pytest.mark.parametrize("rule", ["grpo", "rloo", "rft", "istar", "opsd", "sweet-pg"])
def test_a_step_whose_dialogues_all_failed_teaches_nothing(tmp_path: Path, agent: str, rule: str) -> None:
    run = with_critic(tmp_path, agent)
    with late_replies():
        result = run_train_online(run, config(agent, algorithm=rule, deadline=TOO_SHORT, fail_on_error=6), Silent())
    assert (result.metrics.episodes, result.metrics.failed, result.metrics.updates) == (0, 12, 0)
    assert equal(run.file(result.artifacts[0]), Path(agent))


def with_critic(tmp_path: Path, agent: str) -> Run:
    """A run with a critic that is its reference, so that it gives every turn the same advantage."""
    run = Run.create(tmp_path / "run", "code")
    with run.attempt("train-critic", Settings()) as attempt:
        meta = {"variant": "advantage", "base": agent, "protocol": "paper", "beta": 0.1, "normalize": "turn"}
        draft = attempt.start_artifact("critic", suffix="", meta=meta)
        for path in Path(agent).iterdir():
            (draft.path / path.name).write_bytes(path.read_bytes())
        attempt.finish_artifact(draft)
    return run


@pytest.mark.parametrize("rule", ["grpo", "rloo", "rft", "istar", "sweet-pg"])
def test_a_step_in_which_all_are_equal_leaves_the_weights_as_they_are(tmp_path: Path, agent: str, rule: str) -> None:
    run = with_critic(tmp_path, agent)
    result = run_train_online(run, config(agent, algorithm=rule), Silent())
    assert (result.metrics.steps, result.metrics.updates, result.metrics.episodes) == (2, 0, 12)
    for row in steps(run):
        assert (row["examples"], row["updates"], row["equal_groups"]) == (0, 0, 1.0)
        assert "loss" not in row
    assert equal(run.file(result.artifacts[0]), Path(agent))


def test_groups_of_equal_rewards_are_replaced_by_groups_of_other_tasks(tmp_path: Path, agent: str) -> None:
    asked = config(agent, algorithm="infopo", rule_option=["resample=2"], steps=1, deterministic=True, tasks_per_step=1)
    whole, killed = (Run.create(tmp_path / name, "code") for name in ("whole", "killed"))
    result = run_train_online(whole, asked, Silent())
    assert (result.metrics.episodes, result.metrics.updates) == (9, 1), "no group has different rewards"
    played = [row["id"] for row in rows(whole, "rollouts")]
    assert len({row["task"]["id"] for row in rows(whole, "rollouts")}) == 3
    assert sorted(row["id"] for row in rows(whole, "scores")) == sorted(set(played))
    with pytest.raises(StoppedError):
        run_train_online(killed, asked, Stopping(4, "dialogues"))
    run_train_online(killed, asked.model_copy(update={"resume": True}), Silent())
    assert sorted(row["id"] for row in rows(killed, "rollouts")) == sorted(played)
    assert equal(*(run.path / "actor" / "actor-1" for run in (whole, killed)))
    assert not equal(whole.path / "actor" / "actor-1", Path(agent))


def test_half_a_line_is_played_and_scored_again(tmp_path: Path, agent: str) -> None:
    asked = config(agent, algorithm="opsd", deterministic=True, resume=True)
    whole = Run.create(tmp_path / "whole", "code")
    copying = Copying(whole, 1, "steps")
    run_train_online(whole, asked, copying)
    torn = copying.killed()
    for kind in ("rollouts", "scores"):
        assert len(rows(torn, kind)) == 12, "the second step is played and scored, and not in the checkpoint"
        path = torn.path / kind / f"{kind}-1.jsonl"
        path.write_bytes(path.read_bytes()[:-20])
    run_train_online(torn, asked, Silent())
    for kind in ("rollouts", "scores"):
        assert {row["id"] for row in rows(torn, kind)} == {row["id"] for row in rows(whole, kind)}
        assert len(rows(torn, kind)) == 12
    assert equal(whole.path / "actor" / "actor-1", torn.path / "actor" / "actor-1")
    assert not equal(whole.path / "actor" / "actor-1", Path(agent))


@pytest.mark.skipif(sys.platform != "linux", reason="the log of events reads /proc")
def test_rows_are_on_the_disk_before_the_checkpoint_that_does_not_play_them_again(tmp_path: Path, agent: str) -> None:
    run = Run.create(tmp_path / "run", "code")
    with recorded(run.path) as log:
        run_train_online(run, config(agent), Silent())
    saved = [place for place, event in enumerate(log) if event == ("replace", "actor/actor-1/checkpoint.pt")]
    assert len(saved) == 2
    for file in ("rollouts/rollouts-1.jsonl", "scores/scores-1.jsonl"):
        for place in saved:
            assert [event for event, path in log[:place] if path == file][-1] == "fsync"
