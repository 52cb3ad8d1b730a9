"""The servers of `sweet train`: real `sweet serve-sim` processes, with a stand-in for vllm and for nvidia-smi."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sweet.errors import Interrupted, ServerError, SweetError, UsageError
from sweet.gpus import free_gpus, visible_gpus
from sweet.llm.base import Role
from sweet.llm.local import LocalServing
from sweet.llm.vllm import option_value
from sweet.pipeline.servers import ROLES, Servers
from sweet.pipeline.tables import ServerTable
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Reporter, Silent
from tests import programs
from tests.llm.stand_in import StandIn, gone, install

pytestmark = pytest.mark.usefixtures("forked_python")
SILENT = Silent()
HUMAN: dict[Role, str] = {"sim": "human"}
TABLE = ServerTable()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run")


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return install(tmp_path, monkeypatch)


class Told(Silent):
    """Keeps what a stage says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(f"warning: {text}")


def open_servers(run: Run, reporter: Reporter = SILENT, /, **tables: ServerTable) -> Servers:
    by_role = {role: tables[role] for role in ROLES if role in tables}
    return Servers(run, by_role, run.path / "logs" / "train-1.log", reporter)


def pids(servers: Servers) -> dict[str, int]:
    return {role: server.process.pid for role, server in servers._running.items()}


def model_at(url: str) -> str:
    with urllib.request.urlopen(f"{url}/models") as answer:
        return str(json.load(answer)["data"][0]["id"])


def test_dialogues_of_an_agent_on_a_server(run: Run, vllm: StandIn) -> None:
    with open_servers(run, agent=TABLE) as servers, servers.running({"agent": "org/agent"}) as urls:
        settings = {"tasks": "micro", "split": "test", "num_tasks": 2, "agent": "org/agent", "agent_url": urls["agent"]}
        play = RolloutConfig.model_validate(settings | {"max_turns": 3, "max_tokens": 32})
        assert run_rollout(run, play, SILENT).artifacts[0].rows == 2
    assert vllm.all_gone(), "the end of the context ends it"
    assert (run.path / "logs" / "train-1.server-agent.log").exists()


@pytest.mark.usefixtures("vllm")
def test_a_server_is_kept_replaced_or_ended_as_the_next_phase_needs_it(run: Run) -> None:
    told = Told()
    with open_servers(run, told, sim=TABLE) as servers:
        with servers.running({"sim": "other"}) as urls:
            assert model_at(urls["sim"][0]) == "other"
            first = pids(servers)["sim"]
        with servers.running({"sim": "other"}) as again:
            assert (again, pids(servers)["sim"]) == (urls, first), "the same one"
        with servers.running(HUMAN):
            second = pids(servers)["sim"]
            assert second != first, "it has another model"
            assert gone(first)
        # A server that ends in the middle: the stage fails, and the next call starts another.

        def play(urls: list[str]) -> None:
            os.killpg(second, signal.SIGKILL)
            config = RolloutConfig(tasks="micro", num_tasks=1, sim=HUMAN["sim"], sim_url=urls, retry_timeout=0.2)
            run_rollout(run, config, SILENT)

        expected = pytest.raises(ServerError, match="the simulated human ended with status -9")
        with expected as error, servers.running(HUMAN) as urls:
            play(urls["sim"])
        assert error.value.exit_code == 3
        assert str(error.value.where) == str(run.path / "logs" / "train-1.server-sim.log")
        with servers.running(HUMAN):
            third = pids(servers)["sim"]
            assert any("does not answer; it is started again" in line for line in told.lines)
        with servers.running({}) as none:
            assert none == {}
            assert gone(third), "a phase without servers ends them"
    assert [line for line in told.lines if " answers at " in line]


@pytest.mark.usefixtures("vllm")
def test_an_error_of_a_stage_is_not_blamed_on_a_server_that_is_well(run: Run) -> None:
    servers = open_servers(run, sim=TABLE)
    for error in (SweetError("other"), KeyboardInterrupt("other"), Interrupted("other")):
        with pytest.raises(type(error), match=r"^other"), servers.running(HUMAN):
            raise error
    pid = pids(servers)["sim"]
    servers.close()
    assert gone(pid)


