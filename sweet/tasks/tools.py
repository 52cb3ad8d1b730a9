"""Tools that a kind of task offers to the agent, and what calls of them are.

Between two messages to the human an agent may call tools any number of times, several at once. A dialogue opens a
`Toolbox` for its task (`TaskKind.toolbox`), which holds the state that the tools read and change. Each call is answered
by a message of the role `tool`; a call that cannot be made (no such tool, arguments that are no JSON or do not fit the
schema, a tool that fails) is answered by a message that says why, and the dialogue goes on. The toolboxes that come
with the program are in `sweet.tasks.toolboxes`; what a call may do is bounded in `sweet.stages.tool_calls`. Tools and
calls are parts of messages: their classes are in `sweet.tasks.base`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from sweet.json_value import JsonValue
from sweet.tasks.base import Message, RewardName, Tool, ToolCall
from sweet.tasks.markers import ANSWER_MARKER

MOST_TOOLS = 128
"""Tools of a request and of a dialogue, as many as OpenAI's API takes."""
ARGUMENT_CHARS = 20_000
"""Characters of a call's arguments."""
ARGUMENT_DEPTH = 32
"""Levels of arrays and objects in arguments and schemas."""

MOST_NAMES = 32
"""Names of the rewards of turns in an evaluation, at most."""

_NAME_CHARS = 64
Call = tuple[str, dict[str, Any]]
"""The name of a tool, and arguments."""
FAILED = "Error: "
"""Begins the message that answers a call which could not be made, or failed."""


class ToolResult(BaseModel):
    """What a tool returned.

    Attributes:
        content: the text of the message to the agent.
        is_error: whether the call could not be made, or failed.
        rewards: of the agent's turn that made the call, by name; those of several calls of a turn are added (`summed`).
    """

    model_config = ConfigDict(frozen=True)

    content: str
    is_error: bool = False
    rewards: Mapping[RewardName, Annotated[float, Field(ge=-1e3, le=1e3, allow_inf_nan=False)]] | None = None


class Toolbox(ABC):
    """The tools of one dialogue, and their state. It is opened, and closed in the end, as an asynchronous context.

    Attributes:
        tools: that are offered to the agent, once it is open.
        speaks: whether it answers the agent's messages in the place of the human (`reply`), and ends the dialogue.
    """

    tools: Sequence[Tool]
    speaks: bool = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        return None

    @abstractmethod
    async def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        """Run a tool; `arguments` fit its schema as far as `sweet.stages.tool_calls` checks that.

        The calls of a dialogue are made one after the other. A dialogue that goes on after a stop makes its recorded
        calls again.

        Raises:
            ValueError: the agent did something wrong; the agent reads the text.
            Exception: any other is told to the agent with its type.
        """

    async def reply(self, messages: Sequence[Message]) -> str | None:
        """Return what a toolbox that speaks answers to the last of the messages so far; None if the dialogue ends."""
        raise NotImplementedError

    @abstractmethod
    async def state(self) -> JsonValue:
        """Return the state, which scorers read (`Trajectory.tool_state`); None if it is not known."""


def summed(rewards: Iterable[Mapping[str, float] | None]) -> dict[str, float]:
    """Return the sums of rewards by name."""
    sums: dict[str, float] = {}
    for row in rewards:
        for name, value in (row or {}).items():
            sums[name] = sums.get(name, 0.0) + value
    return sums


def arguments_of(call: ToolCall, tools: Sequence[Tool]) -> dict[str, JsonValue]:
    """Return the arguments of a call of one of these tools; raise ValueError where it fits none of them."""
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        names = ", ".join(tool.name for tool in tools)
        raise ValueError(f"there is no tool {call.name[:_NAME_CHARS]!r}; there are {names}")
    arguments = read_arguments(call.arguments)
    problem = mismatch(arguments, tool.parameters)
    if problem is not None:
        raise ValueError(f"the arguments do not fit: {problem}")
    return arguments


def read_call(call: ToolCall, tools: Sequence[Tool]) -> Call:
    """Return the name and the arguments of a call; raise ValueError where it fits none of these tools."""
    return call.name, arguments_of(call, tools)


