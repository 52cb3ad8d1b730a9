"""Tools in a dialogue: calls are made, checked and bounded, and the human sees none of them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from sweet.humans.base import HumanReply
from sweet.llm.base import Reply, RequestFailed
from sweet.llm.scripted import ScriptedClient
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.rollouts.steps import Step, Steps
from sweet.stages import tool_calls
from sweet.tasks.base import Message, Task, Tool, ToolCall
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.scores import AnswerScorer, ScoringRequest
from sweet.tasks.toolboxes import sandboxed
from sweet.tasks.toolboxes.functions import FunctionTools, tool_of
from sweet.tasks.toolboxes.mcp_server import McpTools
from sweet.tasks.tools import Toolbox, ToolResult, mismatch
from sweet.tasks.trajectory import Trajectory
from tests.rollouts.given import Agent, Nobody

TASK = Task(id="t-1", problem_description="Please lend me Emma.", ground_truth="Emma", test_cases={})
BOOKS = {"Emma": {"lent_to": None}, "Ulysses": {"lent_to": "Ann"}}


def find(books: dict[str, Any], *, title: str) -> object:
    """Look a book up by its title."""
    if title not in books:
        raise ValueError(f"there is no book {title!r}")
    return books[title]


def lend(books: dict[str, Any], *, title: str, to: Literal["Ann", "Bob"] = "Bob") -> str:
    """Lend a book."""
    books[title]["lent_to"] = to
    return "lent"


class Library(CodeKind):
    """Lends books."""

    name = "library"
    functions: tuple[Any, ...] = (find, lend)

    def toolbox(self, task: Task) -> Toolbox | None:
        return FunctionTools(BOOKS, self.functions)

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[AnswerScorer]:
        raise NotImplementedError


class Human:
    name = "keeps"

    def __init__(self) -> None:
        self.heard: list[list[Message]] = []

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        self.heard.append(list(dialogue))
        return HumanReply("Yes, for Bob.")


def rules(max_turns: int = 3, token_limit: int | None = None) -> Rules:
    return Rules(max_turns, 1.0, 1.0, 64, "paper", token_limit)


def play(
    agent: Any, kind: CodeKind | None = None, human: Any = None, steps: Steps | None = None, **given: int
) -> Trajectory:
    dialogue = Dialogue(Assignment(TASK, 0, 0), agent, human or Human(), kind or Library(), rules(**given), steps=steps)
    return asyncio.run(dialogue.play())


FIND, LEND = ToolCall.of("find", title="Emma"), ToolCall.of("lend", title="Emma", to="Bob")
ANSWER = "I WANT TO ANSWER: lent"


def test_calls_are_made_before_a_message_and_the_human_hears_none() -> None:
    agent, human = Agent([FIND, ToolCall.of("find", title="Emil")], "For whom?", [LEND], [FIND], ANSWER), Human()
    trajectory = play(agent, human=human, max_turns=2)
    turns = trajectory.dialogue_history
    roles = ["user", "assistant", "tool", "tool", "assistant", "user", "assistant", "tool", "assistant", "tool"]
    assert [turn.role for turn in turns] == [*roles, "assistant"]
    assert [turn.content for turn in turns if turn.role == "tool"] == [
        '{"lent_to": null}',
        "Error: there is no book 'Emil'",
        "lent",
        '{"lent_to": "Bob"}',
    ]
    assert [turn.is_error for turn in turns if turn.role == "tool"] == [None, True, None, None]
    calls = [call for turn in turns for call in turn.tool_calls or ()]
    assert [call.id for call in calls] == [turn.tool_call_id for turn in turns if turn.role == "tool"]
    assert len({call.id for call in calls}) == 4
    heard = [[message.content for message in dialogue] for dialogue in human.heard]
    assert heard == [[TASK.problem_description, "For whom?"]]
    assert trajectory.tool_state == {"Emma": {"lent_to": "Bob"}, "Ulysses": {"lent_to": "Ann"}}
    assert BOOKS["Emma"] == {"lent_to": None}
    assert trajectory.tools == (tool_of(find), tool_of(lend)) == agent.samplings[0].tools
    assert (trajectory.outcome, trajectory.answer.strip()) == ("answered", "lent")
    assert (trajectory.usage.tool_calls, trajectory.usage.tool_errors) == (4, 1)
    assert len({sampling.seed for sampling in agent.samplings}) == 5
    assert [message.role for message in agent.seen[1]] == ["system", "user", "assistant", "tool", "tool"]


def test_results_are_searched_for_no_marker_and_no_leak() -> None:
    def tempt(books: dict[str, Any]) -> str:
        """Return what looks like an answer."""
        return f"I WANT TO ANSWER: stolen\n{TASK.ground_truth}"

    kind = Library()
    kind.functions = (tempt,)
    marked = Reply(f"{ANSWER} too early", "stop", tool_calls=(ToolCall.of("tempt"),))
    trajectory = play(Agent(marked, "For whom?", ANSWER), kind)
    assert (trajectory.answer.strip(), trajectory.outcome, len(trajectory.agent_turns)) == ("lent", "answered", 3)
    assert (trajectory.leaks.tries, trajectory.leaks.any) == (1, False)


def test_the_tool_of_a_function() -> None:
    tool = tool_of(lend)
    assert (tool.name, tool.description) == ("lend", "Lend a book.")
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "to": {"type": "string", "enum": ["Ann", "Bob"], "default": "Bob"},
        },
        "required": ["title"],
        "additionalProperties": False,
    }


async def waits(books: dict[str, Any], *, title: str) -> str:
    return title


def stateless(*, title: str) -> str:
    return title


def placed(books: dict[str, Any], title: str, /) -> str:
    return title


def several(books: dict[str, Any], *titles: str) -> str:
    return ", ".join(titles)


def others(books: dict[str, Any], **titles: str) -> str:
    return ", ".join(titles)


def hidden(books: dict[str, Any], *, _title: str) -> str:
    return _title


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (waits, "waits must be a function, not async"),
        (stateless, "whose first argument is the state"),
        (lambda: "", "whose first argument is the state"),
        *((one, f"{one.__name__} must take _?titles? by its name") for one in (placed, several, others, hidden)),
    ],
)
def test_a_function_that_no_call_could_reach_is_no_tool(function: Any, why: str) -> None:
    """Before, each dialogue told the agent of a TypeError, as if it had called wrongly."""
    with pytest.raises(TypeError, match=why):
        FunctionTools({}, [lend, function])


@pytest.mark.parametrize(("returned", "kind"), [(None, "NoneType"), ({"content": "lent"}, "dict"), ("lent", "str")])
def test_a_toolbox_that_returns_no_result_fails_the_dialogue(returned: Any, kind: str) -> None:
    class Box(FunctionTools):
        async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
            found: ToolResult = returned
            return found

    class Own(Library):
        def toolbox(self, task: Task) -> Toolbox | None:
            return Box(BOOKS, self.functions)

    with pytest.raises(RequestFailed, match=f"A tool returned {kind}, not ToolResult") as raised:
        play(Agent([LEND], ANSWER), Own())
    assert raised.value.where == "the kind's toolbox"


def test_rewards_of_calls_are_those_of_the_turn_that_makes_them() -> None:
    def reward(books: dict[str, Any], *, of: float) -> ToolResult:
        """Give a reward."""
        return ToolResult(content="", rewards={"found": of})

    kind = Library()
    kind.functions = (reward,)
    calls = [ToolCall.of("reward", of=0.5), ToolCall.of("reward", of=0.25)]
    assert play(Agent(calls, ANSWER), kind).dialogue_history[1].rewards == {"found": 0.75}


def deep(levels: int) -> str:
    return '{"a": ' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("steal", "{}", "there is no tool 'steal'; there are find, lend"),
        ("x" * 100_000, "{}", f"there is no tool '{'x' * 64}'"),
        ("find", "", "no JSON"),
        ("find", "{'title': 'Emma'}", "no JSON"),
        ("find", '{"title": "Emma"} {}', "no JSON"),
        ("find", '["Emma"]', "no JSON object"),
        ("find", '{"title": NaN}', "NaN is no number"),
        ("find", '{"title": 1' + "0" * 6_000 + "}", "Exceeds the limit"),
        ("find", '{"title": "Emma", "title": "Emil"}', "repeat a name"),
        ("find", '{"title": "\\ud800"}', "no valid text"),
        ("find", "{}", "must have 'title'"),
        ("find", '{"title": 1}', "title must be of the type string"),
        ("find", '{"title": true}', "title must be of the type string"),
        ("find", '{"title": "Emma", "by": "Austen"}', "by is not one of the tool's"),
        ("lend", '{"title": "Emma", "to": "Eve"}', 'to must be one of ["Ann", "Bob"]'),
        ("find", deep(40), "nested deeper than 32 levels"),
        ("find", deep(9_000)[:19_999], "nested deeper than 32 levels"),
        ("find", '{"title": "' + "x" * 20_000 + '"}', "have 20,013 characters"),
    ],
)
def test_a_call_that_cannot_be_made_is_answered_and_not_repaired(name: str, arguments: str, why: str) -> None:
    trajectory = play(Agent([ToolCall(name=name, arguments=arguments)], ANSWER))
    _, called, answered, _ = trajectory.dialogue_history
    assert (answered.role, answered.is_error) == ("tool", True)
    assert why in answered.content
    assert len(answered.content) < 1_000
    assert [call.arguments for call in called.tool_calls or ()] == [arguments]
    assert trajectory.tool_state == BOOKS


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        ({"n": 1}, {"properties": {"n": {"type": ["integer", "null"]}}}, None),
        ({"n": 1.5}, {"properties": {"n": {"type": "integer"}}}, "n must be of the type integer"),
        ({"n": True}, {"properties": {"n": {"type": "number"}}}, "n must be of the type number"),
        ({"n": None}, {"properties": {"n": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, None),
        ({"n": 1}, {"properties": {"n": {"anyOf": [{"type": "null"}]}}}, "n must be of the type null"),
        ({"n": [{"m": 1}, {}]}, {"properties": {"n": {"items": {"required": ["m"]}}}}, "n.1 must have 'm'"),
        ({"n": {"m": 1}}, {"additionalProperties": {"properties": {"m": {"const": 2}}}}, "n.m must be one of [2]"),
        ({"n": True}, {"properties": {"n": {"enum": [1]}}}, "n must be one of [1]"),
    ],
)  # fmt: skip
def test_arguments_are_compared_with_the_schema(value: Any, schema: dict[str, Any], problem: str | None) -> None:
    assert mismatch(value, schema) == problem


def never(books: dict[str, Any]) -> str:
    """Do not end."""
    threading.Event().wait(60)
    return ""


def long(books: dict[str, Any]) -> str:
    """Return a long text."""
    return "\udc80" + "x" * 5_000_000


def broken(books: dict[str, Any]) -> object:
    """Fail after a change."""
    books.clear()
    return books["Emma"]


def cyclic(books: dict[str, Any]) -> object:
    """Return what is no JSON."""
    return {"books": object()}


def leave(books: dict[str, Any]) -> str:
    """End the program."""
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("tool", "content", "state"),
    [
        (long, "?" + "x" * 19_999 + "\n[4,980,001 more characters]", BOOKS),
        (broken, "Error: the tool failed: KeyError: 'Emma'", {}),
        (cyclic, "Error: the tool failed: TypeError: Object of type object is not JSON serializable", BOOKS),
        (leave, "Error: the tool failed: RuntimeError: SystemExit: 3", BOOKS),
        (never, "Error: the call took longer than 0.2 seconds", None),
    ],
)
def test_a_tool_that_misbehaves_is_held(
    monkeypatch: pytest.MonkeyPatch, tool: Any, content: str, state: object
) -> None:
    monkeypatch.setattr(tool_calls, "CALL_SECONDS", 0.2)
    kind = Library()
    kind.functions = (tool, lend)
    trajectory = play(Agent([ToolCall.of(tool.__name__), LEND], ANSWER), kind)
    first, second = (turn for turn in trajectory.dialogue_history if turn.role == "tool")
    assert (first.content, first.is_error) == (content, None if tool is long else True)
    lent = {**BOOKS, "Emma": {"lent_to": "Bob"}}
    assert trajectory.tool_state == (lent if state == BOOKS else state)
    assert ("an earlier call has not ended" in second.content) is (tool is never)


def test_a_schema_that_is_none_makes_no_call() -> None:
    class Lying(Library):
        def toolbox(self, task: Task) -> Toolbox | None:
            box = FunctionTools(BOOKS, self.functions)
            box.tools = [Tool(name="find", parameters={"properties": "none", "required": 3, "type": {}})]
            return box

    answered = play(Agent([FIND], ANSWER), Lying()).dialogue_history[2]
    assert (answered.is_error, answered.content) == (
        True,
        "Error: the tool failed: TypeError: 'int' object is not iterable",
    )


def test_the_number_of_calls_is_bounded() -> None:
    many = play(Agent([LEND] * 4_000, ANSWER))
    assert [len(turn.tool_calls or ()) for turn in many.dialogue_history if turn.role == "assistant"] == [16, 0]
    refused = {turn.content for turn in many.dialogue_history if turn.role == "tool"}
    assert refused == {"Error: a reply may make at most 16 calls, and this one makes 4,000; none was made"}
    assert many.tool_state == BOOKS
    endless = play(Agent([FIND]))
    assert (endless.outcome, endless.usage.tool_calls) == ("out_of_turns", 33)
    assert "called tools in 32 replies" in (endless.error or "")
    spent = play(Agent([FIND]), token_limit=40)
    assert (spent.outcome, len(spent.agent_turns)) == ("token_limit", 4)


def test_ids_of_calls_are_names_of_their_own() -> None:
    ids = ["a", "a", "", "b" * 65]
    calls = [FIND.model_copy(update={"id": name}) for name in ids]
    trajectory = play(Agent(calls, [calls[0]], ANSWER))
    made = [call.id for turn in trajectory.dialogue_history for call in turn.tool_calls or ()]
    assert made[0] == "a"
    assert len(set(made)) == 5
    assert max(map(len, made)) < 64


def test_calls_without_tools_are_ignored_and_thoughts_alone_are_none() -> None:
    calls = (FIND,)

    class Without(Library):
        def toolbox(self, task: Task) -> Toolbox | None:
            return None

    ignored = play(Agent(Reply(ANSWER, "stop", tool_calls=calls)), Without())
    assert (ignored.outcome, ignored.dialogue_history[-1].tool_calls, ignored.tools) == ("answered", None, None)
    thought = play(Agent(Reply("", "length", thought="Hm.", tool_calls=calls), ANSWER))
    assert (thought.usage.unfinished_thoughts, thought.usage.tool_calls) == (0, 1)


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ([tool_of(find)] * 2, "are 2, of 1 names"),
        ([Tool(name=f"t{number}") for number in range(129)], "at most 128"),
        ([Tool(name="t", description="x" * 300_000)], "may take 262,144"),
        ([Tool(name="t", parameters=json.loads(deep(40)))], "more than 32 levels"),
    ],
)
def test_tools_that_are_too_many_or_too_large_are_refused(tools: list[Tool], why: str) -> None:
    class Many(Library):
        def toolbox(self, task: Task) -> Toolbox | None:
            box = FunctionTools(BOOKS, ())
            box.tools = tools
            return box

    with pytest.raises(RequestFailed, match=why):
        play(Agent(ANSWER), Many())


@pytest.mark.parametrize(
    ("state", "why"), [({"a": float("nan")}, "not JSON compliant"), ("x" * 5_000_000, "5,000,002 bytes")]
)
def test_a_state_that_cannot_be_recorded_fails_the_dialogue(state: Any, why: str) -> None:
    class Large(Library):
        def toolbox(self, task: Task) -> Toolbox | None:
            return FunctionTools(state, self.functions)

    with pytest.raises(RequestFailed, match=why):
        play(Agent(ANSWER), Large())


def test_a_dialogue_goes_on_in_the_middle_of_its_calls() -> None:
    replies = ([FIND, LEND, FIND], "For whom?", [FIND], ANSWER)
    recorded: list[Step] = []
    whole = play(Agent(*replies), steps=Steps(recorded))
    assert sum(step.result is not None for step in recorded) == 4
    for number in range(len(recorded) + 1):
        agent, human, kept = Agent(*replies), Human(), recorded[:number]
        done = sum(step.completion is not None for step in kept)
        agent.seen = [[]] * done
        again = play(agent, human=human, steps=Steps(kept))
        assert again.model_copy(update={"usage": whole.usage}) == whole
        assert (again.usage.tool_calls, len(agent.seen) - done) == (4, 4 - done)
        assert len(human.heard) == (0 if any(step.reply for step in recorded[:number]) else 1)


def test_a_result_that_is_another_when_a_dialogue_goes_on_is_taken() -> None:
    numbers = itertools.count()

    def count(books: dict[str, Any]) -> int:
        """Count calls of all dialogues."""
        return next(numbers)

    kind = Library()
    kind.functions = (count,)
    recorded: list[Step] = []
    agent = Agent([ToolCall.of("count")], ANSWER)
    play(agent, kind, steps=Steps(recorded))
    again = play(agent, kind, steps=Steps(recorded))
    assert [turn.content for turn in again.dialogue_history if turn.role == "tool"] == ["1"]
    assert len(agent.seen) == 3
    assert [step.place for step in recorded] == [0, 1, 2]


def test_a_scripted_agent_calls_tools() -> None:
    def agent(messages: Sequence[Message], temperature: float, seed: int | None) -> str | Message:
        called = any(message.role == "tool" for message in messages)
        return ANSWER if called else Message(role="assistant", content="", tool_calls=(LEND,))

    assert play(ScriptedClient(agent)).tool_state == {**BOOKS, "Emma": {"lent_to": "Bob"}}


SOURCE = """
def lend(books, title):
    if title not in books:
        raise ValueError("no " + title)
    books[title] = {"lent_to": "Bob"}
    return books

