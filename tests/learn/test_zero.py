"""Two ranks under every ZeRO stage train as one process does, and resume where they were interrupted."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import UsageError
from sweet.learn.batches import epoch_order, step_share
from sweet.learn.distributed import Layout, launch_commands, launch_environment
from sweet.learn.engine import trainable_weights
from sweet.learn.estimate import ZeroSettings
from sweet.learn.head import load_head
from sweet.learn.job import Job
from sweet.learn.logprobs import pack_bundles
from sweet.learn.metrics import Record
from sweet.learn.slurm import Allocation
from sweet.learn.trainee import Start, Trainee, save_model
from sweet.learn.vision_processor import VisionProcessor
from sweet.learn.zero import ZeroEngine, deepspeed_config
from tests.learn.builders import assert_trained_alike, build_model
from tests.learn.sighted import make_sighted
from tests.learn.sighted_data import BOUND, sighted_preferences
from tests.learn.zero_ranks import (
    CASES,
    HELDOUT,
    JOB,
    MODEL,
    OBJECTIVES,
    RESUMED,
    SETTINGS,
    TRAINED,
    case_name,
    last_step,
    make_loop,
)

OF_THE_SHARE = {"tokens_per_second", "tokens_computed", "tokens_computed_per_second", "sharing", "padding"}
"""Metrics that depend on how the work is divided."""

needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")


def start(folder: Path) -> None:
    """Two ranks, that leave in `folder` what came out."""
    layout = Layout(2)
    [command] = launch_commands(layout, folder, 0, "tests.learn.zero_ranks").values()
    environment = launch_environment(layout, dict(os.environ)) | {"OMP_NUM_THREADS": "1"}
    root = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([root, environment.get("PYTHONPATH", "")])
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr[-4000:]


def alone(tokenizer: Any, name: str, folder: Path) -> tuple[list[Record], dict[str, torch.Tensor]]:
    records: list[Record] = []
    loop = make_loop(tokenizer, name, records, folder, checkpoint=folder / "alone" / name)
    loop.run()
    weights = loop.final_weights()
    assert weights is not None
    return records, weights


def found(path: Path) -> tuple[list[Record], dict[str, torch.Tensor]]:
    return json.loads(path.with_suffix(".json").read_text()), torch.load(path.with_suffix(".pt"), weights_only=True)


def like(found: Any, right: Any) -> bool:
    """Whether two figures, or lists of them, are the same up to the order of sums."""
    if isinstance(right, list):
        return len(found) == len(right) and all(map(like, found, right))
    return bool(found is None if right is None else found == pytest.approx(right, rel=1e-4, abs=1e-4))


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], case: str) -> None:
    assert one.keys() == other.keys()
    for name, weights in one.items():
        assert_trained_alike(other[name], weights, f"{case} {name}")


@needs_deepspeed
@pytest.mark.usefixtures("forked_python")
def test_ranks_train_and_resume_as_one_process_does(tmp_path: Path, tokenizer: Any) -> None:
    model = build_model(len(tokenizer))
    save_model(model, tokenizer, tmp_path / MODEL)
    write_job(tmp_path)
    start(tmp_path)
    # Each rank stores its half and padding.
    whole = sum(parameter.numel() for parameter in model.parameters())
    assert all(whole / 2 <= int((tmp_path / f"held-{rank}").read_text()) < 0.6 * whole for rank in range(2))
    by_one = {objective: alone(tokenizer, objective, tmp_path) for _, objective in CASES}
    for settings, objective in CASES:
        name = case_name(settings, objective)
        records, weights = found(tmp_path / name)
        expected, one = by_one[objective]
        assert [record["step"] for record in records] == [record["step"] for record in expected], name
        for record, right in zip(records, expected, strict=True):
            assert record.keys() == right.keys()
            # In the first step model and reference are the same, so every margin is 0 but for rounding: the share of
            # positive ones is a matter of chance.
            chance = {"accuracy"} if right["step"] == 1 else set()
            assert not chance or right.get("margin") in (None, pytest.approx(0, abs=1e-4)), name
            for figure in right.keys() - OF_THE_SHARE - chance:
                assert like(record[figure], right[figure]), (name, figure)
        same_weights(weights, one, name)
    assert by_one["best"][1].keys() == by_one["critic"][1].keys()
    assert not torch.equal(by_one["best"][1]["model.norm.weight"], by_one["critic"][1]["model.norm.weight"])
    for stage, objective in RESUMED:
        name = case_name(ZeroSettings(stage), objective)
        records, weights = found(tmp_path / f"{name}-resumed")
        whole, expected_weights = found(tmp_path / name)
        assert records[0]["step"] == last_step(objective)
        assert records[-1]["heldout_accuracy"] == whole[-1]["heldout_accuracy"]
        same_weights(weights, expected_weights, f"{name}-resumed")
        assert [path.name for path in (tmp_path / f"{name}-stopped").glob("step-*")] == [f"step-{whole[-1]['step']}"]
    sizes = {
        objective: sum(path.stat().st_size for path in (tmp_path / f"{name}-checkpoint").rglob("*.pt"))
        for objective in ("critic", "lora")
        for name in [case_name(ZeroSettings(2), objective)]
    }
    # Two moments and the trained weights, in several copies, of an adapter of a fourth of the model's size.
    assert sizes["lora"] < 0.6 * sizes["critic"]
    written = Trainee.load(Start(str(tmp_path / JOB / "model")), "cpu").model
    load_head(written, tmp_path / JOB / "model")
    same_weights(trainable_weights(written), by_one["sighted"][1], JOB)
    assert VisionProcessor(str(tmp_path / JOB / "model")).processor.size["longest_edge"] == BOUND


def write_job(folder: Path) -> None:
    """The training `sighted` as a job: in some steps one rank has images and the other none, and in some one has no
    work."""
    model = make_sighted(folder / "sighted")
    vision, pool, examples = sighted_preferences(model, folder / "screenshots", TRAINED + HELDOUT)
    train, seen = examples[:TRAINED], []

    def pack(bundles: Any, budget: int) -> list[list[int]]:
        return pack_bundles(bundles, budget, 0)

    order = epoch_order(train, SETTINGS.seed, 0)
    for start in range(0, len(order), SETTINGS.batch):
        step = [train[i] for i in order[start : start + SETTINGS.batch]]
        shares = [step_share(pool.sequences, step, pack, SETTINGS.token_budget, rank, 2) for rank in range(2)]
        for pair in zip(*shares, strict=True):
            seen.append([any(pool.sequences[j].images for i in group for j in step[i].sides) for group, _ in pair])
            seen[-1] += [all(counts for _, counts in pair)]
    assert [True, False, True] in seen or [False, True, True] in seen
    assert any(not counts for *_, counts in seen)
    job = Job(
        start=Start(model, recompute=True, head=True),
        output=folder / JOB / "model",
        device="cpu",
        zero=ZeroSettings(3),
        settings=SETTINGS,
        objective=OBJECTIVES["sighted"],
        digest="d",
        resume=False,
        pool=pool.sequences,
        examples=train,
        heldout=examples[TRAINED:],
        vision=vision.model,
    )
    job.output.mkdir(parents=True)
    job.write(folder / JOB)


def test_a_checkpoint_with_another_partition_or_training_is_refused(tmp_path: Path) -> None:
    engine = object.__new__(ZeroEngine)
    engine.world, engine.settings = 2, ZeroSettings(3)
    path = tmp_path / "settled.json"
    settled = {"tag": "step-1", "world": 4, "stage": 3, "state": {"digest": "one", "step": 1}}
    path.write_text(json.dumps(settled))
    with pytest.raises(UsageError, match="4 ranks with ZeRO 3, and these are 2"):
        engine.load(path, "one")
    with pytest.raises(UsageError, match="other settings"):
        engine.load(path, "two")
    for damaged in ("torn", json.dumps({"state": settled["state"]})):
        path.write_text(damaged)
        with pytest.raises(UsageError, match="cannot be read"):
            engine.load(path, "one")


def test_torchrun_is_started_here_on_each_host_by_ssh_or_on_each_node_by_srun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "abc")
    monkeypatch.chdir(tmp_path)
    ends = ["-m", "sweet.learn.worker", str(tmp_path)]

    def launcher(machines: int, devices: int) -> list[str]:
        options = [f"--nnodes={machines}", f"--nproc-per-node={devices}", "--max-restarts=0", "--rdzv-backend=c10d"]
        return [sys.executable, "-m", "sweet.learn.launcher", *options, "--rdzv-id=abc"]

    here = ["--rdzv-endpoint=127.0.0.1:0", "--rdzv-conf=is_host=1", "--local-addr=127.0.0.1"]
    assert launch_commands(Layout(8), tmp_path, 1234) == {"the launcher": [*launcher(1, 8), *here, *ends]}

    hosts_of_job = ("node-a", "node-b", "node-c", "node-d")
    nodes = launch_commands(Layout(8, nodes=Allocation(hosts_of_job, 8)), tmp_path, 1234)["srun"]
    assert nodes[:3] == ["srun", "--nodes=4", "--ntasks=4"]
    assert nodes[nodes.index("--gpus-per-node=8") + 1 :] == [*launcher(4, 8), "--rdzv-endpoint=node-a:1234", *ends]
    environment = {"SLURM_CPUS_PER_TASK": "1", "HOME": "/h"}
    assert "SLURM_CPUS_PER_TASK" not in launch_environment(Layout(8, nodes=Allocation(hosts_of_job, None)), environment)

    hosts = tmp_path / "hosts"
    hosts.write_text("one slots=2\nuser@two slots=4\n")
    for name in os.environ:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib 0")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    for devices in (None, 3):
        by_ssh = launch_commands(Layout(devices, hosts), tmp_path, 1234)
        assert list(by_ssh) == ["one", "user@two"]
        for host, slots, is_host in (("one", 2, 1), ("user@two", 4, 0)):
            *ssh, name, remote = by_ssh[host]
            assert (ssh[:2], name) == (["ssh", "-tt"], host)
            folder, words = remote.split(" && exec env ")
            assert folder == f"cd {tmp_path}"
            assert "NCCL_SOCKET_IFNAME=ib 0" in shlex.split(words)
            assert "secret" not in words
            there = ["--rdzv-endpoint=one:1234", f"--rdzv-conf=is_host={is_host}"]
            address = f"--local-addr={host.removeprefix('user@')}"
            assert words.endswith(shlex.join([*launcher(2, devices or slots), *there, address, *ends]))


def test_ranks_import_this_package_and_nothing_from_the_working_directory() -> None:
    environment = launch_environment(Layout(2), {"PYTHONPATH": "/mine", "HOME": "/h"})
    assert environment["HOME"] == "/h"
    assert environment["PYTHONPATH"].endswith("/mine")
    assert environment["PYTHONSAFEPATH"] == "1"
    assert "GLOO_SOCKET_IFNAME" not in launch_environment(Layout(2, Path("hosts")), {})


def test_the_configuration_of_deepspeed() -> None:
    settings = deepspeed_config(ZeroSettings(3, "all"), 1.0, 8)
    assert settings["train_batch_size"] == 8
    assert settings["zero_optimization"]["stage"] == 3
    assert {"offload_optimizer", "offload_param"} <= set(settings["zero_optimization"])
    assert set(deepspeed_config(ZeroSettings(2, "optimizer"), 1.0, 2)["zero_optimization"]) == {
        "stage",
        "offload_optimizer",
    }
    assert deepspeed_config(ZeroSettings(0), 1.0, 2)["gradient_clipping"] == 0.0
