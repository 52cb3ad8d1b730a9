"""Opens the tools of a dialogue and makes an agent's calls: bounded, checked, and never repaired.

Tools and arguments may be hostile: what a model writes, and what a server of tools returns, may be huge, endless, deep
or no text. A call that cannot be made is answered by a message that says why, and so is a tool that fails.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sweet.errors import SweetError, described
from sweet.gathering import first_cause
from sweet.json_value import JsonValue
from sweet.llm.base import RequestFailed
from sweet.tasks.base import Message, Task, Tool, ToolCall
from sweet.tasks.kind import TaskKind
from sweet.tasks.tools import ARGUMENT_DEPTH, FAILED, MOST_TOOLS, Toolbox, ToolResult, arguments_of, is_shallow
from sweet.tasks.trajectory import Turn

CALLS = 16
"""Calls in one reply; of a reply with more none is made. Models make a handful at once."""
REPLIES = 32
"""Replies with calls between two messages to the human, after which the dialogue ends: an agent that calls on and on
would never deliver."""
RESULT_CHARS = 20_000
"""Characters of a result that the agent reads; the rest is cut. It is about a third of a context of 16,384 tokens."""
CALL_SECONDS = 60.0
"""Seconds of one call, and of opening and closing the tools."""
TOOL_BYTES = 1 << 18
"""Bytes of all tools as JSON: the agent reads them with every request."""
STATE_BYTES = 1 << 22
"""Bytes of the state as JSON: it is in the row of each dialogue, which has 64 MiB at most."""


@asynccontextmanager
async def opened(kind: TaskKind, task: Task) -> AsyncIterator[Toolbox | None]:
    """Open the tools of a dialogue on a task; None if its kind offers none.

    Raises:
        RequestFailed: they cannot be opened, or are too many or too large.
    """
    toolbox = kind.toolbox(task)
    if toolbox is None:
        yield None
        return
    try:
        async with asyncio.timeout(CALL_SECONDS):
            await toolbox.__aenter__()
    except Exception as error:
        raise _failed("cannot be opened", error) from error
    try:
        _check(toolbox.tools)
        yield toolbox
    finally:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await toolbox.__aexit__(None, None, None)
        except Exception as error:
            raise _failed("cannot be closed", error) from error


def _failed(what: str, error: Exception) -> SweetError:
    cause = first_cause(error) if isinstance(error, ExceptionGroup) else error
    if isinstance(cause, SweetError):
        return cause
    late = f" (after {CALL_SECONDS:g} seconds)" if isinstance(cause, TimeoutError) else ""
    return RequestFailed(f"The tools {what}: {described(cause)}{late}", where="the kind's toolbox")


def _check(tools: Sequence[Tool]) -> None:
    names = [tool.name for tool in tools]
    problem = None
    if len(names) > MOST_TOOLS or len(set(names)) < len(names):
        problem = f"are {len(names):,}, of {len(set(names)):,} names; at most {MOST_TOOLS} may be, of different names"
    elif not all(is_shallow(tool.parameters) for tool in tools):
        problem = f"have a schema of more than {ARGUMENT_DEPTH} levels"
    elif (size := len(json.dumps([tool.row() for tool in tools]))) > TOOL_BYTES:
        problem = f"take {size:,} bytes as JSON, and may take {TOOL_BYTES:,}"
    if problem is not None:
        raise RequestFailed(f"The tools {problem}.", where="the kind's toolbox")


async def final_state(toolbox: Toolbox) -> JsonValue:
    """Return the state of the tools in the end.

    Raises:
        RequestFailed: it cannot be read, is no JSON, or is too large for a row.
    """
    try:
        async with asyncio.timeout(CALL_SECONDS):
            state = await toolbox.state()
        size = len(json.dumps(state, allow_nan=False, ensure_ascii=False).encode())
    except Exception as error:
        raise _failed("have no state that can be recorded", error) from error
    if size > STATE_BYTES:
        what = f"The state of the tools takes {size:,} bytes as JSON, and may take {STATE_BYTES:,}."
        raise RequestFailed(what, where="the kind's toolbox", fix="return what has changed")
    return state


def named(calls: Sequence[ToolCall], dialogue: Sequence[Message | Turn]) -> tuple[ToolCall, ...]:
    """Return the first `CALLS` of a reply's calls, with ids that are names of their own in the dialogue before it."""
    used_ids = {call.id for entry in dialogue for call in entry.tool_calls or ()} | {""}
    named_calls = []
    for number, call in enumerate(calls[:CALLS]):
        if call.id in used_ids or len(call.id) > 64:
            call = call.model_copy(update={"id": f"call-{len(dialogue)}-{number}"})
        used_ids.add(call.id)
        named_calls.append(call)
    return tuple(named_calls)


async def with_results(
    toolbox: Toolbox | None, messages: Sequence[Message], before: Sequence[Message] = ()
) -> list[Message]:
    """Make the calls of messages, and return those before and the messages, with the results that are not among
    them."""
    if toolbox is None:
        return [*before, *messages]
    recorded, dialogue = {message.tool_call_id: message for message in messages if message.role == "tool"}, list(before)
    for message in messages:
        calls = named(message.tool_calls or (), dialogue)
        if message.role != "tool":
            dialogue.append(message.model_copy(update={"tool_calls": calls}) if calls else message)
        for call in calls:
            result = await result_of(toolbox, call, len(message.tool_calls or ()))
            result_message = Message(role="tool", content=result.content, tool_call_id=call.id)
            dialogue.append(recorded.get(call.id, result_message))
    return dialogue


async def result_of(toolbox: Toolbox, call: ToolCall, calls: int) -> ToolResult:
    """Make a call, and return its result, or why it is not made or failed.

    Args:
        calls: the number of those that the reply makes.
    """
    try:
        if calls > CALLS:
            raise ValueError(f"a reply may make at most {CALLS} calls, and this one makes {calls:,}; none was made")
        arguments = arguments_of(call, toolbox.tools)
        async with asyncio.timeout(CALL_SECONDS) as clock:
            result = await toolbox.call(call.name, arguments)
    except SweetError:
        raise
    except ValueError as error:
        return _error(str(error))
    except Exception as error:
        if isinstance(error, TimeoutError) and clock.expired():
            return _error(f"the call took longer than {CALL_SECONDS:g} seconds")
        return _error(f"the tool failed: {described(error)}")
    if not isinstance(result, ToolResult):
        raise RequestFailed(f"A tool returned {type(result).__name__}, not ToolResult.", where="the kind's toolbox")
    return result.model_copy(update={"content": _bounded(result.content)})


def _error(why: str) -> ToolResult:
    return ToolResult(content=_bounded(f"{FAILED}{why}"), is_error=True)


def _bounded(text: str) -> str:
    more = f"\n[{len(text) - RESULT_CHARS:,} more characters]" if len(text) > RESULT_CHARS else ""
    return (text[:RESULT_CHARS] + more).encode(errors="replace").decode()
