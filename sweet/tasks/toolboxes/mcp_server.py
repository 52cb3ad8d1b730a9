"""Tools of an MCP server, which is a process of its own for each dialogue and is spoken to over its input and output.

What the server prints as errors is dropped. Its state is its own: a dialogue that goes on after a stop starts a new
server and makes the recorded calls again, so a server that keeps its state elsewhere gets them twice.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from sweet.errors import UsageError
from sweet.json_value import JsonValue
from sweet.tasks.base import Tool
from sweet.tasks.tools import Toolbox, ToolResult

if TYPE_CHECKING:
    from mcp import Client

_MOST_TOOLS = 1_000
"""A server lists its tools page by page; after so many no further page is asked for."""


class McpTools(Toolbox):
    """The tools of an MCP server over stdio.

    Args:
        command: the program and its arguments.
        env: variables beside the few that a server gets (`PATH`, `HOME` and the like).
        state_tool: a tool without arguments that returns the state as JSON. It is not offered to the agent.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, state_tool: str | None = None
    ) -> None:
        self._command, self._env, self._state_tool = command, env, state_tool
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            from mcp import Client, StdioServerParameters
            from mcp.client.stdio import stdio_client
        except ImportError as error:
            what = "Tools of an MCP server need the package mcp."
            raise UsageError(what, fix="pip install 'sweet-colbench[mcp]'") from error
        program, *arguments = self._command
        server = StdioServerParameters(command=program, args=arguments, env=dict(self._env or {}))
        async with AsyncExitStack() as stack:
            dropped = stack.enter_context(await asyncio.to_thread(open, os.devnull, "w"))
            self._client: Client = await stack.enter_async_context(Client(stdio_client(server, errlog=dropped)))
            page = await self._client.list_tools()
            listed = page.tools
            while page.next_cursor is not None and len(listed) <= _MOST_TOOLS:
                page = await self._client.list_tools(cursor=page.next_cursor)
                listed = listed + page.tools
            self.tools = [
                Tool(name=tool.name, description=tool.description or "", parameters=tool.input_schema)
                for tool in listed
                if tool.name != self._state_tool
            ]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._stack.aclose()

    async def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        result = await self._client.call_tool(name, arguments)
        texts = [part.text if part.type == "text" else f"[{part.type}]" for part in result.content]
        return ToolResult(content="\n".join(texts), is_error=result.is_error)

    async def state(self) -> JsonValue:
        if self._state_tool is None:
            return None
        result = await self.call(self._state_tool, {})
        if result.is_error:
            raise ValueError(f"the tool {self._state_tool}: {result.content}")
        state: JsonValue = json.loads(result.content)
        return state
