"""serve-sim: each engine from start to signal; vllm is a stand-in that serves real HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path
from typing import Any

import openai
import pytest

from sweet.errors import SweetError, UsageError
from sweet.humans.asking import LLMHuman
from sweet.llm.connect import open_client
from sweet.llm.vllm import VllmSettings, command, find_vllm, option_value
from sweet.rollouts.serve_sim import ServeConfig, run_serve
from sweet.stages.base import Silent
from sweet.tasks.base import Message
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.micro import generator
from sweet.tasks.splits import SPLITS, load_split
from tests import programs
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer
from tests.llm.stand_in import StandIn, install
from tests.rollouts.human_servers import human_server

SERVE = """\
import sys
from sweet.stages.base import Silent
from sweet.rollouts.serve_sim import ServeConfig, run_serve
run_serve(ServeConfig.model_validate_json(sys.argv[1]), Silent(), lambda url: print(url, flush=True))
print("stopped", flush=True)
"""


class Serving:
    """`run_serve` in a process of its own."""

    def __init__(self, **config: Any) -> None:
        self.process: subprocess.Popen[str] = programs.start(
            ["-c", SERVE, json.dumps({"port": 0} | config)],
            torch=config.get("engine") == "embedded",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Serving:
        return self

    def url(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, self.process.communicate()[1]
        return line

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        assert (self.process.returncode, out, err) == (0, "stopped\n", "")

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return install(tmp_path, monkeypatch)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_vllm_is_started_and_put_away(vllm: StandIn, tmp_path: Path, number: int) -> None:
    log = tmp_path / "vllm.log"
    config = {"engine": "vllm", "model": "org/model", "tp": 2, "log": str(log), "passthrough": ["--max-model-len", "9"]}
    with Serving(**config) as serving:
        url = serving.url()
        with urllib.request.urlopen(url + "/models") as answer:
            assert json.load(answer)["data"][0]["id"] == "org/model"
        args = vllm.started()["args"]
        assert args[:2] == ["serve", "org/model"]
        assert args[args.index("--tensor-parallel-size") + 1] == "2"
        assert args[-2:] == ["--max-model-len", "9"]
        serving.stop(number)
    assert vllm.all_gone(), "its workers are ended with it"
    assert "loading" in log.read_text()


def test_an_adapter_is_served_beside_its_base(vllm: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base", "r": 4}')
    with Serving(engine="vllm", model=str(folder), log=str(tmp_path / "vllm.log")) as serving:
        with urllib.request.urlopen(serving.url() + "/models") as answer:
            assert [model["id"] for model in json.load(answer)["data"]] == ["org/base", str(folder)]
        serving.stop()
    assert vllm.started()["args"][:2] == ["serve", "org/base"]


def test_a_signal_ends_a_vllm_that_is_still_loading(vllm: StandIn) -> None:
    with Serving(engine="vllm", model="m", passthrough=["--slow"]) as serving:
        vllm.started()
        time.sleep(0.3)
        serving.stop()
    assert vllm.all_gone()


def test_a_vllm_that_does_not_listen_is_killed(vllm: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.llm.vllm.TERM_TIMEOUT", 0.3)
    config = ServeConfig(engine="vllm", model="m", port=0, passthrough=["--stubborn"])
    run_serve(config, Silent(), lambda url: signal.raise_signal(signal.SIGINT))
    assert vllm.all_gone()


def test_a_vllm_that_dies_tells_why(vllm: StandIn, tmp_path: Path) -> None:
    config = ServeConfig(engine="vllm", model="m", port=0, log=tmp_path / "log", passthrough=["--die"])
    began = time.monotonic()
    with pytest.raises(SweetError, match=r"status 3. Its error:\ntorch.OutOfMemoryError: no room") as error:
        run_serve(config, Silent())
    assert time.monotonic() - began < 20
    assert "\x1b" not in str(error.value)
    assert str(tmp_path / "log") in str(error.value)

    def ask(url: str) -> None:
        urllib.request.urlopen(url + "/models").close()

    config = ServeConfig(engine="vllm", model="m", port=0, passthrough=["--die-later"])
    with pytest.raises(SweetError, match="status 4"):
        run_serve(config, Silent(), ask)


def test_the_command_line_of_vllm() -> None:
    words = command("vllm", VllmSettings("/m", "::1", 8, 1, ("--served-model-name=x",)))
    assert " ".join(words) == "vllm serve /m --host ::1 --port 8 --tensor-parallel-size 1 --served-model-name=x"


@pytest.mark.parametrize(
    ("passthrough", "added"),
    [
        ((), ["--limit-mm-per-prompt", '{"image": 2}']),
        (("--max-model-len", "9"), ["--limit-mm-per-prompt", '{"image": 2}']),
        (("--limit-mm-per-prompt", '{"image": 5}'), []),
        (("--limit_mm_per_prompt={}",), []),
        (("--limit-mm-per-prompt.image", "5"), []),
    ],
)
def test_a_model_that_is_shown_pages_takes_two_pictures_unless_the_user_says(
    passthrough: tuple[str, ...], added: list[str]
) -> None:
    plain = command("vllm", VllmSettings("m", "::1", 8))
    words = command("vllm", VllmSettings("m", "::1", 8, passthrough=passthrough, images=2))
    assert words == [*plain, *added, *passthrough]


def test_vllm_for_the_human_of_pages(vllm: StandIn, tmp_path: Path) -> None:
    for task, limit in (("html", '{"image": 2}'), ("code", None)):
        vllm.state.unlink(missing_ok=True)
        config = ServeConfig(engine="vllm", model="m", task=task, port=0, log=tmp_path / "log")
        run_serve(config, Silent(), lambda url: signal.raise_signal(signal.SIGINT))
        assert option_value(vllm.started()["args"], "--limit-mm-per-prompt") == limit


def test_without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    if find_vllm():
        pytest.skip("a real vllm lies beside this Python")
    with pytest.raises(UsageError, match="not installed") as error:
        run_serve(ServeConfig(engine="vllm", model="m", port=0), Silent())
    assert "pip install" in str(error.value.fix)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"engine": "scripted", "model": "m"}, "no model"),
        ({"engine": "embedded"}, "needs a model"),
        ({"engine": "vllm"}, "needs a model"),
        ({"engine": "server", "model": "m"}, "asks a model at --sim-url"),
        ({"engine": "embedded", "model": "micro", "sim_url": ["http://x/v1"]}, "and no other engine does"),
        ({"engine": "server", "model": "m", "sim_url": ["http://x/v1"], "task": "html"}, "must see pages"),
        ({"engine": "scripted", "tp": 2}, "Only vllm accepts --tp"),
        ({"engine": "embedded", "model": "micro", "passthrough": ["--x"]}, "Only vllm accepts arguments after --"),
        ({"engine": "embedded", "model": "/nothing/here"}, "no model directory"),
        ({"engine": "embedded", "model": "micro", "task": "html"}, "must see pages"),
    ],
)
def test_settings_that_do_not_fit(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_serve(ServeConfig.model_validate(config), Silent())


def test_the_scripted_human_is_served(tmp_path: Path) -> None:
    trained, task = generator.load("train")[5], generator.load("test")[3]
    fact = task.facts[0]
    dialogue = [
        Message(role="user", content=task.problem_description),
        Message(role="assistant", content=f"Tell me about the {fact.cues[0]}, please?"),
    ]

    async def talk(url: str) -> None:
        async with open_client("scripted-human", [url], role="sim") as client:
            human = LLMHuman(client, CodeKind())
            assert (await human.reply(task, dialogue)).text == CodeKind().scripted_reply(task, dialogue)
            assert fact.answer in (await human.reply(task, dialogue)).text
            other = [Message(role="user", content=trained.problem_description), dialogue[1]]
            assert (await human.reply(trained, other)).text == CodeKind().scripted_reply(trained, other)
            stranger = task.model_copy(update={"ground_truth": "def f(): pass", "hidden_information": ""})
            with pytest.raises(SweetError, match="does not know this task"):
                await human.reply(stranger, dialogue)

    with Serving(tasks="micro") as serving:
        asyncio.run(talk(serving.url()))
        serving.stop()


def test_the_tasks_of_every_split_of_a_file_are_served(tmp_path: Path) -> None:
    tasks = generator.load("test")[:3]
    path = tmp_path / "tasks.jsonl"
    rows = [{**task.model_dump(mode="json"), "split": split} for task, split in zip(tasks, SPLITS, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def talk(url: str) -> None:
        async with open_client("scripted-human", [url], role="sim") as client:
            human = LLMHuman(client, CodeKind())
            for split in SPLITS:
                (task,) = load_split(CodeKind(), str(path), split).tasks
                dialogue = [
                    Message(role="user", content=task.problem_description),
                    Message(role="assistant", content=f"Tell me about the {task.facts[0].cues[0]}, please?"),
                ]
                assert task.facts[0].answer in (await human.reply(task, dialogue)).text

    with Serving(tasks=str(path)) as serving:
        asyncio.run(talk(serving.url()))
        serving.stop()


def test_the_human_of_a_model_at_a_server_is_served_by_sessions() -> None:
    """To OpenAI's client, streamed and not; the human remembers the session, and its verdict is there."""
    task = generator.load("test")[3]

    def talk(url: str) -> tuple[list[str], Any]:
        address = f"{url.removesuffix('/v1')}/sessions/one"
        with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
            begun: Any = client.post(address, cast_to=object, body={"task": task.id})
            assert begun["task"]["problem_description"] == task.problem_description
            said = []
            for fact, stream in zip(task.facts, (False, True), strict=False):
                question: Any = [{"role": "user", "content": f"Tell me about the {fact.cues[0]}, please?"}]
                answer: Any = client.chat.completions.create(model="human", messages=question, stream=stream)
                parts = [one.choices[0].delta.content or "" for one in answer] if stream else []
                said.append("".join(parts) if stream else answer.choices[0].message.content)
            with pytest.raises(openai.BadRequestError, match="log-probabilities"):
                client.chat.completions.create(model="human", messages=question, logprobs=True)
            return said, client.get(address, cast_to=object)

    with (
        human_server(generator.load("test"), "someone") as (model, asked),
        Serving(engine="server", model="someone", sim_url=[model], tasks="micro") as serving,
    ):
        said, verdict = talk(serving.url())
        serving.stop()
    assert all(fact.answer in reply for fact, reply in zip(task.facts, said, strict=False))
    assert said[0] in asked.asked[1], "the human knows what it said before"
    assert verdict["human"] == {"turns": [{"fault": None, "withheld": []}] * 2, "fault": None, "leaked": 0}


