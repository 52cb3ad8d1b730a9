"""An episode of an environment of verifiers whose harness is a dialogue.

What the environment tells the agent is said in the dialogue, and calls go to its servers of tools. What the agent says
goes through verifiers' interception of a model, as it was said: the model is a server on loopback that repeats it. So
the environment's trace is whole, its hooks run, and the reward is that of the trace.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import cache
from typing import Any, Self

import verifiers.v1 as vf
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.utils.loaders import env_config_type, load_environment, resolve_env_config

from sweet.environments.verifiers_v1 import SweetHarness
from sweet.gathering import until
from sweet.json_value import JsonValue
from sweet.llm.listening import listening
from sweet.llm.scripted import SCRIPTED, ScriptedClient
from sweet.llm.server import make_app
from sweet.tasks.base import Message, Task, Tool, chat_rows
from sweet.tasks.tools import Toolbox, ToolResult

__all__ = ["DialogueHarness"]

_HARNESS = "sweet_dialogue"
sys.modules[_HARNESS] = sys.modules[__name__]  # verifiers finds a harness by the name of a module


def environment(name: str) -> Any:
    """Return a new environment whose one agent has our harness.

    Raises:
        ImportError, AttributeError, TypeError, ValueError: there is none of this name, or it has several agents.
    """
    (agent,) = agent_config_fields(env_config_type(name)(taskset={"id": name}))
    agent_config = {"harness": {"id": _HARNESS}, "runtime": {"type": "subprocess"}}
    return load_environment(resolve_env_config({"taskset": {"id": name}, agent: agent_config}))


@cache
def tasks_of(name: str) -> list[Any]:
    """Return the tasks of an environment."""
    return list(environment(name).taskset)


@cache
def has_tools(name: str) -> bool:
    """Return whether an environment has servers of tools."""
    return any(source.toolsets(source.config) for source in (environment(name).taskset, *tasks_of(name)))


_PLAYING: ContextVar[VerifiersTools] = ContextVar("_PLAYING")


class _Repeating(ScriptedClient):
    """Is asked with any tools: it repeats what the agent has said."""

    template = None  # a server refuses tools to a client without one


class VerifiersTools(Toolbox):
    """An episode. The environment has been sent `messages_sent` messages of its dialogue."""

    speaks = True

    def __init__(self, name: str, task: Task, messages_sent: int) -> None:
        self._name, self._task, self._messages_sent = name, task, messages_sent
        self.from_environment: asyncio.Queue[str] = asyncio.Queue()
        self.from_dialogue: asyncio.Queue[Sequence[Message]] = asyncio.Queue()
        self.repeated = Message(role="assistant", content="")
        self.connected: tuple[Any, Any] = {}, {}

    async def __aenter__(self) -> Self:
        _PLAYING.set(self)
        self._episode = asyncio.create_task(self._play())
        if (opening := await until(self._episode, self.from_environment.get())) != self._task.problem_description:
            why = await self._failure() if opening is None else opening[:200]
            await self.__aexit__()
            raise RuntimeError(f"the environment does not begin with its task: {why}")
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self._episode.cancel()
        await asyncio.gather(self._episode, return_exceptions=True)

    async def _play(self) -> Any:
        playing, model = environment(self._name), make_app(_Repeating(lambda *_: self.repeated))
        async with listening(model, "127.0.0.1", 0) as url, playing.serving():
            client = vf.EvalClientConfig(base_url=url, api_key_var="_NO_KEY")
            task = tasks_of(self._name)[(self._task.model_extra or {})["idx"]]
            return await playing.run_episode(task, ModelContext(model=SCRIPTED, client=client))

    async def _failure(self) -> str | None:
        episode = await self._episode
        return next((error.message for part in (episode, *episode.traces) for error in part.errors), None)

    async def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        content = await call_mcp(*self.connected, name, arguments)
        return ToolResult(content=content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))

    async def reply(self, messages: Sequence[Message]) -> str | None:
        self.from_dialogue.put_nowait(list(messages[self._messages_sent :]))
        self._messages_sent = len(messages) + 1  # with what it answers
        return await until(self._episode, self.from_environment.get())

    async def state(self) -> JsonValue:
        if not self._episode.done():
            self.from_dialogue.put_nowait([])  # the turns are used up
        if failed := await self._failure():
            raise RuntimeError(f"the environment failed: {failed}")
        (trace,) = self._episode.result().traces
        rewards = {name: reward.value for name, reward in trace.rewards.items() if reward is not None}
        return {"reward": trace.reward, "rewards": rewards, "metrics": dict(trace.metrics)}


class DialogueHarness(SweetHarness):
    """Says what the environment says, and repeats what the agent says."""

    SUPPORTS_MCP = True
    resume = vf.Harness.resume  # launches it again with the conversation

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> Any:
        playing = _PLAYING.get()
        system, prompt = self.resolve_prompt(data)
        rows = [{"role": "system", "content": system}] if system else []
        rows += [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt)
        async with AsyncExitStack() as stack:
            servers = {"mcpServers": {name: {"url": url} for name, url in mcp_urls.items()}}
            tools, dispatch, connections = await connect_mcp(servers, stack)
            playing.connected, playing.tools = (connections, dispatch), [Tool(**tool["function"]) for tool in tools]
            playing.from_environment.put_nowait(str(rows[-1]["content"]))
            messages = await playing.from_dialogue.get()
            for message in messages:
                if message.role == "assistant":
                    playing.repeated = message
                    result = await self._ask(ctx, endpoint, secret, rows, tools)
                    if result.exit_code:
                        return result
                rows += chat_rows([message])
            if not messages:
                trace.stop("max_turns")
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")
