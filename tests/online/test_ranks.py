"""Online training on several ranks: it learns as one process does, goes on when it was killed, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sweet import gpus as gpus_module
from sweet.credit.registry import credit_rule
from sweet.errors import SweetError, UsageError
from sweet.gpus import Gpu
from sweet.learn.distributed import Layout, launch_commands, launch_environment
from sweet.learn.job import checkpoint_path
from sweet.learn.logprobs import Scorer
from sweet.learn.tokens import ChatEncoder
from sweet.learn.trainee import save_model
from sweet.llm.local import LocalServing
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.online import ranks as ranks_module
from sweet.online.config import TrainOnlineConfig
from sweet.online.learner import Learner, policy_to_train
from sweet.online.prepare import loading, prepare
from sweet.online.ranks import RankJob
from sweet.online.stage import plan_train_online, run_train_online
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.stages.critics import CriticSettings
from sweet.tasks.trajectory import dump
from sweet.training.asked_models import RunCritic
from sweet.training.checkpoints import RANKS
from sweet.training.examples import DialogueEncoder
from sweet.training.hyperparameters import resolve
from sweet.training.starting_policy import StartingPolicy
from tests import programs
from tests.credit.test_token_terms import with_ids
from tests.learn.builders import build_model, build_trajectory
from tests.learn.test_zero import like, same_weights
from tests.online import test_failures
from tests.online.learner_ranks import CALLS, CASES, Case, learn, results
from tests.runs.conftest import Settings
from tests.stages.counting import Counting
from tests.stages.learn_runs import make_agent
from tests.training.test_train_ranks import processes_about, wait_until

pytestmark = pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are found under /proc")


def sampled(agent: str, step: int) -> dict[str, Any]:
    """The arguments of a call to learn: dialogues of two tasks with the probabilities of the agent, and rewards."""
    tokenizer = load_tokenizer(agent)
    encoder = DialogueEncoder(ChatEncoder(tokenizer), "paper", None)
    models = StartingPolicy(encoder, lambda: Scorer(load_model(agent, "cpu")), 4096)
    plain = [
        with_ids(build_trajectory(f"d{step}{i}", turns=1 + i % 3, task=f"task-{i % 2}"), tokenizer) for i in range(5)
    ]
    known = models.logprobs("policy", plain)
    rows = []
    for one in plain:
        history = list(one.dialogue_history)
        for turn, found in known[one.id].items():
            history[turn] = history[turn].model_copy(update={"logprobs": found.tokens})
        rows.append(dump(one.model_copy(update={"dialogue_history": tuple(history), "agent_system": "Ask."})))
    return {"step": step, "dialogues": rows, "rewards": {one.id: float(i in (0, 3, 4)) for i, one in enumerate(plain)}}


def with_critic(folder: Path, agent: str) -> Run:
    """A run with a critic that is not its reference."""
    run, tokenizer = Run.create(folder, "code"), load_tokenizer(agent)
    with run.attempt("train-critic", Settings()) as attempt:
        meta = {"variant": "advantage", "base": agent, "protocol": "paper", "beta": 0.1, "normalize": "turn"}
        draft = attempt.start_artifact("critic", suffix="", meta=meta)
        save_model(build_model(len(tokenizer), seed=1), tokenizer, draft.path)
        attempt.finish_artifact(draft)
    return run


def write_job(case: Case, run: Run, agent: str, folder: Path) -> RankJob:
    options = {"algorithm": case.rule, "rule_option": [*case.options], "device": "cpu", "lr": 5e-4, **case.more}
    config = TrainOnlineConfig.model_validate(options)
    rule = credit_rule(case.rule, case.options)
    used = resolve(config.model_copy(update={"epochs": 1, "batch": 7, "lora": None}), case.rule, 10**4, "paper")
    job = RankJob(
        run=run.path,
        config=config,
        base=agent,
        used=used,
        critic="critic-1" if rule.asks_critic else None,
        source="rollouts-1",
        device="cpu",
        zero=case.zero,
    )
    folder.mkdir()
    job.write(folder)
    return job


def alone(case: Case, run: Run, agent: str, calls: list[dict[str, Any]], path: Path) -> None:
    """Learn as the ranks do, in this process."""
    config = RankJob.read(path.parent / case.name).config
    rule = credit_rule(case.rule, case.options)
    used = resolve(config.model_copy(update={"epochs": 1, "batch": 7, "lora": None}), case.rule, 10**4, "paper")
    critic = None
    if rule.asks_critic:
        critic = RunCritic(run, run.find("critic", None, needed_by=""), CriticSettings("cpu"), Silent())
    load = loading(config)
    model = policy_to_train(config, agent, load)
    learn(Learner(config, used, "rollouts-1", critic, load, model), calls, path)


def start(folder: Path) -> None:
    [command] = launch_commands(Layout(2), folder, 0, "tests.online.learner_ranks").values()
    environment = launch_environment(Layout(2), dict(os.environ)) | {"OMP_NUM_THREADS": "1"}
    root = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([root, environment.get("PYTHONPATH", "")])
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr[-4000:]


@pytest.mark.usefixtures("forked_python")
def test_ranks_learn_and_resume_as_one_process_does(tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "agent", layers=2)
    run = with_critic(tmp_path / "run", agent)
    calls = [sampled(agent, step) for step in (1, 2)]
    (tmp_path / CALLS).write_text(json.dumps(calls))
    for case in CASES:
        write_job(case, run, agent, tmp_path / case.name)
    start(tmp_path)
    before = load_model(agent, "cpu").state_dict()
    of_one: dict[str, tuple[Any, Any]] = {}
    for case in CASES:
        if case.of_one not in of_one:
            alone(case, run, agent, calls, tmp_path / case.of_one)
            of_one[case.of_one] = read(tmp_path / case.of_one)
        found, weights = of_one[case.of_one]
        assert found["updates"] >= 2, case.name
        assert not torch.allclose(weights["sampled"]["model.norm.weight"], before["model.norm.weight"]) or case.more
        for name in ("ranks", *(["resumed"] if case.resumed else [])):
            again, others = read(tmp_path / case.name / name)
            assert again["updates"] == found["updates"]
            for record, right in zip(reversed(again["records"]), reversed(found["records"]), strict=False):
                assert record.keys() == right.keys()
                for figure in right.keys() - {"tokens_computed", "padding", "sharing"}:
                    assert like(record[figure], right[figure]), (case.name, name, figure)
            for which in ("trained", "sampled"):
                same_weights(others[which], weights[which], f"{case.name} {name} {which}")


def read(path: Path) -> tuple[Any, Any]:
    found, stored = results(path)
    return json.loads(found.read_text()), torch.load(stored, weights_only=True)


OPTIONS: dict[str, Any] = {
    "steps": 4,
    "tasks_per_step": 1,
    "group": 4,
    "seed": 8,  # some dialogues of most steps solve their task, and some do not
    "tasks": "micro",
    "max_turns": 6,
    "max_tokens": 48,
    "save_every": 1,
    "device": "cpu",
    "deterministic": True,
    "resume": True,
}


def config(**more: Any) -> TrainOnlineConfig:
    return TrainOnlineConfig.model_validate(OPTIONS | more)


@linux
def test_a_training_goes_on_after_a_rank_and_then_the_command_were_killed_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run, whole = Run.create(tmp_path / "run", "code"), Run.create(tmp_path / "whole", "code")
    actor = run.path / "actor" / "actor-1"
    saved = checkpoint_path(actor / RANKS)
    words = [*programs.SWEET, "train-online", str(run.path), "--device", "cpu", "--devices", "2", "--resume"]
    words += ["--deterministic", "--tasks", "micro", "--steps", "4", "--tasks-per-step", "1", "--group", "4"]
    words += ["--max-turns", "6", "--max-tokens", "48", "--save-every", "1", "--zero", "2", "--seed", "8", "--quiet"]

    several = config(devices=2, zero=2)  # stage 3 is in `learner_ranks`, and takes twice the time

    def steps() -> int:
        return len(json.loads(saved.read_text())["state"]["steps"]) if saved.exists() else 0

    with monkeypatch.context() as forked:
        forked.setattr(sys, "executable", programs.interpreter())
        with pytest.raises(SweetError, match="was killed by SIGKILL") as error:
            run_train_online(run, several, Killer(actor))
    assert "resume" in str(error.value.fix)
    assert not processes_about(actor)
    assert steps() == 1
    nowhere = subprocess.DEVNULL
    with programs.start(words, stdout=nowhere, stderr=nowhere) as process:
        while not (steps() > 1 or process.poll() is not None):
            time.sleep(0.01)
        process.kill()
    wait_until(lambda: not processes_about(actor))
    assert steps() < 4
    with pytest.raises(UsageError, match="started by several ranks"):
        run_train_online(run, config(), Silent())
    monkeypatch.setattr(sys, "executable", programs.interpreter())
    result = run_train_online(run, several, Silent())
    assert result.artifacts[0].id == "actor-1"
    assert not (actor / RANKS).exists()
    one = run_train_online(whole, several, Silent())
    assert (result.metrics.updates, result.metrics.episodes) == (one.metrics.updates, 16)
    assert one.metrics.updates > 1
    expected, found = trained(whole), trained(run)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


class Killer(Counting):
    """Kills a rank when the second step is learned and not in the checkpoint."""

    def __init__(self, actor: Path) -> None:
        self.actor, self.steps = actor, 0

    def counted(self, title: str, by: int) -> None:
        self.steps += title == "steps"
        if self.steps == 2:
            ranks = [pid for pid in processes_about(self.actor) if is_rank(pid)]
            os.kill(ranks[-1], signal.SIGKILL)


def is_rank(pid: int) -> bool:
    """Whether a process about the actor is neither the launcher nor its supervisor."""
    return b"sweet.learn.launcher" not in (Path("/proc") / str(pid) / "cmdline").read_bytes()


def trained(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.path / "actor" / "actor-1" / "model.safetensors")


@pytest.mark.usefixtures("forked_python")
def test_a_server_gets_whole_weights_from_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, run, loaded = make_agent(tmp_path / "agent", layers=2), Run.create(tmp_path / "run", "code"), list[Any]()

    def load(folder: Path) -> dict[str, torch.Tensor]:
        weights = load_file(folder / "model.safetensors")
        loaded.append(weights)
        return weights

    monkeypatch.setattr(test_failures, "weights", load)
    more = {"agent": agent, "algorithm": "opsd", "steps": 1, "deterministic": False, "devices": 1}
    with test_failures.serving(agent) as (url, _):
        run_train_online(run, config(**more, agent_url=[url], max_tokens=6, max_turns=2), Silent())
    [found] = loaded
    expected = trained(run)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    before = load_file(Path(agent) / "model.safetensors")
    assert not torch.equal(found["model.norm.weight"], before["model.norm.weight"])
    wait_until(lambda: not processes_about(run.path))


def test_a_plan_names_the_devices_and_options_that_need_them_are_refused_without(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "code")
    work = plan_train_online(run, config(devices=2), Silent()).work
    assert (work.devices, work.zero) == (2, 3)
    work = plan_train_online(run, config(), Silent()).work
    assert (work.devices, work.zero) == (1, None)
    with pytest.raises(UsageError, match="Without a number of devices") as error:
        plan_train_online(run, config(zero=2, offload="optimizer"), Silent())
    assert str(error.value.where) == "--zero 2, --offload optimizer"
    with pytest.raises(UsageError, match="cannot offload"):
        plan_train_online(run, config(devices=2, zero=1, offload="all"), Silent())


@pytest.mark.parametrize(("number", "ranks", "left"), [(1, "3", 3), (2, "2,3", 2), (4, "0,1,2,3", 0)])
def test_the_ranks_get_the_last_gpus_that_run_no_server(
    monkeypatch: pytest.MonkeyPatch, number: int, ranks: str, left: int
) -> None:
    gpus = [Gpu(f"GPU-{index}", word=str(index)) for index in range(5)]
    monkeypatch.setattr(gpus_module, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(ranks_module, "resolve_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(ranks_module, "layout_of", lambda options: Layout(options.devices))
    with gpus_module.in_use(gpus[4:]):
        found = ranks_module.devices_of(config(devices=number))
        assert found is not None
        assert [gpu.word for gpu in found.gpus] == ranks.split(",")
        assert len(found.left) == left
        with pytest.raises(UsageError, match="4 GPUs of this machine run no server"):
            ranks_module.devices_of(config(devices=5))


def test_the_gpus_of_servers_are_chosen_among_those_that_no_rank_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpus, free = [Gpu(f"GPU-{index}", word=str(index)) for index in range(4)], list[str]()
    run = Run.create(tmp_path / "run", "code")
    ready = prepare(run, config(), Silent(), weights=False)
    monkeypatch.setattr(gpus_module, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(ranks_module, "resolve_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(ranks_module, "layout_of", lambda options: Layout(options.devices))
    ready = replace(ready, devices=ranks_module.devices_of(config(devices=2)))

    def plan(*_: object) -> None:
        free.extend(gpu.word for gpu in gpus_module.free_gpus())
        raise UsageError("planned")

    monkeypatch.setattr(LocalServing, "plan", plan)
    monkeypatch.setattr("sweet.online.stage.prepare", lambda *_: ready)
    with pytest.raises(UsageError, match="planned"):
        run_train_online(run, ready.config, Silent())
    assert free == ["0", "1"]