def test_tasks_without_facts_have_no_scripted_human(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    row = {"problem_description": "p", "ground_truth": "def f(): pass", "test_cases": {"a": "f()"}}
    path.write_text(json.dumps(row))
    with pytest.raises(UsageError, match="has none"):
        run_serve(ServeConfig(tasks=str(path), port=0), Silent())


def test_the_scripted_human_of_pages_is_not_served() -> None:
    with pytest.raises(UsageError, match="cannot be served"):
        run_serve(ServeConfig(task="html", tasks="pages", port=0), Silent())


def test_a_model_is_served_by_the_embedded_engine(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    tokenizer.save_pretrained(tmp_path)
    build_model(len(tokenizer)).save_pretrained(tmp_path)

    async def talk(url: str) -> None:
        async with open_client(str(tmp_path), [url], role="sim") as client:
            assert client.model == str(tmp_path)
            task = generator.load("test")[0]
            reply = await LLMHuman(client, CodeKind()).reply(task, [Message(role="assistant", content="What?")])
            assert len(reply.text) <= CodeKind.human_reply_limit
            assert reply.prompt_tokens > 0

    with Serving(engine="embedded", model=str(tmp_path), device="cpu") as serving:
        asyncio.run(talk(serving.url()))
        serving.stop(signal.SIGINT)


def test_its_module_is_light() -> None:
    names = "torch transformers openai uvicorn starlette aiohttp"
    code = f"import sys, sweet.rollouts.serve_sim; print([n for n in {names.split()} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