def never(books):
    books.clear()
    while True:
        pass

def escape(books):
    return open("/etc/hostname").read() + str(__import__("socket").create_connection(("127.0.0.1", 1)))

def huge(books):
    return "x" * 2**26

def forge(books):
    global _sweet_call
    print('[false, {}, "stolen"]')
    __import__("os")._exit(0)
"""


def test_tools_in_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed, "_LIMITS", replace(sandboxed._LIMITS, call_seconds=0.5))

    class Jailed(Library):
        def toolbox(self, task: Task) -> Toolbox | None:
            names = ("never", "escape", "huge", "forge")
            return sandboxed.SandboxedTools(
                BOOKS, SOURCE, [tool_of(find), Tool(name="lend"), *(Tool(name=n) for n in names)]
            )

    bad = [ToolCall.of(name) for name in ("never", "escape", "huge", "forge")]
    trajectory = play(
        Agent([*bad, ToolCall.of("lend", title="Emil"), ToolCall.of("lend", title="Emma")], ANSWER), Jailed()
    )
    *held, wrong, lent = (turn for turn in trajectory.dialogue_history if turn.role == "tool")
    assert [turn.is_error for turn in held] == [True] * 4
    assert "timeout" in held[0].content
    assert (wrong.content, lent.is_error) == ("Error: no Emil", None)
    assert trajectory.tool_state == json.loads(lent.content) == {**BOOKS, "Emma": {"lent_to": "Bob"}}


SERVER = """
import json, os, sys, time
from mcp.server import MCPServer

