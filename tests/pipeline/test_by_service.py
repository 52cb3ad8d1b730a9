"""`sweet train` by a service of the Tinker interface, killed by -9 in each of its stages and called again.

The service is the small one of the tests. It kills the program at a request that it counts, so that the moment is the
same each time; stages that ask it nothing kill themselves when their artifact is whole and not recorded yet.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from sweet.errors import SweetError
from sweet.runs.run import Run
from sweet.tasks.packaged import PACKAGED
from tests.programs import start
from tests.tinker_server import TinkerService, chosen_service

pytest.importorskip("tinker", reason="the client of the Tinker interface is not installed")

RECIPE = """
[train]
tasks = "micro"
train-tasks = 4
samples = 4
eval-tasks = 1
[rollout]
max-turns = 6
max-tokens = 24
concurrency = 1
local-engine = "tinker"
[train-critic]
engine = "tinker"
lora = 4
lr = 5e-3
epochs = 1
batch = 2
save-every = 1
[rank]
candidates = 2
fraction = 0.15
concurrency = 1
local-engine = "tinker"
[train-actor]
engine = "tinker"
lora = 4
lr = 5e-3
epochs = 1
batch = 4
save-every = 1
[train-online]
local-engine = "tinker"
lora = 4
lr = 5e-3
steps = 2
tasks-per-step = 1
group = 4
seed = 8
concurrency = 1
save-every = 1
"""
PROGRAM = """
import os, signal, sys
from sweet.cli import main
from sweet.stages.frame import Frame

def finish(self, *given, finish=Frame.finish, **more):
    if self.stage == sys.argv[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return finish(self, *given, **more)

Frame.finish = finish
del sys.argv[0]
main()
"""
"""`sweet`, after the name of a stage that kills it when it has made its artifact, and not recorded it yet."""
COUNTED = ("asample", "forward_backward", "optim_step", "save_weights_external")
"""Requests that a service bills, and exports."""


@dataclass
class Called:
    """Calls of `sweet train` with one run.

    Attributes:
        asked: the requests by the artifact for which they came and their name.
    """

    service: TinkerService
    folder: Path
    words: list[str | Path]
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    def call(self, stage: str = "", kill: tuple[str, str, int] | None = None) -> int:
        """Call it; return how it ended.

        Args:
            stage: that kills it when its artifact is made.
            kill: the artifact for which requests of a name come, and the number of the one that kills it.
        """
        dead = False

        def arrived(name: str) -> bool:
            nonlocal dead
            if not dead:
                made = self.made()
                self.asked[made, name] += 1
                dead = (made, name, self.asked[made, name]) == kill
                if dead:
                    program.kill()
            return not dead

        self.service.arrived = arrived
        with start(["-c", PROGRAM, stage, "train", self.folder, *self.words, "--quiet"], torch=True) as program:
            return int(program.wait(400))

    def made(self) -> str:
        """Return the artifact that is being made."""
        try:
            attempts = Run.open(self.folder).manifest().attempts
        except SweetError:
            return ""
        return next((one.outputs[0] for one in reversed(attempts) if one.status == "running" and one.outputs), "")

    def artifacts(self) -> dict[str, Any]:
        """Return what was made, by id: rows without times, and weights."""
        run = Run.open(self.folder)
        return {one.id: _content(run.file(one)) for one in run.manifest().artifacts if one.status == "done"}


def _content(path: Path) -> Any:
    if path.is_dir():
        weights = load_file(path / "adapter_model.safetensors")
        return {name: tensor.tolist() for name, tensor in weights.items()}
    return sorted(json.dumps(_timeless(json.loads(line))) for line in path.read_text().splitlines())


def _timeless(row: Any) -> Any:
    if isinstance(row, dict):
        return {key: _timeless(value) for key, value in row.items() if not key.endswith("seconds")}
    return [_timeless(one) for one in row] if isinstance(row, list) else row


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with chosen_service(PACKAGED["micro"], tmp_path / "service", monkeypatch) as service:
        yield service


@pytest.fixture
def words(tmp_path: Path) -> list[str | Path]:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return ["--recipe", tmp_path / "recipe.toml", "--trust"]


def broken(whole: Called, killed: Called, kills: list[str | tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    """Call a loop without a break and one with kills; return what the second asked more, by artifact and request.

    Args:
        kills: each the stage that kills itself, or the request that kills (`Called.call`).
    """
    assert whole.call() == 0
    for kill in kills:
        ended = killed.call(kill) if isinstance(kill, str) else killed.call(kill=kill)
        assert ended == -signal.SIGKILL, kill
    assert killed.call() == 0
    ours, theirs = whole.artifacts(), killed.artifacts()
    assert list(ours) == list(theirs)
    for name in ours:
        assert ours[name] == theirs[name], name
    asked = {key for key in whole.asked | killed.asked if key[1] in COUNTED}
    return {key: more for key in sorted(asked) if (more := killed.asked[key] - whole.asked[key])}


@pytest.mark.timeout(900)
def test_a_loop_that_is_killed_in_each_stage_goes_on(
    service: TinkerService, tmp_path: Path, words: list[str | Path]
) -> None:
    whole, killed = (Called(service, tmp_path / name, words) for name in ("whole", "killed"))
    kills: list[str | tuple[str, str, int]] = [
        ("rollouts-1", "asample", 2),
        "eval",
        ("rollouts-2", "asample", 9),
        "label",
        ("critic-1", "forward_backward", 4),  # the first of the second step, after those of reference and first step
        "train-critic",
        ("candidates-1", "forward_backward", 1),
        "pair",
        ("actor-1", "optim_step", 2),
        ("actor-1", "save_weights_external", 1),
        "train-actor",
        ("rollouts-3", "asample", 2),
    ]
    more = broken(whole, killed, kills)
    assert whole.asked["critic-1", "optim_step"] == 3
    of_judge = more.pop(("candidates-1", "forward_backward"))
    assert of_judge > 0, "a batch that was being judged"
    assert more.pop(("candidates-1", "asample"), 0) <= 1, "what is sampled while it judges"
    assert more == {
        ("rollouts-1", "asample"): 1,
        ("rollouts-2", "asample"): 1,
        ("critic-1", "forward_backward"): 1,
        ("actor-1", "forward_backward"): 2,
        ("actor-1", "optim_step"): 1,  # that no checkpoint has
        ("actor-1", "save_weights_external"): 1,
        ("rollouts-3", "asample"): 1,
    }


@pytest.mark.timeout(900)
def test_an_online_training_that_is_killed_goes_on(
    service: TinkerService, tmp_path: Path, words: list[str | Path]
) -> None:
    words += ["--algorithm", "grpo"]
    whole, killed = (Called(service, tmp_path / name, words) for name in ("whole", "killed"))
    more = broken(whole, killed, [("actor-1", "asample", 30), ("actor-1", "optim_step", 2), "train-online"])
    assert whole.asked["actor-1", "optim_step"] == 2
    assert more == {
        ("actor-1", "asample"): 1,
        ("actor-1", "forward_backward"): 3,  # by the policy, by what it started from, and the gradients
        ("actor-1", "optim_step"): 1,
    }
