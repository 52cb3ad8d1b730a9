"""The gateway on the loopback interface: sessions, rows, keys and bounds; programs that are agents, also hostile."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

import sweet
from sweet.errors import ServerError, UsageError
from sweet.humans.asking import LLMHuman
from sweet.humans.base import HumanReply
from sweet.humans.scripted import ScriptedHuman
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Completion, Reply, Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.engine import EmbeddedEngine
from sweet.llm.listening import HTTPError, listening
from sweet.llm.scripted import ScriptedClient
from sweet.llm.server import make_app
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.gateway.app import Gateway, HumanServer, key_of
from sweet.rollouts.gateway.jail import _command
from sweet.rollouts.gateway.sessions import Session
from sweet.rollouts.prepare import load_dialogues
from sweet.rollouts.steps import Steps
from sweet.runs.run import Run
from sweet.sandbox.resource_monitor import descendants
from sweet.stages.base import Silent
from sweet.tasks.base import Message, ToolCall
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from tests import programs
from tests.llm.stand_in import gone
from tests.rollouts.harness import HARNESS
from tests.rollouts.human_servers import Counting, human_server
from tests.rollouts.small import rows

TOKEN = "secret"


@pytest.fixture(scope="module")
def micro() -> Iterator[EmbeddedClient]:
    client = EmbeddedClient.load("micro", device="cpu")
    yield client
    asyncio.run(client.aclose())


class Open(Gateway):
    """Begins a session of any name."""

    def begin(self, name: str) -> Session:
        if name == "none":
            raise HTTPError(404, "There is no such session.")
        return Session(name, Steps())


@asynccontextmanager
async def opened(client: EmbeddedClient, **settings: Any) -> AsyncIterator[tuple[Open, Any]]:
    """A gateway, and a function that returns OpenAI's client of a session."""
    settings = {"num_tasks": 2, "max_tokens": 48, "temperature": 0, "agent": "micro", **settings}
    dialogues = load_dialogues(None, RolloutConfig.model_validate(settings), Silent())
    gateway = Open(client, {None: ScriptedHuman(dialogues.kind)}, dialogues, TOKEN)
    async with listening(make_app(gateway), "127.0.0.1", 0) as url:

        def client_of(session: str = "", key: str = TOKEN, path: str = "") -> openai.AsyncOpenAI:
            base = url.replace("/v1", f"{path}/v1")
            named = f"{key}/{session}" if session else key
            return openai.AsyncOpenAI(base_url=base, api_key=named, max_retries=0)

        yield gateway, client_of


async def say(client: openai.AsyncOpenAI, messages: list[Any], model: str = "agent", **more: Any) -> str:
    answer = await client.chat.completions.create(model=model, messages=messages, **more)
    return answer.choices[0].message.content or ""


async def once(client: openai.AsyncOpenAI, messages: list[Any], model: str = "agent") -> str:
    async with client:
        return await say(client, messages, model)