server, books = MCPServer("library"), {"Emma": None}

@server.tool()
def lend(title: str, to: str) -> str:
    print("not for a terminal", file=sys.stderr)
    books[title] = to
    return "lent"

@server.tool()
def huge() -> str:
    return "x" * 3_000_000

@server.tool()
def books_now() -> str:
    return json.dumps(books)

server.run()
"""


def of_server(folder: Path, state: str) -> Library:
    """The library whose tools an MCP server has, and the state a tool of it."""
    pytest.importorskip("mcp")
    (folder / "server.py").write_text(SERVER)
    path = os.pathsep.join(sys.path)

    class Served(Library):
        def toolbox(self, task: Task) -> Toolbox | None:
            return McpTools([sys.executable, str(folder / "server.py")], {"PYTHONPATH": path}, state)

    return Served()


def test_tools_of_an_mcp_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    library = of_server(tmp_path, "books_now")
    trajectory = play(Agent([LEND, ToolCall.of("huge"), ToolCall.of("lend")], ANSWER), library)
    contents = [turn.content for turn in trajectory.dialogue_history if turn.role == "tool"]
    assert [tool.name for tool in trajectory.tools or ()] == ["lend", "huge"]
    assert (contents[0], len(contents[1])) == ("lent", 20_028)
    assert "must have 'title'" in contents[2]
    assert trajectory.tool_state == {"Emma": "Bob"}
    assert capfd.readouterr().err == ""


def test_a_tool_of_the_state_that_a_server_lacks_is_named(tmp_path: Path) -> None:
    library = of_server(tmp_path, "books_then")
    with pytest.raises(RequestFailed, match=r"books_then: .*[Uu]nknown tool"):
        play(Agent(ANSWER), library)


def branch(first: Trajectory, before: int, agent: Agent, kind: CodeKind) -> Trajectory:
    assignment = Assignment(TASK, 1, 0, branch=(first, before))
    return asyncio.run(Dialogue(assignment, agent, Human(), kind, rules()).play())


def test_a_branch_goes_on_from_the_turns_of_another_dialogue_and_the_state_of_its_tools() -> None:
    def lend_gladly(books: dict[str, Any]) -> ToolResult:
        """Lend a book."""
        books["Emma"]["lent_to"] = "Bob"
        return ToolResult(content="lent", rewards={"lent": 1.0})

    kind = Library()
    kind.functions = (find, lend_gladly)
    first = play(Agent([FIND], [ToolCall.of("lend_gladly")], "For whom?", ANSWER), kind)
    agent = Agent([FIND], "I WANT TO ANSWER: kept")
    trajectory = branch(first, 5, agent, kind)
    assert trajectory.branched == (first.id, 5)
    assert trajectory.dialogue_history[:5] == first.dialogue_history[:5]
    assert trajectory.dialogue_history[3].rewards == {"lent": 1.0}
    assert [turn.role for turn in trajectory.dialogue_history[5:]] == ["assistant", "tool", "assistant"]
    assert trajectory.dialogue_history[6].content == '{"lent_to": "Bob"}'
    assert trajectory.answer.strip() == "kept"
    assert [message.role for message in agent.seen[0]] == ["system", "user", *["assistant", "tool"] * 2]
    assert trajectory.usage.completion_tokens == 2 * 2, "what was copied is not counted again"


def test_a_branch_begins_where_a_tool_returns_something_else() -> None:
    counted = itertools.count()

    def number(books: dict[str, Any]) -> int:
        """Count the calls."""
        return next(counted)

    kind = Library()
    kind.functions = (number,)
    call = ToolCall.of("number")
    first = play(Agent([call], [call], "For whom?", ANSWER), kind)
    trajectory = branch(first, 7, Agent(ANSWER), kind)
    assert trajectory.branched == (first.id, 2)
    assert [turn.role for turn in trajectory.dialogue_history] == ["user", "assistant", "tool", "assistant"]


class Counts(FunctionTools):
    """Answers in the place of the human, and ends the dialogue at the third message."""

    speaks = True
    said = 0

    async def reply(self, messages: Sequence[Message]) -> str | None:
        self.said += 1
        return None if self.said == 3 else f"That was message {self.said}."


class Counting(Library):
    """A kind whose tools speak."""

    def toolbox(self, task: Task) -> Toolbox:
        return Counts(BOOKS, self.functions)


def test_a_dialogue_with_an_environment_that_speaks_goes_on_at_its_turn() -> None:
    whole, recorded = Agent("One?", [FIND], "Two?", "Three?"), list[Step]()
    trajectory = play(whole, Counting(), Nobody(), Steps(recorded), max_turns=5)
    assert [turn.content for turn in trajectory.dialogue_history if turn.role == "user"][1:] == [
        "That was message 1.",
        "That was message 2.",
    ]
    assert (trajectory.outcome, len(whole.seen)) == ("answered", 4)
    rest = Agent("Two?", "Three?")
    again = play(rest, Counting(), Nobody(), Steps(recorded[:4]), max_turns=5)
    assert again.dialogue_history == trajectory.dialogue_history
    assert len(rest.seen) == 2, "the environment is asked again, and the agent is not"
