"""Models without an address: which engine is selected, how vllm is started, and that it is always stopped."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import SweetError, UsageError
from sweet.gpus import HOLDS, Gpu, held_gpus, visible_gpus
from sweet.hf import resolve_device
from sweet.llm.base import EngineChoice, Sampling
from sweet.llm.connect import open_client
from sweet.llm.local import DEFAULT_OPTIONS, LocalServing
from sweet.llm.vllm import TERM_TIMEOUT, VllmServer, VllmSettings, command, option_value
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message
from tests import programs
from tests.llm.stand_in import StandIn, install

HELLO = [Message(role="user", content="Hello?")]
MODEL = "org/model"


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return install(tmp_path, monkeypatch)


def make(
    tmp_path: Path, engine: EngineChoice = "vllm", *options: str, **changes: Any
) -> tuple[LocalServing, list[str]]:
    output: list[str] = []
    return LocalServing(engine, options=options, logs=f"{tmp_path}/log.vllm-", say=output.append, **changes), output


async def ask(local: LocalServing, *models: str) -> list[str]:
    """The reply of each model; all are open at the same time."""
    local.plan((model, ()) for model in models)

    async def inner(rest: tuple[str, ...]) -> list[str]:
        if not rest:
            return []
        role: Any = "agent" if len(rest) == len(models) else "sim"
        async with open_client(rest[0], role=role, local=local, retry_timeout=0.0) as client:
            return [(await client.chat(HELLO, Sampling())).replies[0].text, *(await inner(rest[1:]))]

    return await inner(models)


def adapter(folder: Path, **config: Any) -> str:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 12, **config}))
    return str(folder)


def test_the_server_is_started_used_and_stopped(vllm: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "other")
    local, output = make(tmp_path, "vllm", "--max-model-len", "99")
    assert asyncio.run(ask(local, MODEL)) == [f"What else? said {MODEL}"]
    (start,) = vllm.starts()
    args = start["args"]
    assert args[:2] == ["serve", MODEL]
    assert args[args.index("--host") + 1] == "127.0.0.1"
    assert args[-2:] == ["--max-model-len", "99"]
    assert "--enable-prefix-caching" in args
    assert option_value(args, "--generation-config") == "vllm"
    assert start["key"] is None, "our own server requires no key"
    assert vllm.all_gone()
    assert "loading" in (tmp_path / "log.vllm-agent.log").read_text()
    assert local.record["agent_engine"] == "vllm"
    assert local.record["agent_vllm_version"] == "9.8.7"
    assert any("as --local-engine says" in line for line in output)
    assert any("9.8.7 answers at" in line for line in output)


def test_two_clients_of_a_model_share_its_server(vllm: StandIn, tmp_path: Path) -> None:
    local, _ = make(tmp_path)
    assert len(asyncio.run(ask(local, MODEL, MODEL))) == 2
    assert len(vllm.starts()) == 1
    assert (local.record["agent_engine"], local.record["sim_engine"]) == ("vllm", "vllm")
    assert vllm.all_gone()


def test_two_models_have_two_servers(vllm: StandIn, tmp_path: Path) -> None:
    assert asyncio.run(ask(make(tmp_path)[0], MODEL, "other")) == [f"What else? said {MODEL}", "What else? said other"]
    assert len(vllm.starts()) == 2
    assert vllm.all_gone()


def test_the_server_is_stopped_if_its_user_fails(vllm: StandIn, tmp_path: Path) -> None:
    async def fail() -> None:
        async with open_client(MODEL, local=make(tmp_path)[0]):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(fail())
    assert vllm.all_gone()


@pytest.mark.parametrize("switch", ["--slow", "--never-answer"])
def test_the_server_is_stopped_if_its_user_is_cancelled(vllm: StandIn, tmp_path: Path, switch: str) -> None:
    """While it starts, and while it processes a request."""

    async def cancel() -> None:
        asking = asyncio.create_task(ask(make(tmp_path, "vllm", switch)[0], MODEL))
        await asyncio.to_thread(vllm.wait_for, vllm.asked if switch == "--never-answer" else vllm.starts)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()

    asyncio.run(asyncio.wait_for(cancel(), 60))
    assert vllm.all_gone()


def test_a_loading_server_that_ignores_signals_is_killed(vllm: StandIn, tmp_path: Path) -> None:
    """vllm ignores SIGTERM while its engine loads."""

    async def cancel() -> float:
        asking = asyncio.create_task(ask(make(tmp_path, "vllm", "--stubborn", "--slow")[0], MODEL))
        await asyncio.to_thread(vllm.started)
        asking.cancel()
        began = time.monotonic()
        await asyncio.wait({asking})
        return time.monotonic() - began

    assert asyncio.run(asyncio.wait_for(cancel(), 60)) < 10 < TERM_TIMEOUT
    assert vllm.all_gone()


def test_a_server_that_fails_to_start_is_reported_with_its_log(vllm: StandIn, tmp_path: Path) -> None:
    with pytest.raises(SweetError, match=r"status 3. Its error:\ntorch.OutOfMemoryError: no room") as error:
        asyncio.run(ask(make(tmp_path, "vllm", "--die")[0], MODEL))
    assert str(error.value.fix).startswith("--agent-url URL, if a server serves the model; or read the log")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text("")
    with pytest.raises(SweetError, match="status 3") as error:
        asyncio.run(ask(make(tmp_path, "vllm", "--die")[0], str(folder)))
    assert str(error.value.fix).startswith("read the log"), "the model is here, so that another thing failed"


def test_a_server_that_dies_in_use_is_reported_with_its_log(vllm: StandIn, tmp_path: Path) -> None:
    with pytest.raises(SweetError, match=r"status 5. Its error:\nEngineDeadError: gone") as error:
        asyncio.run(ask(make(tmp_path, "vllm", "--die-when-asked")[0], MODEL))
    assert error.value.where == str(tmp_path / "log.vllm-agent.log")
    assert vllm.all_gone()


def test_a_server_whose_context_is_below_what_is_asked_is_refused(vllm: StandIn, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    config = RolloutConfig(
        tasks="micro", num_tasks=2, agent=MODEL, local_engine="vllm", vllm_options=["--max-model-len", "600"]
    )
    with pytest.raises(
        UsageError, match=r"org/model has 600 tokens at its server, too few .* a reply of 1,024"
    ) as error:
        run_rollout(run, config, Silent())
    longer = "a server with a longer context (vllm: --max-model-len)"
    assert (error.value.where, error.value.fix) == ("--agent org/model", f"{longer}, or --max-tokens 150")
    assert vllm.asked() == []
    tiny = config.model_copy(update={"vllm_options": ["--max-model-len", "60"], "new": True})
    with pytest.raises(UsageError) as error:
        run_rollout(run, tiny, Silent())
    assert error.value.fix == longer, "a shorter reply does not make room for the prompt"
    shorter = config.model_copy(update={"max_tokens": 64, "max_turns": 2, "new": True})
    assert run_rollout(run, shorter, Silent()).metrics.turns == 4


def test_a_gated_model_is_reported_with_the_login(vllm: StandIn, tmp_path: Path) -> None:
    with pytest.raises(SweetError, match="gated repo") as error:
        asyncio.run(ask(make(tmp_path, "vllm", "--gated")[0], MODEL))
    assert "hf auth login" in str(error.value.fix)


def test_the_time_limit_does_not_run_while_the_model_is_downloaded(
    vllm: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet.llm.vllm.PROGRESS_INTERVAL", 0.5)
    blobs = tmp_path / "hub" / "models--org--model" / "blobs"
    local, output = make(tmp_path, "vllm", "--download-dir", str(tmp_path / "hub"), "--slow", startup_timeout=1.5)
    downloads = blobs / "0123.incomplete"
    monkeypatch.setenv("STAND_IN_DOWNLOAD", str(downloads))
    began = time.monotonic()
    with pytest.raises(SweetError, match=r"did not answer within 1.5 seconds"):
        asyncio.run(ask(local, MODEL))
    assert time.monotonic() - began > 3 + 1.5, "the limit begins when the download ends"
    assert any(re.search(r"is starting, .*: [\d.]+ kB of the model are downloaded", line) for line in output)


def test_the_startup_time_out(vllm: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.llm.vllm.PROGRESS_INTERVAL", 0.5)
    local, output = make(tmp_path, "vllm", "--slow", startup_timeout=4.0)
    with pytest.raises(SweetError, match=r"within 4 seconds.*\n.*loading"):
        asyncio.run(ask(local, MODEL))
    assert any("vllm is starting" in line and "loading" in line for line in output)
    assert vllm.all_gone()


HOLD = """\
import asyncio, sys
from sweet.llm.connect import open_client
from sweet.llm.local import LocalServing
async def hold():
    async with open_client("org/model", local=LocalServing("vllm", options=sys.argv[2:], logs=sys.argv[1])):
        print("up", flush=True)
        await asyncio.sleep(600)