def test_calls_are_turns_and_edited_contexts_are_branches_that_train_nothing_twice(micro: EmbeddedClient) -> None:
    """Every sampled reply is a turn of one row, with the ids that the engine read and wrote; a reply that a program
    claims, and one that another row has, is context."""

    async def work() -> tuple[list[Trajectory], list[str]]:
        async with opened(micro) as (gateway, of), of("one") as client:
            task = next(iter(gateway.tasks.values()))
            asked: list[Any] = [{"role": "user", "content": task.problem_description}]
            posted = await client.post(
                f"{str(client.base_url).replace('/v1/', '')}/sessions/one", cast_to=object, body={"task": task.id}
            )
            assert task.hidden not in json.dumps(posted)
            first = await say(client, asked)
            human = await say(client, [{"role": "user", "content": first}], model="human")
            second = await say(
                client, [*asked, {"role": "assistant", "content": first}, {"role": "user", "content": human}]
            )
            claimed = {"role": "assistant", "content": "I never said this."}
            third = await say(client, [*asked, claimed, {"role": "user", "content": "Go on."}])
            body = {"answer": "def f(): pass", "reward": 0.5, "turn_rewards": {"1": {"asks": 0.25}}, "end": True}
            verdict: Any = await client.post(
                f"{str(client.base_url).replace('/v1/', '')}/sessions/one", cast_to=object, body=body
            )
            assert (verdict["calls"], verdict["branches"], verdict["ended"]) == (3, 2, True)
            assert verdict["human"] == {"turns": [{"fault": None, "withheld": []}], "fault": None, "leaked": 0}
            with pytest.raises(openai.ConflictError, match="has ended"):
                await say(client, asked)
            return gateway.sessions["one"].trajectories(gateway.kind), [first, second, third]

    (main, branch), said = asyncio.run(work())
    assert [main.dialogue_history[i].content for i in main.agent_turns] == said[:2]
    assert [branch.dialogue_history[i].content for i in branch.agent_turns] == said[2:]
    assert [(turn.content, turn.given) for turn in branch.dialogue_history if turn.role == "assistant"] == [
        ("I never said this.", True),
        (said[2], None),
    ]
    assert (main.id, branch.id, branch.session, main.answer, branch.reward) == (
        "one",
        "one~1",
        "one",
        "def f(): pass",
        0.5,
    )
    assert main.turn_rewards == {main.agent_turns[1]: {"asks": 0.25}}
    assert branch.turn_rewards == {}
    encoder = ChatEncoder(micro.tokenizer)
    for row in map(Trajectory.model_validate_json, (main.model_dump_json(), branch.model_dump_json())):
        trained = 0
        for sequence in encoder.dialogue(row, None).sequences:
            for span in sequence.spans:
                turn, trained = row.dialogue_history[span.turn], trained + 1
                read = row.prompt_ids(span.turn)
                assert read is not None
                assert sequence.ids[: len(read) + len(turn.token_ids or ())] == read + (turn.token_ids or ())
                assert len(turn.logprobs or ()) == len(turn.token_ids or ())
        assert trained == len(row.agent_turns)


def test_a_key_opens_its_session_alone_and_calls_are_bounded(micro: EmbeddedClient) -> None:
    async def work() -> None:
        asked: list[Any] = [{"role": "user", "content": "What is the rate?"}]
        async with opened(micro, max_turns=2) as (gateway, of):
            for key, status in (("wrong", 401), (key_of(TOKEN, "b").split("/")[0], 401)):
                with pytest.raises(openai.APIStatusError) as error:
                    await once(of("a", key), asked)
                assert error.value.status_code == status
            own = key_of(TOKEN, "b")
            assert await once(of("", own), asked)
            assert await once(of("", TOKEN, "/sessions/b"), asked)
            with pytest.raises(openai.PermissionDeniedError, match="another session"):
                await once(of("", own, "/sessions/a"), asked)
            with pytest.raises(openai.PermissionDeniedError, match="has had its 2 calls"):
                await once(of("b"), asked)
            with pytest.raises(openai.BadRequestError, match="Name a session"):
                await once(of(), asked)
            with pytest.raises(openai.BadRequestError, match="64 letters"):
                await once(of("a/b"), asked)
            with pytest.raises(openai.NotFoundError, match="no such session"):
                await once(of("none"), asked)
            with pytest.raises(openai.ConflictError, match="has none yet"):
                await once(of("b"), asked, model="human")
            assert {*gateway.sessions} == {"b"}

    asyncio.run(work())


def test_a_reply_is_streamed_to_the_client_of_openai(micro: EmbeddedClient) -> None:
    async def work() -> None:
        asked: list[Any] = [{"role": "user", "content": "What is the rate?"}]
        async with opened(micro) as (_, of), of("s") as client:
            whole = await say(client, asked, seed=1)
            options: Any = {"stream": True, "stream_options": {"include_usage": True}, "seed": 1}
            chunks = [one async for one in await client.chat.completions.create(model="m", messages=asked, **options)]
            assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices) == whole
            assert [one.choices[0].finish_reason for one in chunks if one.choices] == [None, "stop"]
            assert chunks[-1].usage is not None
            assert chunks[-1].usage.completion_tokens > 1

    asyncio.run(work())


