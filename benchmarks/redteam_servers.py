"""The process that benchmarks/redteam.py measures for hostile servers: the client, then a rollout, with one server.

Reads a request as JSON ({"name", "steps"}) and prints one JSON line for each step: `client` connects and asks once,
`rollout` plays two dialogues with the server as the agent. Both must end, with an error that the program declares or
with a result; what the command line shows of the error is short and has no control characters; neither the
error nor a file of the run contains the API key; and the dialogue reaches no other host.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.hostile_server import KEY, MODEL
from benchmarks.redteam_answers import ADDRESS_SPACE, measured
from sweet.cli.console import safe_text
from sweet.errors import SweetError
from sweet.llm.base import ContextOverflow, RequestFailed, Sampling
from sweet.llm.connect import open_client
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message

STEPS = ("client", "rollout")
SECONDS = 5.0
"""Time limit of a request or a dialogue, and of retries."""
MOST_SHOWN = 4_000
"""Characters of an error message."""


def main() -> None:
    spec: dict[str, Any] = json.load(sys.stdin)
    os.environ["SWEET_AGENT_API_KEY"] = KEY
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    works = {"client": client, "rollout": rollout}
    with serving("honest") as (url, _):
        for step in spec["steps"]:
            if faults := works[step](url):
                raise SystemExit(f"an honest server: {faults}")
    with serving(spec["name"]) as (url, leaked):
        for step in spec["steps"]:

            def work(step: str = step) -> list[str]:
                return works[step](url) + ["a dialogue or the key reached another host"] * leaked()

            print(json.dumps({"step": step, **measured(work)}), flush=True)


@contextmanager
def serving(name: str) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Start a hostile server in a process of its own; yield its address, and whether it says `leaked`."""
    command = [sys.executable, "-m", "benchmarks.hostile_server", name]
    with tempfile.TemporaryFile() as errors:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        with server:
            if server.stdout is None:
                raise RuntimeError("the server has no pipe")
            pipe = server.stdout.fileno()
            address = server.stdout.readline().decode().strip()
            try:
                yield address, lambda: bool(select.select([pipe], [], [], 0)[0])
            finally:
                server.kill()


def client(url: str) -> list[str]:
    """Connect and ask once."""

    async def ask() -> None:
        async with open_client(MODEL, [url], retry_timeout=SECONDS, request_timeout=SECONDS) as opened:
            await opened.chat([Message(role="user", content="What is the rate?")], Sampling(max_tokens=100))

    try:
        asyncio.run(ask())
    except (SweetError, RequestFailed, ContextOverflow) as error:
        return faults_of(str(error))
    except Exception as error:
        return [f"ended with {type(error).__name__}: {str(error)[:200]}"]
    return []


def rollout(url: str) -> list[str]:
    """Play two dialogues, and look at the files too."""
    with tempfile.TemporaryDirectory(prefix="redteam-") as folder:
        config = RolloutConfig(
            agent=MODEL,
            agent_url=[url],
            sim="scripted",
            tasks="micro",
            split="test",
            num_tasks=2,
            deadline=SECONDS,
            retry_timeout=SECONDS,
            request_timeout=SECONDS,
            fail_on_error=3,
        )
        found = []
        try:
            run_rollout(Run.create(Path(folder, "run"), "code"), config, Silent())
        except SweetError as error:
            found = faults_of(str(error))
        except Exception as error:
            found = [f"ended with {type(error).__name__}: {str(error)[:200]}"]
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and KEY.encode() in path.read_bytes():
                found.append(f"the key is in {path.relative_to(folder)}")
    return found


def faults_of(message: str) -> list[str]:
    """Return what is wrong with the message of an error, or with what the command line shows of it."""
    found, shown = [], safe_text(message).plain
    if len(message) > MOST_SHOWN:
        found.append(f"a message of {len(message)} characters")
    if strange := sorted({ascii(each) for each in shown if each != "\n" and not each.isprintable()}):
        found.append(f"a message with {', '.join(strange)}")
    if KEY in message:
        found.append("the key is in the message")
    return found


if __name__ == "__main__":
    main()