asyncio.run(hold())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_does_not_outlive_a_killed_parent(vllm: StandIn, tmp_path: Path, number: int) -> None:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = ["-c", HOLD, f"{tmp_path}/"]
    with programs.start(words, executable=sys.executable, text=True, **pipes) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.send_signal(number)
        parent.communicate(timeout=60)
    assert vllm.all_gone()


def test_a_starting_server_does_not_outlive_a_killed_parent(vllm: StandIn, tmp_path: Path) -> None:
    with programs.start(["-c", HOLD, f"{tmp_path}/", "--slow"], executable=sys.executable) as parent:
        vllm.started()
        parent.kill()
    assert vllm.all_gone()


def test_an_adapter_is_served_on_its_base(vllm: StandIn, tmp_path: Path) -> None:
    name = adapter(tmp_path / "tuned", base_model_name_or_path=MODEL)
    assert asyncio.run(ask(make(tmp_path)[0], name)) == [f"What else? said {name}"]
    args = vllm.starts()[0]["args"]
    assert args[:2] == ["serve", MODEL]
    assert "--enable-lora" in args
    assert json.loads(option_value(args, "--lora-modules") or "") == {"name": name, "path": name}
    assert option_value(args, "--max-lora-rank") == "16", "the next rank that vllm accepts"
    assert option_value(args, "--served-model-name") == MODEL
    assert option_value(args, "--tokenizer") is None