def test_the_responses_api_records_the_same_turns(micro: EmbeddedClient) -> None:
    """By the id of the response before, by the whole input, and streamed: one row with the replies as turns."""

    async def work() -> tuple[list[Trajectory], list[str]]:
        async with opened(micro) as (gateway, of), of("one") as client, of("two") as other:
            first = await client.responses.create(model="agent", input="What is the rate?")
            person: Any = {"role": "user", "content": [{"type": "input_text", "text": "It is 7."}]}
            second = await client.responses.create(model="agent", input=[person], previous_response_id=first.id)
            asked: Any = [{"role": "user", "content": "What is the rate?"}]
            for response, text in ((first, "It is 7."), (second, "And 8.")):
                asked += [*(item.model_dump() for item in response.output), {"role": "user", "content": text}]
            events = [one async for one in await client.responses.create(model="agent", input=asked, stream=True)]
            assert [one.sequence_number for one in events] == list(range(len(events)))
            last = events[-1]
            assert last.type == "response.completed"
            deltas = "".join(one.delta for one in events if one.type == "response.output_text.delta")
            assert deltas == last.response.output_text
            assert last.response.usage is not None
            assert last.response.usage.output_tokens > 1
            with pytest.raises(openai.BadRequestError, match="same session"):
                await other.responses.create(model="agent", input="x", previous_response_id=first.id)
            picture: Any = {"type": "image_generation_call"}
            with pytest.raises(openai.BadRequestError, match="'image_generation_call' are not supported"):
                await other.responses.create(model="agent", input=[picture])
            said = [first.output_text, second.output_text, last.response.output_text]
            return gateway.sessions["one"].trajectories(gateway.kind), said

    [row], said = asyncio.run(work())
    assert [row.dialogue_history[i].content for i in row.agent_turns] == said
    assert all(row.dialogue_history[i].token_ids for i in row.agent_turns)


class Calling(ScriptedClient):
    """Calls a function, and says what it returned."""

    template = None

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        assert [tool.name for tool in sampling.tools] == ["look"]
        calls = (ToolCall(id="", name="look", arguments='{"at": 1}'),)
        last = messages[-1]
        reply = Reply(last.content) if last.role == "tool" else Reply("I look.", tool_calls=calls, thought="Where?")
        return Completion((reply,), 3, 4, "m")


def test_the_responses_api_has_functions_and_thoughts() -> None:
    async def work() -> list[Trajectory]:
        client_of_model: Any = Calling(lambda *_: "", "m")
        async with opened(client_of_model) as (gateway, of), of("one") as client:
            look: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
            asked: list[Any] = [{"role": "user", "content": "Where is it?"}]
            options: Any = {"model": "agent", "tools": [look], "instructions": "Be kind."}
            async for event in await client.responses.create(input=asked, stream=True, **options):
                if event.type == "response.completed":
                    asked += [item.model_dump() for item in event.response.output]
            assert [item["type"] for item in asked[1:]] == ["reasoning", "message", "function_call"]
            output = {"type": "function_call_output", "call_id": asked[-1]["call_id"], "output": "At home."}
            response = await client.responses.create(input=[*asked, output], **options)
            assert response.output_text == "At home."
            return gateway.sessions["one"].trajectories(gateway.kind)

    [row] = asyncio.run(work())
    assert [(turn.role, turn.content) for turn in row.dialogue_history] == [
        ("user", "Where is it?"),
        ("assistant", "I look."),
        ("tool", "At home."),
        ("assistant", "At home."),
    ]
    assert (row.agent_system, row.dialogue_history[1].thought) == ("Be kind.", "Where?")


def test_a_human_is_served_by_sessions_with_its_verdict() -> None:
    """A leak is withheld and asked for again; where all replies leak, none is passed on."""
    dialogues = load_dialogues(None, RolloutConfig(num_tasks=2), Silent())
    secret, other = dialogues.tasks

    def rule(messages: Sequence[Message], _temperature: float, _seed: int | None) -> str:
        task = secret if secret.problem_description in messages[0].content else other
        return "It is seven." if task is other and len(messages) > 1 else f"Here it is:\n{task.ground_truth}"

    async def work() -> None:
        human = LLMHuman(ScriptedClient(rule, "sim"), dialogues.kind, tries=2)
        app = HumanServer(human.client, {None: human}, dialogues)
        async with listening(make_app(app), "127.0.0.1", 0) as url, aiohttp.ClientSession() as http:
            asked = {"model": "human", "messages": [{"role": "user", "content": "What is the rate?"}]}

            async def post(path: str, body: dict[str, Any]) -> tuple[int, Any]:
                async with http.post(url.replace("/v1", f"/sessions/{path}"), json=body) as answer:
                    return answer.status, await answer.json()

            for name, task in (("a", secret), ("b", other)):
                status, said = await post(name, {"task": task.id})
                assert (status, said["task"]["problem_description"]) == (200, task.problem_description)
                assert task.ground_truth not in json.dumps(said)
            status, said = await post("a/v1/chat/completions", asked)
            assert (status, said["error"]["code"]) == (409, "human_fault")
            assert secret.ground_truth not in json.dumps(said)
            status, said = await post("b/v1/chat/completions", asked)
            assert (status, said["choices"][0]["message"]["content"]) == (200, "It is seven.")
            assert (await post("b/v1/chat/completions", asked | {"model": "agent"}))[0] == 404
            for name, fault, leaked in (("a", "leaked", 2), ("b", None, 1)):
                async with http.get(url.replace("/v1", f"/sessions/{name}")) as answer:
                    verdict = (await answer.json())["human"]
                turn = {"fault": fault, "withheld": ["leaked"]}
                assert verdict == {"turns": [turn], "fault": fault, "leaked": leaked}

    asyncio.run(work())


