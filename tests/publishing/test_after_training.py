"""`--push` of trainings: what is checked before they begin, what is pushed, and what is kept when the hub refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sweet
from sweet.errors import NotPushed, UsageError
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.recipe import resolve
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.training.config import TrainCriticConfig
from tests import programs
from tests.publishing.hub import TOKEN, WritableHub, serve_writable_hub
from tests.stages.heard import Heard
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


def called(hub: WritableHub, *words: str | Path, token: str | None = TOKEN) -> tuple[int, str, str]:
    environment = os.environ | {"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment |= {"HF_TOKEN": token} if token else {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_HOME": "/nonexistent"}
    done = programs.run(["-m", "sweet", *words], env=environment)
    return done.returncode, done.stdout, " ".join(done.stderr.replace("│", " ").split())


def trainings(run: Run) -> list[str]:
    return [attempt.id for attempt in run.manifest().attempts if attempt.stage.startswith("train-")]


def test_an_actor_is_pushed_when_its_training_has_ended(run: Run, hub: WritableHub) -> None:
    code, out, err = called(hub, "train-actor", run.path, "--epochs", "1", "--push", "lab/agent", "--json")
    assert code == 0, err
    assert json.loads(out)["artifacts"][0]["id"] == "actor-1"
    found = hub.repositories["models/lab/agent"]
    assert found.private
    trained = run.file(run.artifact("actor-1"))
    assert found.files["model.safetensors"] == (trained / "model.safetensors").read_bytes()
    card = found.files["README.md"].decode()
    assert "by the method `sweet`" in card
    assert "not a chat model" not in card
    assert "Pushed actor-1" in err
    assert TOKEN not in out + err + (run.path / "manifest.json").read_text()


def test_the_card_of_a_critic_says_that_it_is_none_to_chat_with(run: Run, hub: WritableHub) -> None:
    code, _, err = called(hub, "train-critic", run.path, "--epochs", "1", "--holdout", "0.2", "--push", "me/critic")
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
    again, _, err = called(hub, "data", "push", run.path, "me/critic", "--critic", "last")
    assert again == 0, err
    assert len(hub.repositories["models/me/critic"].messages) == 2
    both = called(hub, "data", "push", run.path, "me/critic", "--critic", "last", "--actor", "last")
    assert both[0] == 2


@pytest.mark.parametrize("variant", ["regression", "no-info"])
def test_the_card_of_a_critic_says_what_it_reads_and_computes(run: Run, tmp_path: Path, variant: Any) -> None:
    from sweet.publishing.config import PushConfig
    from sweet.publishing.stage import run_push
    from sweet.training.stage import run_train_critic

    run_train_critic(run, TrainCriticConfig(epochs=1, variant=variant), Silent())
    run_push(run, "me/critic", PushConfig(critic="critic-1", out=tmp_path / "card"), Silent())
    card = (tmp_path / "card" / "README.md").read_text()
    assert ("regression_head.safetensors" in card) == (variant == "regression")
    assert ("The dialogue alone" in card) == (variant == "no-info")
    assert ("must not reach an agent" in card) == (variant != "no-info")


@pytest.mark.parametrize(
    ("name", "token", "says"),
    [
        ("agent", TOKEN, "ORG/NAME"),
        ("me/agent", None, "No token of the model hub is stored"),
        ("me/agent", "hf_anotherSecretThatIsWrong987654", "does not let you write"),
        ("club/agent", TOKEN, "me cannot create repositories of club"),
        ("other/agent", TOKEN, "me cannot create repositories of other"),
        ("other/there", TOKEN, "does not let you write"),
    ],
)
def test_what_would_fail_fails_before_the_training(
    run: Run, hub: WritableHub, name: str, token: str | None, says: str
) -> None:
    from tests.publishing.hub import Repository

    hub.repositories["models/other/there"] = Repository(private=False)
    code, _, err = called(hub, "train-actor", run.path, "--push", name, token=token)
    assert code == 2, err
    assert says in err
    assert trainings(run) == []
    assert list(hub.repositories) == ["models/other/there"], "nothing was created"
    assert token is None or token not in err


def test_a_token_that_may_only_read_and_a_hub_out_of_order_are_found_before(run: Run, hub: WritableHub) -> None:
    hub.role = "read"
    code, _, err = called(hub, "train-critic", run.path, "--push", "me/critic")
    assert (code, "may only read" in err) == (2, True), err
    hub.broken = True
    code, _, err = called(hub, "train-critic", run.path, "--push", "me/critic")
    assert (code, "answered with an error" in err) == (3, True), err
    hub.broken, hub.strange = False, b'["me"]'
    code, _, err = called(hub, "train-critic", run.path, "--push", "me/critic")
    assert (code, "HF_ENDPOINT" in err) == (3, True), err
    assert trainings(run) == []


def test_a_model_that_the_hub_does_not_take_is_kept_and_the_error_says_how_to_push_it(
    run: Run, hub: WritableHub
) -> None:
    hub.full = True
    code, out, err = called(hub, "train-actor", run.path, "--epochs", "1", "--push", "me/agent", "--json")
    assert code == 1, err
    assert "actor-1 is trained and kept" in err
    found = json.loads(out)
    assert found["fix"] == f"sweet data push {run.path} me/agent --actor actor-1"
    assert found["artifacts"][0]["id"] == "actor-1"
    assert run.artifact("actor-1").status == "done"
    assert run.manifest().attempts[-1].status == "done"
    hub.full = False
    words = found["fix"].split()[1:]
    assert called(hub, *words)[0] == 0
    assert "model.safetensors" in hub.repositories["models/me/agent"].files


def test_an_online_training_pushes_its_actor(tmp_path: Path, hub: WritableHub) -> None:
    options = ["--steps", "1", "--tasks", "micro", "--tasks-per-step", "2", "--group", "2", "--max-turns", "3"]
    code, _, err = called(hub, "train-online", tmp_path / "run", *options, "--push", "me/agent")
    assert code == 0, err
    assert "by the method `grpo`" in hub.repositories["models/me/agent"].files["README.md"].decode()


def test_the_functions_of_python_push_too(run: Run, hub: WritableHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    heard = Heard()
    hub.full = True
    with pytest.raises(NotPushed, match="critic-1 is trained and kept") as refused:
        sweet.train_critic(run, sweet.TrainCriticConfig(epochs=1, push="me/critic"), reporter=heard)
    assert refused.value.result.artifacts[0].id == "critic-1"
    with pytest.raises(UsageError, match="me cannot create"):
        sweet.train_critic(run, sweet.TrainCriticConfig(epochs=1, push="other/critic"))


LOOP = """
[train]
tasks = "micro"
train-tasks = 16
samples = 4
eval-tasks = 4
[rank]
candidates = 2
fraction = 0.05
[train-actor]
epochs = 1
"""


def test_the_loop_pushes_the_actor_that_it_keeps(tmp_path: Path, hub: WritableHub) -> None:
    """The repository is part of the recipe, so that a call that goes on pushes too."""
    folder, recipe = tmp_path / "run", tmp_path / "own.toml"
    recipe.write_text(LOOP)
    code, _, err = called(hub, "train", folder, "--recipe", recipe, "--push", "club/agent")
    assert (code, "me cannot create repositories of club" in err) == (2, True), err
    assert not folder.exists(), "nothing was begun"
    hub.full = True
    code, out, err = called(hub, "train", folder, "--recipe", recipe, "--push", "lab/agent", "--json")
    assert (code, "actor-1 is trained and kept" in err) == (1, True), err
    assert json.loads(out)["fix"] == f"sweet data push {folder} lab/agent --actor actor-1"
    assert json.loads(out)["metrics"]["best"] == "actor-1"
    hub.full = False
    attempts = [one.stage for one in Run.open(folder).manifest().attempts]
    code, _, err = called(hub, "train", folder)
    assert (code, "Pushed actor-1" in err) == (0, True), err
    assert [one.stage for one in Run.open(folder).manifest().attempts] == [*attempts, "train"]
    found = hub.repositories["models/lab/agent"]
    assert "by the method `sweet`" in found.files["README.md"].decode()
    kept = Run.open(folder).file(Run.open(folder).artifact("actor-1"))
    assert found.files["model.safetensors"] == (kept / "model.safetensors").read_bytes()


def test_a_loop_that_keeps_its_agent_pushes_nothing(
    tmp_path: Path, hub: WritableHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training of this rate changes nothing, and greedy dialogues are then the same."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    (tmp_path / "own.toml").write_text(f"{LOOP}lr = 1e-12\n[evaluation]\ntemperature = 0\n")
    config = LoopConfig(recipe=str(tmp_path / "own.toml"), rounds=2, push="me/agent")
    heard = Heard()
    result = sweet.train(Run.create(tmp_path / "run"), config, reporter=heard)
    assert result.metrics.best == "micro"
    assert any("nothing is pushed to me/agent" in text for text in heard.warnings)
    assert hub.repositories == {}


def test_a_push_is_no_setting_of_the_result_and_none_of_a_recipe() -> None:
    assert TrainCriticConfig(push="me/critic").digest() == TrainCriticConfig().digest()
    with pytest.raises(UsageError, match="decided by sweet train"):
        resolve(LoopConfig(set_=["train-actor.push=me/agent"]), None)