def test_the_tokenizer_of_an_adapter_is_used(vllm: StandIn, tmp_path: Path) -> None:
    name = adapter(tmp_path / "tuned, twice=2", base_model_name_or_path=MODEL)
    (tmp_path / "tuned, twice=2" / "tokenizer.json").write_text("{}")
    words = command("vllm", VllmSettings(name, "::1", 8))
    assert option_value(words, "--tokenizer") == name
    assert option_value(words, "--generation-config") is None


@pytest.mark.parametrize(("given", "found"), [(DEFAULT_OPTIONS, None), (("--generation-config", "own"), "own")])
def test_vllm_ends_the_replies_of_an_adapter_where_it_says(
    tmp_path: Path, given: tuple[str, ...], found: str | None
) -> None:
    """Unless the user names another configuration; the base's may end them elsewhere."""
    name = adapter(tmp_path / "tuned", base_model_name_or_path=MODEL)
    (tmp_path / "tuned" / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    words = command("vllm", VllmSettings(name, passthrough=given))
    assert option_value(words, "--generation-config") == (found or name)


def test_the_names_of_an_adapter_may_have_any_sign(tmp_path: Path) -> None:
    name = adapter(tmp_path / "tuned, twice=2", base_model_name_or_path=MODEL)
    words = command("vllm", VllmSettings(name, "::1", 8))
    assert json.loads(option_value(words, "--lora-modules") or "") == {"name": name, "path": name}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "does not name its base"),
        ({"base_model_name_or_path": "/nothing/here"}, "does not exist: /nothing/here"),
        ({"base_model_name_or_path": "a/b/c"}, "does not exist: a/b/c"),
        ({"base_model_name_or_path": MODEL, "r": "many"}, "r: "),
        ({"base_model_name_or_path": MODEL, "peft_type": "IA3"}, "only LoRA"),
    ],
)
def test_an_adapter_that_cannot_be_used(vllm: StandIn, tmp_path: Path, config: dict[str, Any], message: str) -> None:
    name = adapter(tmp_path / "tuned", **config)
    with pytest.raises(UsageError, match=message) as error:
        asyncio.run(ask(make(tmp_path)[0], name))
    assert "adapter_config.json" in str(error.value.where)
    assert error.value.fix
    assert vllm.starts() == []


