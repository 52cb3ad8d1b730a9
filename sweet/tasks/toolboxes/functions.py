"""Tools that are Python functions of a kind of task.

A function takes the state, which it may change, and its arguments by name:

    def cancel(orders: dict[str, Any], *, order: str) -> str:
        '''Cancel an order.'''
        orders[order]["status"] = "cancelled"
        return "done"

Its name, docstring and annotations are the tool's name, description and parameters. It returns a text, another JSON
value, or a `ToolResult`, and raises ValueError for what the agent did wrong. It runs in a thread of its own; one that
does not end within the limit goes on there, so the state is not known from then on, and no further call is made.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, create_model

from sweet.errors import described
from sweet.json_value import JsonValue
from sweet.tasks.base import Tool
from sweet.tasks.tools import Toolbox, ToolResult

T = TypeVar("T")


class FunctionTools(Toolbox):
    """The functions of a kind over the state of a dialogue.

    Args:
        state: a JSON value; it is copied.
    """

    def __init__(self, state: Any, functions: Sequence[Callable[..., object]]) -> None:
        self.tools = [tool_of(function) for function in functions]
        self._functions = {function.__name__: function for function in functions}
        self._state: JsonValue = copy.deepcopy(state)
        self._is_lost = False

    async def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        if self._is_lost:
            raise ValueError("an earlier call has not ended, so no further call is made")
        try:
            returned = await in_thread(partial(self._functions[name], self._state, **arguments))
        except asyncio.CancelledError:
            self._is_lost = True
            raise
        if isinstance(returned, ToolResult):
            return returned
        return ToolResult(content=returned if isinstance(returned, str) else json.dumps(returned, ensure_ascii=False))

    async def state(self) -> JsonValue:
        return None if self._is_lost else self._state


@cache
def tool_of(function: Callable[..., object]) -> Tool:
    """Return the tool that is a function of the state and of named arguments.

    Raises:
        TypeError: it cannot be called with the state and arguments by name, or an argument has no annotation.
    """
    hints, fields, name = get_type_hints(function, include_extras=True), {}, function.__name__
    arguments = list(inspect.signature(function).parameters.values())
    first = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if inspect.iscoroutinefunction(function) or not arguments or arguments[0].kind not in first:
        raise TypeError(f"the tool {name} must be a function, not async, whose first argument is the state")
    for argument in arguments[1:]:
        if argument.kind not in named or argument.name.startswith("_"):
            raise TypeError(f"the tool {name} must take {argument.name} by its name, which begins with a letter")
        if argument.name not in hints:
            raise TypeError(f"the argument {argument.name} of the tool {name} has no annotation")
        fields[argument.name] = (hints[argument.name], ... if argument.default is argument.empty else argument.default)
    model: type[BaseModel] = create_model(name, **fields)  # type: ignore[call-overload]
    schema = model.model_json_schema()
    schema.pop("title")
    for part in schema.setdefault("properties", {}).values():
        part.pop("title", None)
    schema["additionalProperties"] = False
    return Tool(name=name, description=inspect.getdoc(function) or "", parameters=schema)


async def in_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`, which runs in a thread that does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, Exception | None]] = loop.create_future()

    def tell(outcome: tuple[Any, Exception | None]) -> None:
        if not ended.done():
            ended.set_result(outcome)

    def run() -> None:
        try:
            outcome: tuple[Any, Exception | None] = (work(), None)
        except Exception as error:
            outcome = (None, error)
        except BaseException as error:  # such as SystemExit, which would end the program
            outcome = (None, RuntimeError(described(error)))
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(tell, outcome)

    threading.Thread(target=run, daemon=True).start()
    value, error = await ended
    if error is not None:
        raise error
    result: T = value
    return result
