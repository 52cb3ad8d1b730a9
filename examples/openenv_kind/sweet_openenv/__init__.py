"""The kind of task `openenv:URL`: the episodes of a server of OpenEnv, by the client of its library.

A task is a seed, and its request what the environment shows after a reset with it; the environment must show the same
at every reset with a seed. Its tools are those that it has by MCP, or one tool `act` whose parameters are the schema of
its actions. Each call is a step, and its reward is one of the turn. The reward of an episode is the sum of those of its
steps, as verifiers has it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Self
from urllib.request import urlopen

from openenv import GenericEnvClient

from sweet.environments.kinds import UNKNOWN, EnvironmentKind
from sweet.errors import SweetError
from sweet.json_value import JsonValue
from sweet.tasks.base import Message, Task, Tool
from sweet.tasks.tools import Toolbox, ToolResult

SEEDS = {"train": range(64), "test": range(64, 128)}
_MCP = {"Action", "CallToolAction", "ListToolsAction"}
"""Titles of the schema of actions of environments with tools by MCP."""
_LONGEST = 1 << 20
ENDED = "The episode has ended."


class OpenEnvTools(Toolbox):
    """One episode of a task; without a task none is begun."""

    speaks = True

    def __init__(self, url: str, task: Task | None) -> None:
        self._url, self._task, self._sum, self._has_ended = url.rstrip("/"), task, 0.0, False

    async def __aenter__(self) -> Self:
        try:
            self._client = await GenericEnvClient(base_url=self._url).__aenter__()
            schema = await asyncio.to_thread(self._schema)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            what = f"The server of OpenEnv does not answer: {error}"
            raise SweetError(what, where=self._url, fix="start it, or name its address: --task openenv:URL") from error
        self._by_mcp = schema.get("title") in _MCP
        act: dict[str, Any] = {"name": "act", "description": "Take an action.", "input_schema": schema}
        listed = (await self._client.step({"type": "list_tools"})).observation["tools"] if self._by_mcp else [act]
        self.tools = [
            Tool(name=tool["name"], description=tool.get("description") or "", parameters=tool["input_schema"])
            for tool in listed
        ]
        if self._task is not None:
            shown = await self.reset((self._task.model_extra or {})["seed"])
            if shown != self._task.problem_description:
                raise RuntimeError("the environment begins otherwise than before at the same seed: it has no tasks")
        return self

    def _schema(self) -> dict[str, Any]:
        with urlopen(f"{self._url}/schema", timeout=10) as response:
            schema: dict[str, Any] = json.loads(response.read(_LONGEST))["action"]
        schema.get("properties", {}).pop("metadata", None)
        return schema

    async def reset(self, seed: int) -> str:
        """Begin an episode, and return what it shows."""
        return json.dumps((await self._client.reset(seed=seed)).observation, ensure_ascii=False)

    async def __aexit__(self, *raised: Any) -> None:
        await self._client.close()

    async def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        if self._has_ended:
            raise ValueError("the episode has ended")
        by_mcp: dict[str, Any] = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        result = await self._client.step(by_mcp if self._by_mcp else arguments)
        self._sum += result.reward or 0.0
        self._has_ended = bool(result.done)
        content = json.dumps(result.observation, ensure_ascii=False) + f"\n{ENDED}" * self._has_ended
        return ToolResult(content=content, rewards={"openenv": result.reward} if result.reward else None)

    async def reply(self, messages: Sequence[Message]) -> None:
        """A reply without calls ends the episode."""

    async def state(self) -> JsonValue:
        return {"reward": self._sum, "ended": self._has_ended}


class OpenEnvKind(EnvironmentKind):
    """Episodes of a server of OpenEnv."""

    name = "openenv"
    takes = "URL"

    def drawn(self, tasks: str, split: str) -> list[Task]:
        async def ask() -> list[str]:
            async with OpenEnvTools(self.source, None) as toolbox:
                return [await toolbox.reset(seed) for seed in SEEDS[split]]

        return [
            Task(id=f"seed-{seed}", problem_description=text, ground_truth=UNKNOWN, **{"seed": seed})
            for seed, text in zip(SEEDS[split], asyncio.run(ask()), strict=True)
        ]

    def toolbox(self, task: Task) -> OpenEnvTools:
        return OpenEnvTools(self.source, task)