def test_without_vllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if (Path(sys.executable).parent / "vllm").exists():
        pytest.skip("a real vllm lies beside this Python")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="not installed") as error:
        make(tmp_path)[0].plan([(MODEL, ())])
    assert "pip install" in str(error.value.fix)
    assert "no vllm is installed" in make(tmp_path, "auto")[0].choose(MODEL).why


def test_what_auto_selects(vllm: StandIn, tmp_path: Path) -> None:
    def chosen(model: str = MODEL, **changes: Any) -> tuple[bool, str]:
        choice = make(tmp_path, changes.pop("engine", "auto"), **changes)[0].choose(model)
        return choice.engine == "vllm", choice.why

    vllm.show_gpus()
    assert chosen() == (False, "there is no GPU that nvidia-smi and CUDA_VISIBLE_DEVICES show")
    vllm.show_gpus("80000, 81000", "80000, 81000")
    assert chosen() == (True, "2 GPU(s)")
    assert chosen(device="cpu") == (False, "as --device says")
    assert chosen("micro") == chosen("micro", engine="vllm") == (False, "the packaged agent needs no server")
    assert chosen(engine="embedded") == (False, "as --local-engine says")

    small = tmp_path / "small"
    small.mkdir()
    (small / "config.json").write_text("{}")
    (small / "model.safetensors").write_bytes(b"0" * 100)
    assert not chosen(str(small))[0]
    assert chosen(str(small), engine="vllm")[0]
    assert chosen(str(small), images={str(small): 2})[0], (
        "the embedded engine does not accept images, however small the model is"
    )


