"""Tools that are Python functions in the sandbox, for source that is not trusted as the kind's own code is.

The source defines a function for each tool, which takes the state and its arguments by name, as those of
`sweet.tasks.toolboxes.functions` do. Each call runs in a fresh child of a jail (docs/sandbox.md), which is given the
state and the arguments as JSON and returns the state and the result as JSON: nothing else is kept, and a call that
fails, or takes too long or too much memory, changes nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

from sweet.json_value import JsonValue
from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Limits, Program
from sweet.sandbox.tiers import open_sandbox
from sweet.tasks.base import Tool
from sweet.tasks.tools import Toolbox, ToolResult

_LIMITS = Limits(call_seconds=10.0, value_bytes=8 * 2**20)
_CALL = """

def _sweet_call(name, state, arguments):
    import json
    state = json.loads(state)
    try:
        result = globals()[name](state, **json.loads(arguments))
    except ValueError as error:
        return json.dumps([True, None, str(error)])
    return json.dumps([False, state, result if isinstance(result, str) else json.dumps(result)])
"""


class SandboxedTools(Toolbox):
    """Functions of untrusted source over the state of a dialogue.

    Args:
        state: a JSON value.
        source: Python source that defines a function for each tool.
    """

    def __init__(self, state: Any, source: str, tools: Sequence[Tool]) -> None:
        self.tools, self._source = tools, source + _CALL
        self._state = json.dumps(state)

    async def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        expression = f"_sweet_call({name!r}, {self._state!r}, {json.dumps(arguments)!r})"
        (execution,) = await asyncio.to_thread(_sandbox().run, [Program(self._source, (expression,))])
        (result,) = execution.results
        if result.status != "value" or not isinstance(result.value, str):
            raise RuntimeError(result.explanation or "it returned too much")
        try:
            wrong, state, content = json.loads(result.value)
            state = json.dumps(state)
        except (ValueError, TypeError, RecursionError) as error:
            raise RuntimeError("it returned no JSON") from error
        if wrong:
            raise ValueError(content)
        self._state = state
        return ToolResult(content=content)

    async def state(self) -> JsonValue:
        state: JsonValue = json.loads(self._state)
        return state


@cache
def _sandbox() -> Sandbox:
    """Return the jails of this process, which are opened at the first call."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(open_sandbox(limits=_LIMITS))