KILLED = """\
import sys, time
from pathlib import Path
from sweet.pipeline.tables import ServerTable
from sweet.pipeline.servers import Servers
from sweet.runs.run import Run
from sweet.stages.base import Reporter, Silent
run = Run.open(sys.argv[1])
with Servers(run, {"sim": ServerTable()}, run.path / "logs" / "train-1.log", Silent()) as servers:
    with servers.running({"sim": "m"}):
        print(*(server.process.pid for server in servers._running.values()), flush=True)
        time.sleep(600)
"""


def test_kill_9_leaves_no_process_and_the_next_call_waits_for_that(run: Run, vllm: StandIn) -> None:
    with programs.start(["-c", KILLED, run.path], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        supervisor = int(killed.stdout.readline())
        killed.kill()
    with open_servers(run, sim=ServerTable()) as servers, servers.running({"sim": "m"}):
        assert gone(supervisor, 0.1)
        first = vllm.starts()[0]
        assert all(gone(first[name], 0.1) for name in ("pid", "worker")), "it has ended before the next one starts"
        assert len(vllm.starts()) == 2
    assert vllm.all_gone()


def test_servers_are_started_on_gpus_of_their_own(run: Run, vllm: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm.show_gpus(*["80000, 81000"] * 4)
    tables = {"sim": ServerTable(gpus=2, options=["--max-model-len", "9"]), "agent": ServerTable(replicas="fill")}
    with open_servers(run, SILENT, **tables) as servers:
        with servers.running({"sim": "big", "agent": "small"}, computes=1) as urls:
            assert [model_at(url) for role in ("sim", "agent") for url in urls[role]] == ["big", "small"]
            assert [gpu.name for gpu in free_gpus()] == [vllm.uuid(0)]
            assert len(LocalServing().gpus) == 1, "a vllm that the stage starts gets what is left"
        starts = {start["args"][1]: start for start in vllm.starts()}
        assert {model: start["gpus"] for model, start in starts.items()} == {"big": "2,3", "small": "1"}
        assert option_value(starts["big"]["args"], "--tensor-parallel-size") == "2"
        assert starts["big"]["args"][-5:] == [
            "--enable-prefix-caching", "--generation-config", "vllm", "--max-model-len", "9"
        ]  # fmt: skip
        assert len(free_gpus()) == len(visible_gpus()) == 4
        with pytest.raises(UsageError, match=r"^5 GPUs are needed .*2 for sim.* for agent.* stage .*there are 4"):
            open_servers(run, sim=ServerTable(gpus=2), agent=ServerTable(gpus=2, replicas="fill")).place(
                {"sim": "a", "agent": "b"}, computes=1
            )
        alone = servers.place({"agent": "actor"}, computes=1)
        assert [gpu.word for gpu in alone["agent"]] == ["1", "2", "3"]
        with servers.running({"agent": "actor"}, computes=1) as urls:
            assert len(urls["agent"]) == 1
            arguments = vllm.starts()[-1]["args"]
            assert option_value(arguments, "--data-parallel-size") == "3"
            assert option_value(arguments, "--tensor-parallel-size") == "1"
    assert vllm.all_gone()


@pytest.mark.parametrize(
    ("table", "model", "message"),
    [
        ({"options": ["--die"]}, "m", "ended with status 3.*no room"),
        ({"options": ["--slow"], "startup_timeout": 2.0}, "m", "did not answer within 2 seconds"),
    ],
)
def test_a_server_that_does_not_start_is_reported_with_its_log(
    run: Run, vllm: StandIn, table: dict[str, Any], model: str, message: str
) -> None:
    (run.path / "logs").mkdir()
    (run.path / "logs" / "train-1.server-agent.log").write_text("of a server before\n")
    expected = pytest.raises(SweetError, match=f"(?s)The server of the agent {message}")
    with open_servers(run, agent=ServerTable.model_validate(table)) as servers:
        with expected as error, servers.running({"agent": model}):
            pass
        assert str(error.value.where).endswith("train-1.server-agent.log")
        assert error.value.fix == "read the log; the same command continues"
        assert "of a server before" not in str(error.value)
        assert not pids(servers)
        assert not vllm.starts() or vllm.all_gone()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"options": ["--port=8"]}, "--port is chosen"),
        ({"options": ["-tp", "8"]}, "--tensor-parallel-size is chosen"),
        ({"options": ["--served-model-name", "x"]}, "--served-model-name is chosen"),
        ({"replicas": 0}, "replicas"),
        ({"model": "m"}, "there is no model.*Known here: gpus"),
    ],
)
def test_tables_that_do_not_fit_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ServerTable.model_validate(table)