def test_options_without_effect_are_refused(vllm: StandIn, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the packaged agent needs no server"):
        make(tmp_path, "vllm", "--x")[0].plan([("micro", ())])
    with pytest.raises(UsageError, match="served already"):
        make(tmp_path, "vllm", "--x")[0].plan([(MODEL, ("http://a",))])
    with pytest.raises(UsageError, match="its --port chosen"):
        make(tmp_path, "vllm", "--port=9")[0].plan([(MODEL, ())])


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["GPU-aa", "GPU-ab", "GPU-c"]),
        ("", []),
        ("-1", []),
        ("2,0", ["GPU-c", "GPU-aa"]),
        ("1,7,0", ["GPU-ab"]),
        ("GPU-c, GPU-ab", ["GPU-c", "GPU-ab"]),
        ("GPU-a", []),
        ("MIG-1234", ["MIG-1234"]),
    ],
)
def test_gpus_are_listed_as_cuda_lists_them(vllm: StandIn, visible: str | None, names: list[str]) -> None:
    vllm.show_rows("0, GPU-aa, 500, 1000", "1, GPU-ab, 900, 1000", "2, GPU-c, [N/A], [N/A]")
    seen = visible_gpus({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert [gpu.name for gpu in seen] == names
    assert all(gpu in (Gpu("GPU-aa", 0.5), Gpu("GPU-ab", 0.9), Gpu("GPU-c"), Gpu("MIG-1234")) for gpu in seen)


def test_without_a_driver_there_are_no_gpus(vllm: StandIn) -> None:
    vllm.add_program("nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}) == []


@pytest.mark.parametrize(
    ("options", "others", "free", "wanted"),
    [
        ((), 0, 80000, {"--data-parallel-size": "4", "--gpu-memory-utilization": None}),
        (("--tensor_parallel_size", "2"), 0, 80000, {"--data-parallel-size": "2"}),
        (("-tp", "2", "--pipeline-parallel-size=2"), 0, 80000, {"--data-parallel-size": None}),
        (("-dp", "3"), 0, 80000, {"--data-parallel-size": None}),
        ((), 1, 80000, {"--gpu-memory-utilization": "0.48"}),
        ((), 0, 40000, {"--gpu-memory-utilization": "0.46"}),
        (("--gpu-memory-utilization", "0.7"), 1, 40000, {"--gpu-memory-utilization": "0.7"}),
    ],
)
def test_all_gpus_are_used_and_their_memory_shared(
    vllm: StandIn, tmp_path: Path, options: tuple[str, ...], others: int, free: int, wanted: dict[str, str | None]
) -> None:
    vllm.show_gpus(*[f"{free}, 81559"] * 4)
    asyncio.run(ask(make(tmp_path, "auto", *options, other_users=others)[0], MODEL))
    args = vllm.starts()[0]["args"]
    assert {name: option_value(args, name) for name in wanted} == wanted


def test_two_models_share_the_memory_of_the_gpus(vllm: StandIn, tmp_path: Path) -> None:
    vllm.show_gpus("80000, 80000")
    asyncio.run(ask(make(tmp_path, "auto")[0], MODEL, "other"))
    assert option_value(vllm.starts()[0]["args"], "--gpu-memory-utilization") == "0.48"
    assert option_value(vllm.starts()[1]["args"], "--gpu-memory-utilization") is None, (
        "here nvidia-smi shows it still free"
    )


def test_memory_that_others_hold_is_seen_before_a_server_starts(
    vllm: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet.llm.vllm.MEMORY_TIMEOUT", 0.0)
    vllm.show_gpus("2000, 80000", "79000, 80000", "79000, 80000")
    with pytest.raises(UsageError, match=r"0% of the memory of GPU 0 is free for org/model: other processes"):
        asyncio.run(ask(make(tmp_path, "auto")[0], MODEL))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(50 << 30)
    vllm.show_gpus("40000, 80000")
    with pytest.raises(UsageError, match=r"47% of the memory of GPU 0 is free for .* for 53.7 GB of weights"):
        asyncio.run(ask(make(tmp_path, "auto")[0], str(folder)))

    vllm.show_gpus("2000, 80000", "79000, 80000", "79000, 80000")

    async def start(count: int) -> None:
        settings = VllmSettings(MODEL, tensor_parallel=count)
        server = await VllmServer.start(settings, tmp_path / "log", say=lambda _: None)
        vllm.started()
        await server.stop()

    asyncio.run(start(2))
    assert vllm.started()["gpus"] == "1,2"
    with pytest.raises(UsageError, match=r"vllm needs 3 free GPUs and there are 3: GPU 0 has 2% of its memory free"):
        asyncio.run(start(3))


def test_gpus_that_a_server_of_another_command_holds_are_not_seen(
    vllm: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    vllm.show_gpus(*["80000, 80000"] * 2)
    with subprocess.Popen(["sleep", "600"]) as other:

        def server(*gpus: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen(["sleep", "600"], env=os.environ | {HOLDS: f"{other.pid}:{','.join(gpus)}"})

        def held() -> set[str]:
            """Return the GPUs of this test's machine that are held: other tests have machines of their own."""
            return {vllm.uuid(0), vllm.uuid(1)} & held_gpus().keys()

        with server(vllm.uuid(1)) as first:
            assert [gpu.word for gpu in visible_gpus()] == ["0"]
            resolve_device("auto")
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "0", "torch sees no other"
            with server(vllm.uuid(0)) as second:
                with pytest.raises(UsageError, match=f"All GPUs are held by servers .* {other.pid}"):
                    resolve_device("auto")
                assert resolve_device("cpu").type == "cpu"
                second.kill()
            first.kill()
        assert not held()
        with server(vllm.uuid(0)) as orphan:
            assert held_gpus()[vllm.uuid(0)] == other.pid
            other.kill()
            other.wait()
            assert not held(), "its command has ended, and it ends too"
            orphan.kill()


def test_selecting_an_engine_does_not_import_torch() -> None:
    code = "import sys, sweet.llm.local; print([n for n in ('torch', 'transformers', 'openai') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_options_are_parsed_as_vllm_parses_them() -> None:
    words = ["--max_model_len=5", "-tp", "2", "--max-model-len", "7", "--flag"]
    assert option_value(words, "--max-model-len") == "7"
    assert option_value(words, "--tensor-parallel-size", "-tp") == "2"
    assert (option_value(words, "--flag"), option_value(words, "--other")) == ("", None)
