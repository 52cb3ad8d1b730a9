"""`--engine tinker`: a service of the Tinker interface trains what our own engine trains.

The service is a small one of the tests (`tests/tinker_server.py`). The losses are also compared by TuFT where
TUFT_PYTHON names the Python of an environment that has it (CONTRIBUTING.md), with the client that it needs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import Interrupted, SweetError, UsageError
from sweet.learn.components import Example, Objective
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.lora import LoraSettings
from sweet.learn.remote import RemoteEngine
from sweet.learn.sequences import Pool
from sweet.learn.trainee import Start, Trainee
from sweet.llm.pretrained import load_tokenizer
from sweet.llm.tinker import Service
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.runs.run import Run
from sweet.runs.tokens import Tokens, tokens_of_run
from sweet.stages.base import Silent
from sweet.stages.prices import Price, Prices
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.remote import for_service
from sweet.training.stage import plan_train_actor, run_train_actor, run_train_critic
from tests.learn.builders import assert_trained_alike
from tests.learn.test_loop import CRITIC, make_data
from tests.learn.weighted import BOTH, weighted_data
from tests.stages.learn_runs import make_agent, make_run
from tests.tinker_server import TinkerService, chosen_service

tinker = pytest.importorskip("tinker", reason="the client of the Tinker interface is not installed")

TUFT = "TUFT_PYTHON"
LORA = LoraSettings(4, 8, (), seed=3)
SETTINGS = LoopSettings(lr=5e-3, epochs=1, batch=4, seed=1, weight_decay=0.01, share=False)
TRAINING: dict[str, Any] = {"lora": 4, "lr": 5e-3, "epochs": 1, "batch": 4, "device": "cpu"}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_agent(tmp_path_factory.mktemp("agents") / "agent")


@pytest.fixture
def service(agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinkerService]:
    with chosen_service(Path(agent), tmp_path / "service", monkeypatch) as service:
        yield service


@pytest.fixture
def run(agent: str, tmp_path: Path) -> Run:
    run = make_run(tmp_path, agent)
    run_label(run, LabelConfig(), Silent())
    return run


def remote_loop(agent: str, pool: Pool, examples: list[Example], objective: Objective = CRITIC, **more: Any) -> Loop:
    start = Start(agent, LORA, "adapter")
    model = Trainee.on_meta(start).model
    settings = more.pop("settings", SETTINGS)
    engine = partial(RemoteEngine, start=start)
    return Loop(model, pool.sequences, examples, objective, settings, make_engine=engine, **more)


def own_loop(agent: str, weights: dict[str, torch.Tensor], *data: Any, **more: Any) -> Loop:
    """A training by our own engine that begins with the adapter of a service."""
    model = Trainee.load(Start(agent, LORA, "adapter"), "cpu").model
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(weights[peft_name(name)])
    pool, examples, objective = data
    return Loop(model, pool.sequences, examples, objective, SETTINGS, **more)


def peft_name(name: str) -> str:
    return f"base_model.model.{name.replace('.default', '')}"


def assert_same(ours: dict[str, torch.Tensor] | None, theirs: dict[str, torch.Tensor]) -> None:
    assert ours is not None
    assert {peft_name(name) for name in ours} == set(theirs)
    for name, weights in ours.items():
        assert_trained_alike(theirs[peft_name(name)], weights, name)


def assert_trains_the_same(agent: str, objective: Objective) -> None:
    """Three steps (two of pairs) by a service and by our engine, with the same losses and weights."""
    make = make_data if objective.compares else weighted_data
    pool, examples = make(load_tokenizer(agent), 9)
    if objective == BOTH and tinker.__version__ < "0.38":  # TuFT scores one id at each position
        examples = [
            replace(one, terms=tuple(replace(t, top_ids=(), top_logprobs=()) for t in one.terms)) for one in examples
        ]
    theirs, ours = list[Any](), list[Any]()
    remote = remote_loop(agent, pool, examples, objective, on_step=theirs.append)
    start = remote.engine.weights()
    own = own_loop(agent, start or {}, pool, examples, objective, on_step=ours.append)
    remote.run()
    own.run()
    assert len(ours) == 3
    for mine, other in zip(ours, theirs, strict=True):
        assert other["loss"] == pytest.approx(mine["loss"], abs=1e-4)
    trained = remote.final_weights()
    assert trained is not None
    assert_same(own.final_weights(), trained)
    assert max(float((trained[name] - weights).abs().max()) for name, weights in (start or {}).items()) > 1e-3


OBJECTIVES = {
    "preference": CRITIC,
    "preference of sums, with likelihood": Objective(0.1, 0.3, "none"),
    "upstream": Objective(0.1, 1.0, "trajectory", whole_nll=True),
    "likelihood": Objective(None, 1.0),
    "policy-gradient, distil and likelihood": BOTH,
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_service_trains_each_component_as_our_engine(service: TinkerService, agent: str, name: str) -> None:
    assert_trains_the_same(agent, OBJECTIVES[name])
    assert service.calls["steps"] == 3


@pytest.mark.skipif(TUFT not in os.environ, reason=f"{TUFT} names no Python with TuFT")
@pytest.mark.skipif(not tinker.__version__.startswith("0.25."), reason="TuFT 0.2 speaks to the client 0.25")
@pytest.mark.timeout(600)
def test_tuft_trains_each_component_as_our_engine(agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = Path(__file__).parents[1] / "tuft_server.py"
    environment = os.environ | {"TUFT_HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [os.environ[TUFT], str(script), str(port), agent]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            monkeypatch.setenv("TINKER_BASE_URL", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("TINKER_API_KEY", "tml-key-of-a-test")
            wait_for(f"http://127.0.0.1:{port}/api/v1/healthz", server)
            for objective in OBJECTIVES.values():
                assert_trains_the_same(agent, objective)
        finally:
            server.terminate()


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    due = time.monotonic() + 300
    while server.poll() is None and time.monotonic() < due:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"TuFT did not start: {server.poll()}")


@pytest.mark.parametrize("algorithm", ["multi-turn-dpo", "grpo", "critic"])
def test_rules_and_critics_train_the_same_adapter(
    service: TinkerService, run: Run, algorithm: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for engine in ("torch", "tinker"):
        settings = {**TRAINING, "engine": engine, "lora_output": "adapter"}
        if algorithm == "critic":
            result = run_train_critic(run, TrainCriticConfig(**settings, holdout=0.2), Silent())
        else:
            result = run_train_actor(run, TrainActorConfig(**settings, algorithm=algorithm), Silent())
        folders.append(run.file(result.artifacts[0]))
        assert result.artifacts[0].meta["lora_output"] == "adapter"
    mine, theirs = map(tensors, folders)
    assert mine.keys() == theirs.keys()
    for name, weights in mine.items():
        assert_trained_alike(theirs[name], weights, name)
    left = {path.name for path in folders[1].iterdir()} - {path.name for path in folders[0].iterdir()}
    assert left == {"tinker.json"}
    assert not [path for path in run.path.rglob("*") if path.is_file() and service.key.encode() in path.read_bytes()]


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "adapter_model.safetensors"))


def test_a_training_goes_on_from_an_actor_of_the_service(service: TinkerService, run: Run) -> None:
    config = TrainActorConfig(**TRAINING, engine="tinker", algorithm="rft")
    first = run_train_actor(run, config, Silent())
    assert run.manifest().attempts[-1].digest == config.digest(), "a recipe finds the step that it asked for"
    folder = run.file(first.artifacts[0])
    kept = json.loads((folder / "tinker.json").read_text())["service"]
    assert [name for name, seconds in service.kept_for.items() if seconds is None] == [kept], "all others expire"
    assert Service(str(folder)).lora["rank"] == TRAINING["lora"], "TuFT loads no state of another rank"
    one_step = TRAINING | {"batch": 99}
    again = TrainActorConfig(**one_step, engine="tinker", algorithm="multi-turn-dpo", model=str(folder))
    second = run_train_actor(run, again, Silent())
    assert second.metrics.margin == pytest.approx(0, abs=1e-4), "its reference is that actor"
    before, after = tensors(folder), tensors(run.file(second.artifacts[0]))
    assert all(0 < float((after[name] - before[name]).abs().max()) < 0.1 for name in before), "it is the same adapter"
    (folder / "tinker.json").unlink()
    with pytest.raises(UsageError, match="that it has not trained"):
        run_train_actor(run, again, Silent())


def test_a_plan_counts_the_tokens_that_are_sent(service: TinkerService, run: Run) -> None:
    for algorithm in ("multi-turn-dpo", "rft"):
        config = TrainActorConfig(**TRAINING | {"epochs": 2}, engine="tinker", algorithm=algorithm)
        plan = plan_train_actor(run, config, Silent())
        assert service.tokens == 0, "nothing is asked"
        made = run_train_actor(run, config, Silent()).artifacts[0]
        assert plan.work.tokens_billed == service.tokens > 0
        counted = tokens_of_run(run.path, run.manifest(), artifact=made.id)
        assert counted["training"] == Tokens(prompt=service.tokens)
        assert Prices(training=Price(prompt=2e6)).cost(counted) == 2 * service.tokens
        service.tokens = 0


def test_a_training_stops_at_the_limit_of_its_cost_and_goes_on_with_a_higher_one(
    service: TinkerService, run: Run, tmp_path: Path
) -> None:
    (prices := tmp_path / "prices.toml").write_text("[training]\nprompt = 1e6\n")
    config = TrainActorConfig(
        **TRAINING, engine="tinker", algorithm="rft", prices=prices, max_cost=1, save_every=99, resume=True
    )
    for done in (r"Stopped after step 1, which the checkpoint has\.", r"No step is begun\."):
        with pytest.raises(Interrupted, match=rf"The cost is \S+, and the limit is 1\. {done}") as stopped:
            run_train_actor(run, config, Silent())
        assert stopped.value.needs == "--max-cost MORE"
    higher = service.tokens + 1
    result = run_train_actor(run, config.model_copy(update={"max_cost": higher}), Silent())
    assert result.metrics.steps == 2
    assert result.metrics.cost == service.tokens > higher, "nothing is asked twice"
    assert not result.stopped, "at the limit all is done: the next stage is stopped, and says why"


def test_a_step_whose_answer_is_lost_is_taken_once(service: TinkerService, agent: str) -> None:
    pool, examples = make_data(load_tokenizer(agent), 8)
    ends = []
    for lost in (set(), {"optim_step"}):
        service.calls.clear()
        service.lose = lost
        loop = remote_loop(agent, pool, examples)
        loop.run()
        ends.append(loop.final_weights())
        assert service.calls["steps"] == 2
        assert service.calls["optim_step"] == 2 + len(lost) + (not lost and len(ends) > 1)
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0] or ())  # type: ignore[index]


def test_a_killed_training_goes_on_from_its_saved_state(service: TinkerService, agent: str, tmp_path: Path) -> None:
    pool, examples = make_data(load_tokenizer(agent), 10)
    whole = remote_loop(agent, pool, examples)
    whole.run()

    class Killed(Exception):
        pass

    def die(row: dict[str, Any]) -> None:
        if row["step"] == 2:  # a step that was taken, and that no checkpoint has
            raise Killed

    settings = replace(SETTINGS, save_every=1)
    more: dict[str, Any] = {"settings": settings, "checkpoint": tmp_path / "checkpoint.pt"}
    with pytest.raises(Killed):
        remote_loop(agent, pool, examples, **more, on_step=die).run()
    path = more["checkpoint"]
    assert service.states() == [torch.load(path, weights_only=True)["service"]], "earlier ones are superseded"
    resumed = remote_loop(agent, pool, examples, **more)
    resumed.run(resume=True)
    assert service.states() == [torch.load(path, weights_only=True)["service"]]
    ours, theirs = whole.final_weights(), resumed.final_weights()
    assert ours is not None
    assert theirs is not None
    assert all(torch.equal(weights, theirs[name]) for name, weights in ours.items())
    service.tokenizer = "another"
    with pytest.raises(UsageError, match="had the tokenizer own, and now it has another"):
        remote_loop(agent, pool, examples, **more).run(resume=True)


def test_what_a_service_does_wrong_is_an_error(
    service: TinkerService, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, examples = make_data(load_tokenizer(agent), 4)

    def spoil(answer: Any) -> Any:
        if hasattr(answer, "loss_fn_outputs"):
            del answer.loss_fn_outputs[-1]
        return answer

    service.spoil = spoil
    with pytest.raises(SweetError, match="not those of the ids that it got"):
        remote_loop(agent, pool, examples).run()
    service.spoil = None
    loop = remote_loop(agent, pool, examples)
    service.padding = 64 << 20
    with pytest.raises(SweetError, match=r"exports more than [0-9,]+ bytes"):
        loop.engine.weights()
    service.base = Path("renamed")
    with pytest.raises(SweetError, match="there is no model agent"):
        remote_loop(agent, pool, examples)
    monkeypatch.setenv("TINKER_API_KEY", "tml-another-key")
    with pytest.raises(UsageError, match="needs a valid key") as caught:
        remote_loop(agent, pool, examples)
    assert "tml-another-key" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"variant": "regression"}, "no regression head"),
        ({"lora_alpha": 8, "lora": 4}, "chooses the weight"),
        ({"lora_output": "merged", "lora": 4}, "are those of the adapter"),
    ],
)
def test_what_a_service_cannot_train_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        for_service(TrainCriticConfig(engine="tinker", **options))


def test_the_client_is_imported_late() -> None:
    code = "import sys, sweet.training.stage; sys.exit('tinker' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_critic_at_the_service_judges_as_one_here(service: TinkerService, run: Run) -> None:
    made = run_train_critic(run, TrainCriticConfig(**TRAINING, engine="tinker"), Silent()).artifacts[0]
    how: dict[str, Any] = {"judge": "critic", "from_": made.id, "device": "cpu"}
    sampled = RankConfig(**how, candidates=3, fraction=1.0, max_tokens=8, local_engine="embedded")
    here = run_rank(run, sampled, Silent()).artifacts[0]
    asked = service.calls["forward"] + service.calls["forward_backward"]
    there = run_rank(run, RankConfig(**how, replies=here.id, local_engine="tinker"), Silent()).artifacts[0]
    assert service.calls["forward"] + service.calls["forward_backward"] > asked
    ours, theirs = (
        {
            (row["trajectory_id"], row["turn"], place): one["advantage"]
            for row in map(json.loads, run.file(made).read_text().splitlines())
            for place, one in enumerate(row["candidates"])
        }
        for made in (here, there)
    )
    assert theirs == pytest.approx(ours, abs=1e-4)
    assert max(map(abs, ours.values())) > 1e-4
