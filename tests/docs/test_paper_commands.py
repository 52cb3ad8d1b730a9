"""The commands of docs/paper.md on an imitated machine with eight GPUs: none gets a GPU that a server holds.

The servers of the simulated human are processes with a stand-in for vllm; what the other commands would use is asked
of the code that they use.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweet.gpus import keep_off_held_gpus, visible_gpus
from sweet.llm.base import Role
from sweet.llm.local import LocalServing
from sweet.llm.vllm import MEMORY, choose_gpus, command, option_value
from sweet.ranking.config import RankConfig
from sweet.rollouts.serve_sim import ServeConfig
from sweet.training.config import TrainConfig
from tests.docs.command_lines import Parser, simple_commands
from tests.docs.pages import ROOT, read_page
from tests.llm.stand_in import StandIn, install
from tests.rollouts.test_serve_sim import Serving


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return install(tmp_path, monkeypatch)


def show_memory(vllm: StandIn, used: str = "") -> None:
    """Show eight GPUs of which these run a server."""
    vllm.show_gpus(*(f"{8000 if str(i) in used else 81000}, 81559" for i in range(8)))


def configs() -> Iterator[Any]:
    """Yield the configuration of each command of the page, in their order; None where a server is ended."""
    parser, found = Parser(), list[Any]()
    for block in read_page(ROOT / "docs" / "paper.md").blocks:
        for line in simple_commands(block):
            if line.words[0] == "kill":
                yield None
            elif line.words[0] == "sweet" and line.words[1] != "data":
                assert parser.complaint(line.words, line.environment, lambda call: found.append(call.config)) is None
                yield found[-1]


def served(config: Any) -> dict[str, str]:
    """Return the variables and options with which vllm is started for the agent of a command."""
    others = int(isinstance(config, RankConfig))
    local = LocalServing(config.local_engine, config.device, config.vllm_options, other_users=others)
    local.plan([(config.agent or "meta-llama/Llama-3.1-8B-Instruct", ())])
    words = command("vllm", local._settings("meta-llama/Llama-3.1-8B-Instruct"))
    environment = local._environment()
    environment |= asyncio.run(choose_gpus(words, environment, "vllm"))
    return {
        "gpus": environment.get("CUDA_VISIBLE_DEVICES", "all"),
        "replicas": option_value(words, "--data-parallel-size") or "1",
        "memory": option_value(words, MEMORY) or "all",
    }


@pytest.mark.usefixtures("forked_python")
def test_no_command_of_the_page_gets_a_gpu_of_another(vllm: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    serving: Serving | None = None
    seen: set[tuple[str, ...]] = set()
    role: Role = "agent"
    show_memory(vllm)
    try:
        for config in configs():
            if config is None or isinstance(config, ServeConfig):
                if serving is not None:
                    assert config is None, "the server before is ended first"
                    serving.stop()
                serving = None
                show_memory(vllm)
                if config is not None:
                    serving = Serving(**config.model_dump(exclude_unset=True) | {"port": 0})
                    serving.url()
                    assert vllm.starts()[-1]["gpus"] == "0,1,2,3"
                    show_memory(vllm, "0,1,2,3")
                continue
            rest = "4,5,6,7" if serving else "0,1,2,3,4,5,6,7"
            assert ",".join(gpu.word for gpu in visible_gpus()) == rest
            if isinstance(config, TrainConfig):
                with monkeypatch.context() as patch:
                    patch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
                    keep_off_held_gpus()
                    assert os.environ["CUDA_VISIBLE_DEVICES"] == rest
                assert config.devices or serving is None, "a training has all GPUs"
                seen.add(("training", rest))
            elif getattr(config, f"{role}_url", True) == []:
                found = served(config)
                assert found["gpus"] == (rest if serving else "all")
                assert found["replicas"] == str(len(rest.split(",")))
                seen.add((type(config).__name__, found["memory"]))
    finally:
        if serving is not None:
            serving.stop()
    assert seen == {("training", "0,1,2,3,4,5,6,7"), ("RolloutConfig", "all"), ("RankConfig", "0.48")}
    assert vllm.all_gone()
