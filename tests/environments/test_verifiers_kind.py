"""Real environments of verifiers as tasks: the same rewards as its own runner gives for the same replies."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.stages import tool_calls
from sweet.tasks.base import ToolCall
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import ScoringRequest
from sweet.tasks.trajectory import Trajectory
from tests.rollouts.given import Agent, Nobody

pytest.importorskip("verifiers", reason="verifiers is not installed (pip install '.[environments]')")

pytestmark = pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated:DeprecationWarning")

PACKAGES = Path(__file__).with_name("verifiers_packages")
ADD = ToolCall.of("add", a=1, b=40)


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGES))
    monkeypatch.setenv("PYTHONPATH", str(PACKAGES))  # of servers of tools, which import all of verifiers
    monkeypatch.setattr(tool_calls, "CALL_SECONDS", 300.0)


def agent_of(said: list[str | ToolCall]) -> Agent:
    return Agent(*(one if isinstance(one, str) else [one] for one in said))


def played(name: str, place: int, agent: Agent, turns: int = 5) -> tuple[Trajectory, float | None]:
    kind = task_kind(f"verifiers:{name}")
    task = kind.load(name, "train")[place]
    rules = Rules(max_turns=turns, temperature=1.0, top_p=1.0, max_tokens=64, protocol="paper")
    dialogue = Dialogue(Assignment(task, 0, 0), agent, Nobody(), kind, rules)  # type: ignore[arg-type]
    trajectory = asyncio.run(dialogue.play())
    with kind.open_scorer(ScoringRequest(run=Path(), say=print)) as scorer:
        ((_, score),) = scorer.score([trajectory])
    return trajectory, score.reward


@pytest.fixture
def plain_harness() -> Iterator[str]:
    """A harness as an author of an environment would write one: a loop that asks the model and calls its tools."""
    import httpx
    import verifiers.v1 as vf
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

    class PlainConfig(vf.HarnessConfig):
        pass

    class Plain(vf.Harness[PlainConfig]):
        APPENDS_SYSTEM_PROMPT = SUPPORTS_MCP = SUPPORTS_RESUME = True
        EXECUTES_CODE = NEEDS_CONTAINER = False

        async def launch(
            self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
        ) -> Any:
            from contextlib import AsyncExitStack

            system, prompt = self.resolve_prompt(data)
            rows: list[Any] = [{"role": "system", "content": system}] if system else []
            rows += [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt)
            async with AsyncExitStack() as stack, httpx.AsyncClient(timeout=60) as client:
                config = {"mcpServers": {name: {"url": url} for name, url in mcp_urls.items()}}
                tools, dispatch, servers = await connect_mcp(config, stack)
                while rows[-1]["role"] != "assistant":
                    body = {"model": ctx.model, "messages": rows} | ({"tools": tools} if tools else {})
                    headers = {"Authorization": f"Bearer {secret}"}
                    answer = await client.post(f"{endpoint}/chat/completions", json=body, headers=headers)
                    if answer.status_code >= 400:
                        return vf.ProgramResult(exit_code=1, stdout="", stderr=answer.text)
                    rows.append(answer.json()["choices"][0]["message"])
                    for call in rows[-1].get("tool_calls") or ():
                        arguments = json.loads(call["function"]["arguments"])
                        content = await call_mcp(servers, dispatch, call["function"]["name"], arguments)
                        rows.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    module = ModuleType("plain_harness")
    vars(module).update(__all__=["Plain"], Plain=Plain)
    sys.modules["plain_harness"] = module
    yield "plain_harness"
    del sys.modules["plain_harness"]


def theirs(name: str, place: int, said: list[str | ToolCall], harness: str, turns: int | None = None) -> float:
    """Return the reward of verifiers' own runner, asking a server that replies the same."""
    from verifiers.v1 import EvalClientConfig
    from verifiers.v1.clients import ModelContext
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    rest = [*said]

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            reply = rest.pop(0)
            message: dict[str, Any] = {"role": "assistant", "content": reply if isinstance(reply, str) else ""}
            if isinstance(reply, ToolCall):
                message["tool_calls"] = [reply.model_copy(update={"id": "call"}).row()]
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
            body = {"id": "0", "object": "chat.completion", "created": 0, "model": "m", "usage": usage}
            data = json.dumps(body | {"choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            pass

    async def run(port: int) -> float:
        member = "agent" if name == "sweet_digits" else "player"
        agent = {"harness": {"id": harness}, "runtime": {"type": "subprocess"}, "max_turns": turns}
        environment = load_environment(resolve_env_config({"taskset": {"id": name}, member: agent}))
        task = list(environment.taskset)[place]
        client = EvalClientConfig(base_url=f"http://127.0.0.1:{port}", api_key_var="NO_KEY")
        async with environment.serving():
            episode = await environment.run_episode(task, ModelContext(model="m", client=client))
        assert not episode.errors, episode.errors
        return float(episode.traces[0].reward)

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            return asyncio.run(run(server.server_address[1]))
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("said", "reward"), [([ADD, "It is 41."], 1.25), (["It is 41."], 0.75), ([ADD, ADD, "I do not know."], 0.0)]
)
def test_tools_and_rewards_are_those_of_the_taskset(
    said: list[str | ToolCall], reward: float, plain_harness: str
) -> None:
    agent = agent_of(said)
    trajectory, found = played("sweet_digits", 1, agent)
    assert (found, theirs("sweet_digits", 1, said, plain_harness)) == (reward, reward)
    assert trajectory.outcome == "answered"
    assert [message.content for message in agent.seen[0]] == ["Be short.", "What is 1 and 40?"]
    results = [turn.content for turn in trajectory.dialogue_history if turn.role == "tool"]
    assert results == ["41"] * (len(said) - 1)


@pytest.mark.parametrize(("said", "reward", "outcome"), [(["3", "8", "7"], 0.7, "answered"), (["7"], 0.9, "answered")])
def test_the_environment_is_the_human(
    said: list[str | ToolCall], reward: float, outcome: str, plain_harness: str
) -> None:
    trajectory, found = played("sweet_hints", 0, agent_of(said))
    assert found == pytest.approx(theirs("sweet_hints", 0, said, plain_harness)) == pytest.approx(reward)
    heard = [turn.content for turn in trajectory.dialogue_history[1:] if turn.role == "user"]
    assert (heard, trajectory.outcome) == (["too low", "too high"][: len(said) - 1], outcome)


def test_turns_that_are_used_up_are_scored_as_by_its_limit(plain_harness: str) -> None:
    trajectory, found = played("sweet_hints", 0, agent_of(["3", "4", "5"]), turns=2)
    assert found == pytest.approx(theirs("sweet_hints", 0, ["3", "4", "5"], plain_harness, turns=2))
    assert trajectory.outcome == "out_of_turns"


def test_an_environment_without_tools_is_for_models_that_call_none() -> None:
    assert [task_kind(f"verifiers:{name}").offers_tools for name in ("sweet_digits", "sweet_hints")] == [True, False]


def test_an_environment_that_begins_otherwise_is_an_error_at_once() -> None:
    """What it says is named, and its episode does not stay open."""
    kind = task_kind("verifiers:sweet_hints")
    (task,) = kind.load("sweet_hints", "train")

    async def work() -> set[asyncio.Task[Any]]:
        toolbox = kind.toolbox(task.model_copy(update={"problem_description": "Guess a letter."}))
        assert toolbox is not None
        with pytest.raises(RuntimeError, match=r"begin with its task: Guess a number up to 9\."):
            await asyncio.wait_for(toolbox.__aenter__(), 100)
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    assert asyncio.run(work()) == set()


def test_what_is_not_installed_is_named() -> None:
    with pytest.raises(UsageError, match="no environment 'nothing_here'"):
        task_kind("verifiers:nothing_here").load("nothing_here", "train")