def calls_made(messages: Iterable[Message], tools: Sequence[Tool]) -> list[tuple[Call, str]]:
    """Return the calls of a dialogue that did not fail, with their results."""
    messages, calls = list(messages), list[tuple[Call, str]]()
    results = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
    for call in (call for message in messages for call in message.tool_calls or ()):
        result = results.get(call.id, FAILED)
        with suppress(ValueError):  # a dialogue of another program may show results of calls that fit no tool
            calls += [] if result.startswith(FAILED) else [(read_call(call, tools), result)]
    return calls


def rest_of(calls: Iterable[Call], last: str, dialogue: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Return a reference from a dialogue on: those of its calls that were not made, and the answer `last`. A call that
    it makes twice is left once where it was made once."""
    earlier_calls, left = [call for call, _ in calls_made(dialogue, tools)], list[ToolCall]()
    for call in calls:
        if call in earlier_calls:
            earlier_calls.remove(call)
        else:
            left.append(ToolCall.of(call[0], **call[1]))
    answer = Message(role="assistant", content=f"{ANSWER_MARKER}\n{last}")
    return [*(Message(role="assistant", content="", tool_calls=(call,)) for call in left), answer]


def read_arguments(text: str) -> dict[str, JsonValue]:
    """Return the arguments of a call.

    Raises:
        ValueError: they are no JSON object, are too long or too deep, repeat a name, or have no valid text.
    """
    if len(text) > ARGUMENT_CHARS:
        raise ValueError(f"the arguments have {len(text):,} characters, and may have {ARGUMENT_CHARS:,}")
    try:
        arguments = json.loads(text, parse_constant=_no_number, object_pairs_hook=_without_repeats)
        text.encode()
        json.dumps(arguments, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError(f"the arguments are nested deeper than {ARGUMENT_DEPTH} levels") from None
    except UnicodeEncodeError:
        raise ValueError("the arguments are no valid text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"the arguments are no JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise ValueError("the arguments are no JSON object")
    if not is_shallow(arguments):
        raise ValueError(f"the arguments are nested deeper than {ARGUMENT_DEPTH} levels")
    return arguments


def _no_number(name: str) -> None:
    raise ValueError(f"the arguments are no JSON: {name} is no number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    arguments = dict(pairs)
    if len(arguments) < len(pairs):
        raise ValueError("the arguments repeat a name in an object")
    return arguments


def is_shallow(value: object, levels: int = ARGUMENT_DEPTH) -> bool:
    """Return whether a JSON value has at most so many levels of arrays and objects."""
    if not isinstance(value, dict | list):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(is_shallow(part, levels - 1) for part in parts)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def mismatch(value: JsonValue, schema: object, at: str = "") -> str | None:
    """Say which part of a value does not fit a JSON Schema; None if every part does.

    `type`, `enum`, `const`, `required`, `properties`, `additionalProperties`, `items` and `anyOf` are checked; other
    keywords are left to the tool.

    Args:
        at: the path of the value, as in "order.items.0".
    """
    if not isinstance(schema, dict):
        return f"{at or 'a name'} is not one of the tool's" if schema is False else None
    where = at or "they"
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_is_of(value, str(name)) for name in types):
            return f"{where} must be of the type {' or '.join(map(str, types))}"
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(allowed, list) and not any(option == value and type(option) is type(value) for option in allowed):
        return f"{where} must be one of {json.dumps(allowed, ensure_ascii=False):.500}"
    if schema.get("anyOf"):
        problems = [mismatch(value, option, at) for option in schema["anyOf"]]
        if None not in problems:
            return problems[0]
    parts: list[tuple[object, JsonValue, object]] = []
    if isinstance(value, dict):
        missing = next((name for name in schema.get("required", ()) if name not in value), None)
        if missing is not None:
            return f"{where} must have {missing!r}"
        properties, additional = schema.get("properties", {}), schema.get("additionalProperties", True)
        parts = [(name[:_NAME_CHARS], part, properties.get(name, additional)) for name, part in value.items()]
    elif isinstance(value, list):
        parts = [(number, part, schema.get("items", True)) for number, part in enumerate(value)]
    part_problems = (mismatch(part, part_schema, f"{at}.{name}".lstrip(".")) for name, part, part_schema in parts)
    return next(filter(None, part_problems), None)


def _is_of(value: JsonValue, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES.get(name, (object,)))
