"""A user's own program as the agent: started for each dialogue, as a client of the gateway, and bounded.

The program finds the address in `OPENAI_BASE_URL`, the key of its session in `OPENAI_API_KEY`, the public part of its
task as JSON in `SWEET_TASK`, and the address of its session in `SWEET_SESSION`. What it delivers is the last line of
its output (`last_line`) or what it posts; a program that says nothing delivers its last sampled reply, read as in a
rollout, and so does one that fails at a reply which was cut at the limit of tokens: SDKs raise an error there, and it
would fail again. Its session has a key of its own, which opens no other; keys of this program and of servers are not in
its environment.

It is killed with its processes when the dialogue ends, when it takes longer than the deadline between two replies, or
prints too much; a supervisor does it, also if this process is gone. A dialogue that did not finish begins again.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sweet import supervisor
from sweet.hints import option
from sweet.humans.base import Human
from sweet.llm.base import ChatClient, RequestFailed
from sweet.llm.listening import listening
from sweet.llm.server import make_app
from sweet.paths import RUNS
from sweet.redaction import VARIABLES, redacted
from sweet.rollouts.dialogue import Assignment, DialogueStopped, Rules
from sweet.rollouts.gateway.app import Gateway, key_of, public_part
from sweet.rollouts.gateway.jail import jailed, kept_in_jail
from sweet.rollouts.gateway.sessions import Session
from sweet.rollouts.prepare import Dialogues
from sweet.rollouts.sides import words_of
from sweet.rollouts.steps import Posted, Steps
from sweet.tasks.trajectory import Trajectory, dump

OUTPUT_BYTES = 1 << 22
"""Bytes that a program may print on stdout, and on stderr."""
_TAIL = 2000
"""Characters of stderr in an error."""
_GRACE = 1.0


@asynccontextmanager
async def open_harness(
    agent: ChatClient, humans: Mapping[str | None, Human], dialogues: Dialogues, rules: Rules, run: Path
) -> AsyncIterator[Callable[[Assignment, Callable[[], bool]], HarnessDialogue]]:
    """Open a gateway on the loopback interface; yield what makes a dialogue of the program.

    Args:
        run: the run's folder, which a program in a jail does not see.

    Raises:
        UsageError: there is to be a jail, and none starts here.
    """
    words, running = words_of(dialogues.config.harness or ""), dict[int, str]()
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    gateway = Gateway(agent, humans, dialogues, secrets.token_hex(32), rules)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(listening(make_app(gateway), "127.0.0.1", 0))
        if dialogues.config.harness_jail:
            hidden = run, RUNS, Path(dialogues.config.tasks or RUNS)
            words = await stack.enter_async_context(jailed(words, url, hidden, running))
            inherited = kept_in_jail(inherited)
        yield partial(HarnessDialogue, words, inherited, running, gateway, url)


@dataclass
class HarnessDialogue:
    """One run of the program, as `sweet.rollouts.dialogue.Dialogue` plays a dialogue.

    Attributes:
        inherited: the part of this process's environment that the program gets.
        running: the programs that run, by the leaders of their process groups; with what a jail killed one for.
        is_over: is asked before each call whether the dialogue is to stop there.
    """

    words: list[str]
    inherited: Mapping[str, str]
    running: dict[int, str]
    gateway: Gateway
    url: str
    assignment: Assignment
    is_over: Callable[[], bool]

    def __post_init__(self) -> None:
        assignment, name = self.assignment, hashlib.sha256(self.assignment.id.encode()).hexdigest()[:32]
        self.session = Session(name, Steps(), assignment.task, assignment.id, assignment.human)
        self.session.is_over = self.is_over

    async def play(self) -> list[Trajectory]:
        """Run the program to its end, and return the rows of its session.

        Raises:
            RequestFailed: the program failed, printed too much, or its last line cannot be read.
            DialogueStopped: `is_over` returned true.
            ServerError: the last call found the server of the agent or of the human away.
        """
        session, gateway = self.session, self.gateway
        if session.is_over():
            raise DialogueStopped
        session.context = contextvars.copy_context()
        gateway.sessions[session.name] = session
        try:
            status, output, errors = await _run(self.words, self._environment(), self.running)
        finally:
            session.ended = True
            del gateway.sessions[session.name]
        if session.stopped:
            raise DialogueStopped
        if session.away is not None:
            raise session.away
        if status and session.refused is None and not session.cut:
            tail = redacted(errors.decode(errors="replace")[-_TAIL:]).strip()
            raise _failed(f"ended with status {status}: {tail or 'it printed no error'}")
        try:
            posted = last_line(output)
        except ValueError as error:
            raise _failed(f"ended with a line that cannot be posted: {error}") from error
        overrides = {"task": None} if session.answer is None else {"task": None, "answer": None}
        session.record(posted=posted.model_copy(update=overrides))
        return session.trajectories(gateway.kind, self.assignment.sample, self.assignment.seed)

    @property
    def versions(self) -> list[list[int]]:
        """Those of the weights, for each row."""
        return self.session.versions

    def record(self) -> dict[str, Any]:
        """Return the dialogue so far, for the log of failed dialogues."""
        return {"dialogue": self.assignment.id, **dump(self.session.trajectories(self.gateway.kind)[0])}

    def _environment(self) -> dict[str, str]:
        gateway, name = self.gateway, self.session.name
        public = public_part(gateway.kind, self.assignment.task, gateway.rules.max_turns)
        return {
            **self.inherited,
            "OPENAI_BASE_URL": self.url,
            "OPENAI_API_KEY": key_of(gateway.token, name),
            "SWEET_TASK": json.dumps(public),
            "SWEET_SESSION": f"{self.url.removesuffix('/v1')}/sessions/{name}",
        }


def _failed(what: str) -> RequestFailed:
    return RequestFailed(f"The program {what}", where=option("harness"))


def last_line(output: bytes) -> Posted:
    """Return what the last line of a program's output says: a JSON object as it may be posted, or the answer, as text
    or as a JSON string. An empty output says nothing. Raises ValueError if an object is none that may be posted."""
    lines = output.decode(errors="replace").split("\n")
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = line
    return Posted.model_validate(value if isinstance(value, dict) else {"answer": str(value) or None})


async def _run(words: list[str], environment: dict[str, str], running: dict[int, str]) -> tuple[int, bytes, bytes]:
    """Run a program; return its exit status, its output and its errors.

    Raises:
        RequestFailed: these are too long, or it exceeded a bound of its jail.
    """
    process = await asyncio.create_subprocess_exec(
        *supervisor.supervised(words, _GRACE, "--adopt"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    running[process.pid] = ""

    def stop() -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)  # the supervisor then kills all that the program has started

    try:
        streams = _read(process.stdout, stop), _read(process.stderr, stop)
        status, output, errors = await asyncio.gather(process.wait(), *streams)
    finally:
        stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE + supervisor.KILL_TIMEOUT)
        exceeded = running.pop(process.pid)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if exceeded:
        raise _failed(f"used {exceeded}")
    if max(len(output), len(errors)) > OUTPUT_BYTES:
        raise _failed(f"printed more than {OUTPUT_BYTES:,} bytes")
    return status, output, errors


async def _read(stream: asyncio.StreamReader | None, stop: Callable[[], None]) -> bytes:
    """Return what a program writes until it ends; it is stopped if that is more than `OUTPUT_BYTES`."""
    assert stream is not None
    output = bytearray()
    while part := await stream.read(1 << 16):
        output += part if len(output) <= OUTPUT_BYTES else b""
        if len(output) > OUTPUT_BYTES:
            stop()
    return bytes(output)
