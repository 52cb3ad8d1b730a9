"""The cards of trained models, as they are pushed to the model hub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.publishing.config import PushConfig
from sweet.publishing.stage import run_push
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.stage import run_train_actor, run_train_critic
from tests import programs
from tests.publishing.hub import TOKEN, WritableHub, serve_writable_hub
from tests.stages.learn_runs import make_agent, make_run
from tests.training.test_train import put_pairs


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = make_run(tmp_path, make_agent(tmp_path / "agent"))
    run_label(made, LabelConfig(), Silent())
    put_pairs(made)
    return made


@pytest.fixture
def hub() -> Iterator[WritableHub]:
    with serve_writable_hub() as running:
        yield running


def called(hub: WritableHub, *words: str | Path) -> tuple[int, str]:
    environment = os.environ | {"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = programs.run(["-m", "sweet", *words], env=environment | {"HF_TOKEN": TOKEN})
    assert TOKEN not in done.stdout + done.stderr
    return done.returncode, " ".join(done.stderr.replace("│", " ").split())


def test_an_actor_is_pushed_with_its_card(run: Run, hub: WritableHub) -> None:
    run_train_actor(run, TrainActorConfig(epochs=1), Silent())
    code, err = called(hub, "data", "push", run.path, "lab/agent", "--actor", "last")
    assert code == 0, err
    found = hub.repositories["models/lab/agent"]
    assert found.private
    trained = run.file(run.artifact("actor-1"))
    assert found.files["model.safetensors"] == (trained / "model.safetensors").read_bytes()
    card = found.files["README.md"].decode()
    assert "by the method `sweet`" in card
    assert "not a chat model" not in card
    assert TOKEN not in (run.path / "manifest.json").read_text()


def test_the_card_of_a_critic_says_that_it_is_none_to_chat_with(run: Run, hub: WritableHub) -> None:
    run_train_critic(run, TrainCriticConfig(epochs=1, holdout=0.2), Silent())
    code, err = called(hub, "data", "push", run.path, "me/critic", "--critic", "critic-1")
    assert code == 0, err
    card = hub.repositories["models/me/critic"].files["README.md"].decode()
    head, text = card.split("\n---\n", 1)
    assert "pipeline_tag" not in head, "the hub offers no chat with it"
    for part in (
        "not a chat model",
        "hidden information of the task",
        "must not reach an agent",
        "sweet rank RUN --from",
    ):
        assert part in text
    assert "vllm serve" not in text
    assert "held-out preferences" in text
    again, err = called(hub, "data", "push", run.path, "me/critic", "--critic", "last")
    assert again == 0, err
    assert len(hub.repositories["models/me/critic"].messages) == 2
    both = called(hub, "data", "push", run.path, "me/critic", "--critic", "last", "--actor", "last")
    assert both[0] == 2


@pytest.mark.parametrize("variant", ["regression", "no-info"])
def test_the_card_of_a_critic_says_what_it_reads_and_computes(run: Run, tmp_path: Path, variant: Any) -> None:
    run_train_critic(run, TrainCriticConfig(epochs=1, variant=variant), Silent())
    run_push(run, "me/critic", PushConfig(critic="critic-1", out=tmp_path / "card"), Silent())
    card = (tmp_path / "card" / "README.md").read_text()
    assert ("regression_head.safetensors" in card) == (variant == "regression")
    assert ("The dialogue alone" in card) == (variant == "no-info")
    assert ("must not reach an agent" in card) == (variant != "no-info")