def test_calls_of_the_human_are_bounded_before_it_replies_and_an_ended_session_records_none(
    micro: EmbeddedClient,
) -> None:
    """Else a program that asks a slow human a thousand times at once has all places of the server."""
    replies = asyncio.Event()

    class Slow:
        async def reply(self, *_: Any) -> HumanReply:
            await replies.wait()
            return HumanReply("It is seven.")

    async def work() -> None:
        async with opened(micro, max_turns=2) as (gateway, of):
            gateway.humans = {None: Slow()}  # type: ignore[dict-item]
            gateway.sessions["a"] = session = Session("a", Steps(), next(iter(gateway.tasks.values())))
            asked: list[Any] = [{"role": "user", "content": "What is the rate?"}]
            calls = [asyncio.ensure_future(once(of("a"), asked, "human")) for _ in range(6)]
            done: set[Any] = set()
            while len(done) < 4:
                done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=20)
            assert all(type(one.exception()) is openai.PermissionDeniedError for one in done)
            session.ended = True
            replies.set()
            left = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(one) for one in left].count(openai.ConflictError) == 2
            assert session.replied == []

    asyncio.run(work())


def test_a_server_that_is_away_is_said_and_changes_no_session(capfd: pytest.CaptureFixture[str]) -> None:
    """503, which clients try again, for the human and the agent; nothing was said, and the session goes on after it."""
    away = [True]

    def rule(*_: Any) -> str:
        if away[0]:
            raise ServerError("The server could not be reached.", where="here")
        return "It is seven."

    async def work() -> None:
        client: Any = ScriptedClient(rule, "m")
        async with opened(client) as (gateway, of), of("a") as program:
            gateway.humans = {None: LLMHuman(client, gateway.kind)}
            gateway.sessions["a"] = session = Session("a", Steps(), next(iter(gateway.tasks.values())))
            asked: list[Any] = [{"role": "user", "content": "What is the rate?"}]
            for model in ("human", "agent"):
                with pytest.raises(openai.InternalServerError) as error:
                    await say(program, asked, model)
                assert (error.value.status_code, error.value.code) == (503, "server_away")
            assert (session.calls, session.replied, type(session.away)) == (0, [], ServerError)
            away[0] = False
            assert [await say(program, asked, model) for model in ("human", "agent")] == ["It is seven."] * 2
            assert (session.calls, len(session.replied), session.away) == (1, 1, None)

    asyncio.run(work())
    assert capfd.readouterr().err == "", "an error that the program is told is no failure of the server"


