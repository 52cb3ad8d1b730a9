"""Two ranks under every ZeRO stage train as one process does, and go on where they stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import UsageError
from sweet.learn.figures import Record
from sweet.learn.ranks import Layout, launch_command, launch_environment
from sweet.learn.zero import ZeroEngine, ZeroSettings, deepspeed_config
from sweet.llm.address import bind
from tests.learn.zero_ranks import CASES, RESUMED, STOPPED_AT, case_name, make_loop

OF_THE_SHARE = {"tokens_per_second", "tokens_computed", "tokens_computed_per_second", "sharing", "padding"}
"""Figures that depend on who computes what."""

needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")


def start(folder: Path) -> None:
    """Two ranks, that leave in `folder` what came out."""
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    layout = Layout(2)
    command = launch_command(layout, folder, port)
    command[command.index("sweet.learn.rank")] = "tests.learn.zero_ranks"
    environment = launch_environment(layout, dict(os.environ)) | {"OMP_NUM_THREADS": "1"}
    root = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([root, environment.get("PYTHONPATH", "")])
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr[-4000:]


def alone(tokenizer: Any, objective: str) -> tuple[list[Record], dict[str, torch.Tensor]]:
    records: list[Record] = []
    loop = make_loop(tokenizer, objective, records)
    loop.run()
    return records, {name: parameter.detach() for name, parameter in loop.model.named_parameters()}


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
        assert torch.allclose(weights, other[name], rtol=1e-4, atol=1e-5), (case, name)


@needs_deepspeed
def test_ranks_train_as_one_process_does_and_go_on_where_they_stopped(tmp_path: Path, tokenizer: Any) -> None:
    start(tmp_path)
    by_one = {objective: alone(tokenizer, objective) for _, objective in CASES}
    for settings, objective in CASES:
        name = case_name(settings, objective)
        records, weights = found(tmp_path / name)
        expected, one = by_one[objective]
        assert [record["step"] for record in records] == [record["step"] for record in expected], name
        for record, right in zip(records, expected, strict=True):
            assert record.keys() == right.keys()
            for figure in right.keys() - OF_THE_SHARE:
                assert like(record[figure], right[figure]), (name, figure)
        same_weights(weights, one, name)
    for stage, objective in RESUMED:
        name = case_name(ZeroSettings(stage), objective)
        records, weights = found(tmp_path / f"{name}-resumed")
        whole, expected_weights = found(tmp_path / name)
        assert records[0]["step"] == STOPPED_AT
        assert records[-1]["heldout_accuracy"] == whole[-1]["heldout_accuracy"]
        same_weights(weights, expected_weights, f"{name}-resumed")
        assert [path.name for path in (tmp_path / f"{name}-checkpoint").glob("step-*")] == ["step-6"]


def test_a_checkpoint_that_is_cut_otherwise_or_of_another_training_is_refused(tmp_path: Path) -> None:
    engine = object.__new__(ZeroEngine)
    engine.world, engine.settings = 2, ZeroSettings(3)
    path = tmp_path / "settled.json"
    settled = {"tag": "step-1", "world": 4, "stage": 3, "state": {"digest": "one", "step": 1}}
    path.write_text(json.dumps(settled))
    with pytest.raises(UsageError, match="4 ranks with ZeRO 3, and these are 2"):
        engine.load(path, "one")
    with pytest.raises(UsageError, match="other settings"):
        engine.load(path, "two")
    path.write_text("torn")
    with pytest.raises(UsageError, match="cannot be read"):
        engine.load(path, "one")


def test_one_machine_is_torchs_launcher_and_hosts_are_deepspeeds(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    here = launch_command(Layout(8), tmp_path, 1234)
    assert here == [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=8"),
        *("--master-addr=127.0.0.1", "--master-port=1234", "--max-restarts=0", "--module"),
        *("sweet.learn.rank", str(tmp_path)),
    ]
    everywhere = [sys.executable, "-m", "deepspeed.launcher.runner", f"--hostfile={hosts}", "--force_multi"]
    ends = ["--master_port=1234", "--no_local_rank", "--module", "sweet.learn.rank", str(tmp_path)]
    assert launch_command(Layout(None, hosts), tmp_path, 1234) == [*everywhere, *ends]
    assert launch_command(Layout(4, hosts), tmp_path, 1234) == [*everywhere, "--num_gpus=4", *ends]


def test_the_ranks_import_this_package_and_nothing_from_where_they_stand() -> None:
    environment = launch_environment(Layout(2), {"PYTHONPATH": "/mine", "HOME": "/h"})
    assert environment["HOME"] == "/h"
    assert environment["PYTHONPATH"].endswith("/mine")
    assert environment["PYTHONSAFEPATH"] == "1"
    assert "GLOO_SOCKET_IFNAME" not in launch_environment(Layout(2, Path("hosts")), {})


def test_what_deepspeed_is_told() -> None:
    told = deepspeed_config(ZeroSettings(3, "all"), 1.0, 8)
    assert told["train_batch_size"] == 8
    assert told["zero_optimization"]["stage"] == 3
    assert {"offload_optimizer", "offload_param"} <= set(told["zero_optimization"])
    assert set(deepspeed_config(ZeroSettings(2, "optimizer"), 1.0, 2)["zero_optimization"]) == {
        "stage",
        "offload_optimizer",
    }
    assert deepspeed_config(ZeroSettings(0), 1.0, 2)["gradient_clipping"] == 0.0