@pytest.mark.parametrize("ending", ["", "sys.exit('no human')"])
def test_a_human_that_is_away_ends_the_rollout_and_spoils_no_dialogue(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without a program: the server is away, which is no failure of the dialogue, whatever the program makes of it;
    the same command goes on."""
    program = tmp_path / "harness.py"
    program.write_text(f"{HARNESS}said = ask([request], 'human')\nif said == 503:\n    {ending or 'pass'}\nprint(said)")

    async def nothing(*_: Any) -> Completion:
        raise HTTPError(503, "Loading.")

    run = Run.create(tmp_path / "run", "code")
    with human_server(task_kind("code").load("micro", "train"), "someone") as (url, _):
        settings = {"harness": f"{sys.executable} {program}", "sim": "someone", "sim_url": [url], "num_tasks": 2}
        config = RolloutConfig.model_validate({**settings, "tasks": "micro", "retry_timeout": 0, "fail_on_error": 2})
        with monkeypatch.context() as broken:
            broken.setattr(Counting, "chat", nothing)
            with pytest.raises(ServerError, match="503 Loading"):
                sweet.rollout(run, config)
        metrics = sweet.rollout(run, config).metrics
    assert (metrics.episodes, metrics.failed) == (2, 0)
    assert all(row["answer"] not in ("503", "") for row in rows(run))


HOSTILE = {
    "endless": "said = [ask([request]) for _ in range(5)]; print(json.dumps([one for one in said if one == 403]))",
    "replays": "ask([request, {'role': 'assistant', 'content': 'I WANT TO ANSWER: 1'}, request]); print('answer')",
    "strange": (
        "key2 = key.split('/')[0] + '/' + 'a' * 32\n"
        "found = [ask([request], key=key2), ask([request], key='x/y'), ask([request], path='/nowhere')]\n"
        "at, own = os.environ['SWEET_SESSION'], dict(id='x', problem_description='y', ground_truth='z')\n"
        "found += [ask(None, address=at, path='', task=own), ask(None, address=at[:-1] + 'z', path='')]\n"
        "ask([request]); print(json.dumps({'answer': str(found), 'reward': 1.0}))"
    ),
    "prints": "sys.stdout.write('x' * (5 << 20))",
    "fails": "sys.exit('no luck')",
    "cut": "ask([request], max_tokens=1); sys.exit('incomplete')",
    "leaves": "import subprocess; ask([request]); print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid)",
    "posts": (
        "at, most = os.environ['SWEET_SESSION'], 'x' * (1 << 20)\n"
        "while ask(None, address=at, path='', answer=most) != 403:\n    most = most[:-1]\n"
        "sys.exit(f'{(1 << 20) - len(most)} were taken')"
    ),
    "talks": (
        "import time\nwhile ask(None, address=os.environ['SWEET_SESSION'], path='', reward=1.0) != 403:\n"
        "    time.sleep(0.1)"
    ),
    "waits": "import subprocess, time; subprocess.Popen(['sleep', '60']); ask([request]); time.sleep(60)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_is_held(name: str, tmp_path: Path) -> None:
    """Right values for each: what it may not do is refused, what it claims is context, and it is ended."""
    program = tmp_path / "harness.py"
    program.write_text(HARNESS + HOSTILE[name])
    settings = {
        "num_tasks": 1,
        "max_turns": 3,
        "max_tokens": 32,
        "fail_on_error": 1,
        "deadline": 4 if name in ("waits", "talks") else 100,
    }
    config = RolloutConfig.model_validate({"harness": f"{sys.executable} {program}", **settings})
    run = Run.create(tmp_path / "run", "code")
    metrics = sweet.rollout(run, config).metrics
    row = (rows(run) or [{}])[0]
    said = [turn for turn in row.get("dialogue_history", ()) if turn["role"] == "assistant"]
    if name == "endless":  # equal calls are branches, and the fourth is refused
        assert (metrics.episodes, metrics.turns, len(rows(run))) == (1, 3, 3)
        assert (row["answer"], row["outcome"]) == ("[403, 403]", "answered")
        scored = sweet.evaluate(run).metrics
        assert (scored.trajectories, scored.outcomes) == (1, {"no_answer": 1}), "branches of a session count once"
        scores = [json.loads(line) for line in run.file(run.artifact("scores-1")).read_text().splitlines()]
        assert [one.get("session") for one in scores].count(None) == 1
    elif name == "replays":
        assert [turn.get("given") for turn in said] == [True, None]
        assert (metrics.turns, row["answer"]) == (1, "answer")
    elif name == "cut":  # it would fail again, and the agent is what failed
        assert (metrics.episodes, metrics.failures, metrics.turns) == (1, None, 1)
        assert (row["outcome"], said[0]["finish_reason"]) == ("answered", "length")
    elif name == "leaves":
        assert metrics.episodes == 1
        assert gone(int(row["answer"])), "it left the group of the program"
    elif name == "strange":
        assert row["answer"] == "[401, 401, 404, 403, 403]"
        [score] = [json.loads(line) for line in _scores(run).read_text().splitlines()]
        assert score["reward"] < 1  # the kind's scorer decides
    else:
        why = {"prints": "printed more than 4,194,304 bytes", "fails": "status 1: no luck", "waits": "within 4 seconds"}
        why |= {"posts": "status 1: 7 were taken", "talks": "within 4 seconds"}
        assert (metrics.episodes, metrics.failed) == (0, 1)
        assert why[name] in next(iter(metrics.failures or {}))


def test_a_slow_machine_ends_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls wait for this machine, as dialogues do: `tests/llm/test_embedded.py`."""
    admit = EmbeddedEngine._admit

    def slowly(engine: EmbeddedEngine) -> None:
        time.sleep(11.0)
        admit(engine)

    monkeypatch.setattr(EmbeddedEngine, "_admit", slowly)
    program = tmp_path / "harness.py"
    program.write_text(HARNESS + "ask([request], max_tokens=1); print('answer')")
    config = {"harness": f"{sys.executable} {program}", "num_tasks": 1, "max_turns": 3, "deadline": 10}
    run = Run.create(tmp_path / "run", "code")
    metrics = sweet.rollout(run, RolloutConfig.model_validate(config)).metrics
    assert (metrics.episodes, metrics.failed, metrics.turns) == (1, 0, 1)


SWAPS = """
import time
def said_by_all(name, text):
    open("new-" + task["id"], "w").write(text)
    os.rename("new-" + task["id"], name + task["id"])
    until = time.monotonic() + 100
    while len(found := [one for one in sorted(os.listdir()) if one.startswith(name)]) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    return next(one for one in found if one != name + task["id"])
other = said_by_all("key-", key)
theirs, neighbour = open(other).read(), other.removeprefix("key-")
at = os.environ["SWEET_SESSION"]
there = at.replace(key.partition("/")[2], theirs.partition("/")[2])
found = [ask(None, address=there, path="", reward=1.0), ask(None, key=theirs, address=at, path="", end=True)]
found += [ask(None, key=theirs, address=there, path="", task=task["id"])]
found += [ask(None, address=at, path="", task=neighbour)]
ask([{"role": "user", "content": "from " + task["id"]}], key=theirs)
ask(None, key=theirs, address=there, path="", turn_rewards={"0": {"asks": 1.0}})
said_by_all("called-", "")
found += [ask(None, key=theirs, address=there, path="", end=True)["ended"]]
said_by_all("ended-", "")
print(json.dumps({"answer": json.dumps([*found, ask([request])])}))
"""


def test_programs_that_swap_their_keys_have_the_sessions_that_these_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a jail a program may learn the key of another: this key opens its session, and no more. Neither has the
    other's task, nor the other's answer."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "harness.py"
    program.write_text(HARNESS + SWAPS)
    settings = {"harness": f"{sys.executable} {program}", "num_tasks": 2, "concurrency": 2, "max_tokens": 16}
    run = Run.create(tmp_path / "run", "code")
    assert sweet.rollout(run, RolloutConfig.model_validate(settings)).metrics.episodes == 2
    first, second = rows(run)
    for row, other in ((first, second), (second, first)):
        assert json.loads(row["answer"]) == [403, 403, 403, 403, True, 409]
        assert row["dialogue_history"][0]["content"] == f"from {other['task']['id']}"
        assert "reward" not in row
    assert {one["reward"] for one in map(json.loads, _scores(run).read_text().splitlines())} == {0}


def _scores(run: Run) -> Path:
    sweet.evaluate(run)
    return run.file(run.artifact("scores-1"))


def test_a_gateway_that_was_killed_goes_on_with_its_sessions(tmp_path: Path) -> None:
    """kill -9 in the middle of a session: the same command goes on in the same rollouts; the rewards are scores."""
    words = [
        *programs.SWEET,
        "gateway",
        "run",
        "--model",
        "micro",
        "--device",
        "cpu",
        "--num-tasks",
        "2",
        "--port",
        "0",
    ]
    environment = {**os.environ, "SWEET_GATEWAY_KEY": TOKEN}
    asked: list[Any] = [{"role": "user", "content": "What is the rate?"}]

    def begun() -> tuple[subprocess.Popen[str], str]:
        process = programs.start(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        found = next(match for line in process.stderr if (match := re.search(r"Serving at (\S+)/v1", line)))
        return process, found[1]

    def ask(url: str, path: str, body: dict[str, Any]) -> Any:
        head = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/sessions/a{path}", json.dumps(body).encode(), head)
        return json.load(urllib.request.urlopen(request, timeout=60))

    def refused(path: str = "/v1/chat/completions", **headers: str) -> int:
        head = {"Authorization": f"Bearer {TOKEN}/a", "Content-Type": "application/json"} | headers
        body = json.dumps({"model": "m", "messages": asked}).encode()
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(urllib.request.Request(url + path, body, head), timeout=60)
        with error.value as answer:
            return int(answer.code)

    process, url = begun()
    assert refused(Host="evil.example") == 421
    assert refused(Origin="https://evil.example") == 403
    assert refused(**{"Content-Type": "text/plain"}) == 415
    assert refused(Authorization="Bearer wrong/a") == 401
    assert refused("/sessions/b/v1/chat/completions") == 403
    message = ask(url, "/v1/chat/completions", {"model": "m", "messages": asked})["choices"][0]["message"]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    process, url = begun()
    asked += [{"role": "assistant", "content": message["content"]}, {"role": "user", "content": "It is 7."}]
    ask(url, "/v1/chat/completions", {"model": "m", "messages": asked})
    assert ask(url, "", {"reward": 1.0, "answer": "7", "end": True})["calls"] == 2
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    run = Run.open(tmp_path / "run")
    [row] = rows(run)
    assert (row["id"], row["reward"], len(row["dialogue_history"])) == ("a", 1.0, 4)
    assert [artifact.id for artifact in run.manifest().artifacts] == ["rollouts-1", "scores-1"]
    [score] = [json.loads(line) for line in run.file(run.artifact("scores-1")).read_text().splitlines()]
    assert (score["reward"], score["outcome"]) == (1.0, "passed")


JAILED = """
import re, socket, subprocess
def refused(attempt):
    try:
        attempt()
    except OSError as error:
        return True
    return False
def environ(number):
    try:
        return open(f"/proc/{number}/environ").read()
    except OSError:
        return ""
numbers = [name for name in os.listdir("/proc") if name.isdigit()]
here, port = os.path.dirname(os.path.abspath(__file__)), int(open("port.txt").read())
ask([request])
found = {
    "network": refused(lambda: socket.create_connection(("127.0.0.1", port), 2)),
    "run": refused(lambda: open(here + "/run/manifest.json")),
    "tasks": refused(lambda: open(here + "/tasks.jsonl")),
    "files": refused(lambda: open("/etc/passwd")),
    "writing": refused(lambda: open(here + "/new", "w")),
    "root": refused(lambda: open("/new", "w")),
    "memory": not refused(lambda: open("/tmp/new", "w")),
    "shared": not refused(lambda: open("/dev/shm/new", "w")),
    "size": refused(lambda: open("/dev/shm/new", "wb").write(bytes(65 << 20))),
    "way": refused(lambda: os.chmod("/tmp/gateway", 0)),
    "machine": refused(lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
    "namespaces": subprocess.run(["unshare", "-Ur", "true"], capture_output=True).returncode != 0 or not DISABLES,
    "keys": {*re.findall("OPENAI_API_KEY=([^\\0]+)", "".join(map(environ, numbers)))} == {key},
    "environment": not {"MY_SECRET", "SWEET_NOTIFY", "OPENAI_ADMIN_KEY"} & {*os.environ},
    "processes": len(numbers) < 6,
}
print([name for name, held in found.items() if not held] or "all held")
"""


BWRAP = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@BWRAP
@pytest.mark.parametrize(("where", "place"), [("..", "run"), (".", "runs/mine")])
def test_a_program_in_a_jail_reaches_the_model_and_nothing_else(
    where: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the run is in runs/, which is hidden too, below the program's folder."""
    program, tasks = tmp_path / "harness.py", tmp_path / "tasks.jsonl"
    refusing = ["bwrap", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "true"]
    disables = subprocess.run(refusing, capture_output=True, check=False).returncode == 0
    program.write_text(HARNESS + JAILED.replace("DISABLES", str(disables)).replace("/run/", f"/{place}/"))
    monkeypatch.chdir(tmp_path / where)
    tasks.write_text(task_kind("code").load("micro", "test")[0].model_dump_json() + "\n")
    for name in ("MY_SECRET", "SWEET_NOTIFY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "https://secret")
    relative = program.relative_to(Path.cwd())
    settings = {"harness": f"python3 {relative}", "harness_jail": True, "tasks": str(tasks), "num_tasks": 1}
    config = RolloutConfig.model_validate({**settings, "max_tokens": 16})
    run = Run.create(tmp_path / place, "code")
    with socket.create_server(("127.0.0.1", 0)) as other:
        (tmp_path / "port.txt").write_text(str(other.getsockname()[1]))
        assert sweet.rollout(run, config).metrics.turns == 1
    assert rows(run)[0]["answer"] == "all held"


@BWRAP
def test_a_program_in_a_jail_imports_packages_that_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an editable installation in its virtual environment, and by PYTHONPATH."""
    for name in ("installed", "named", "program"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}_module.py").touch()
    venv.create(tmp_path / "env", symlinks=True)
    [site] = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "mine.pth").write_text(str(tmp_path / "installed"))
    (site / "mine-1.dist-info").mkdir()
    record = {"url": (tmp_path / "installed").as_uri(), "dir_info": {"editable": True}}
    (site / "mine-1.dist-info/direct_url.json").write_text(json.dumps(record))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/tmp", str(tmp_path / "named")]))  # /tmp is the jail's own
    program = tmp_path / "program" / "harness.py"
    program.write_text(f"{HARNESS}import installed_module, named_module\nask([request])\nprint('imported')")
    settings = {"harness": f"{tmp_path}/env/bin/python {program}", "harness_jail": True, "num_tasks": 1}
    run = Run.create(tmp_path / "run", "code")
    sweet.rollout(run, RolloutConfig.model_validate({**settings, "max_tokens": 16}))
    assert rows(run)[0]["answer"] == "imported"


EXCEEDS = {
    "more than 200 MiB of memory": "held = bytearray(400 << 20)",
    "more than 64 threads and processes": """
for _ in range(400):
    try:
        if os.fork() == 0:
            os.setsid()
            break
    except OSError:
        break""",
}


@BWRAP
@pytest.mark.parametrize("what", EXCEEDS)
def test_what_a_program_in_a_jail_uses_is_bounded(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of its processes together, and their number; all of them are gone."""
    bound, most = ("TASKS", 64) if "64" in what else ("MEMORY_BYTES", 200 << 20)
    monkeypatch.setattr(f"sweet.rollouts.gateway.jail.{bound}", most)
    program, before = tmp_path / "harness.py", descendants(os.getpid())
    program.write_text(f"{HARNESS}import time\n{EXCEEDS[what]}\ntime.sleep(60)")
    settings = {"harness": f"{sys.executable} {program}", "harness_jail": True, "num_tasks": 1, "fail_on_error": 1}
    metrics = sweet.rollout(Run.create(tmp_path / "run", "code"), RolloutConfig.model_validate(settings)).metrics
    assert [*(metrics.failures or {})] == [f"The program used {what}"]
    assert {*descendants(os.getpid())} <= {*before}


@BWRAP
def test_a_run_in_a_folder_of_the_system_is_hidden(tmp_path: Path) -> None:
    command = _command(["ls", "/usr/share"], tmp_path, "8000", [Path("/usr/share")])
    assert subprocess.run(command, capture_output=True, check=True).stdout == b""


def test_a_jail_that_cannot_be_is_said_before_any_dialogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    config = RolloutConfig.model_validate({"harness": sys.executable, "harness_jail": True, "num_tasks": 1})
    with pytest.raises(UsageError, match="starts no jail here: "):
        sweet.rollout(Run.create(tmp_path / "run", "code"), config)
    monkeypatch.undo()
    with tempfile.NamedTemporaryFile(dir="/tmp", suffix=".py") as program:
        config = config.model_copy(update={"harness": f"{sys.executable} {program.name}"})
        with pytest.raises(UsageError, match="is /tmp"):
            sweet.rollout(Run.create(tmp_path / "there", "code"), config)
    with pytest.raises(UsageError, match="no program for the jail"):
        sweet.rollout(Run.create(tmp_path / "other", "code"), RolloutConfig(harness_jail=True))
