"""`sweet serve-sim`: a simulated human (or any model) as an OpenAI-compatible server, until it is told to stop.

`scripted` answers the prompt of the simulated human from the facts of known tasks, `embedded` runs a model in this
process, `vllm` starts the installed vllm and watches over it. This is no stage of a run: it makes no artifact.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from sweet.errors import Interrupted, SweetError, UsageError
from sweet.stages.base import OPERATIONAL, Reporter, StageConfig
from sweet.tasks.registry import task_kind

if TYPE_CHECKING:
    from sweet.llm.base import ChatClient

_GLANCE = 0.1
"""Seconds between two looks at whether to stop."""

Stop = Callable[[], bool]


class ServeConfig(StageConfig):
    engine: Literal["scripted", "embedded", "vllm"] = "scripted"
    """scripted (tasks with facts, no model), embedded (a model in this process) or vllm (the installed vllm)."""
    model: str | None = None
    """Model of the engines embedded and vllm: micro, a directory or a hub id."""
    task: str = "code"
    """Kind of the tasks that the scripted human knows."""
    tasks: str | None = None
    """Dataset or JSONL file that the scripted human knows; without it the one that rollout takes."""
    split: str = "train"
    """Split of a named dataset: train, validation or test."""
    host: str = Field(default="127.0.0.1", json_schema_extra=OPERATIONAL)
    """Address to listen on; the server asks nobody for a key, so one that others reach is for trusted networks only."""
    port: int = Field(default=8000, ge=0, le=65535, json_schema_extra=OPERATIONAL)
    """Port to listen on; 0 takes a free one."""
    tp: int = Field(default=1, ge=1, json_schema_extra=OPERATIONAL)
    """GPUs that vllm shares one model over (its tensor parallel size)."""
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where the embedded engine runs."""
    passthrough: list[str] = Field(default_factory=list, json_schema_extra=OPERATIONAL)
    """Arguments for vllm."""


def run_serve(
    config: ServeConfig,
    reporter: Reporter,
    ready: Callable[[str], None] = lambda _: None,
    should_stop: Stop = lambda: False,
) -> None:
    """Serve until SIGINT, SIGTERM or `should_stop`; `ready` is told the address once it answers.

    Raises:
        UsageError: the configuration, the model or the address cannot be used.
        SweetError: vllm died.
    """
    _check(config)
    if config.engine == "vllm":
        with _stoppable(should_stop) as stop:
            _serve_vllm(config, reporter, ready, stop)
        return
    client, text = _scripted(config) if config.engine == "scripted" else _embedded(config)
    with _stoppable(should_stop) as stop:
        asyncio.run(_serve_client(config, client, text, ready, stop))


def _check(config: ServeConfig) -> None:
    if config.engine == "scripted" and config.model is not None:
        raise UsageError(
            f"The scripted human has no model, and {config.model} was named.",
            where="--model",
            fix=f"--engine embedded --model {config.model}",
        )
    if config.engine != "scripted" and config.model is None:
        raise UsageError(f"The engine {config.engine} needs a model.", where="--engine", fix="--model MODEL")
    if config.engine != "vllm" and config.passthrough:
        raise UsageError(
            f"Only vllm takes further arguments, and the engine is {config.engine}.",
            where=" ".join(config.passthrough),
            fix="--engine vllm, or leave them out",
        )


def _scripted(config: ServeConfig) -> tuple[ChatClient, None]:
    from sweet.humans.responder import ScriptedResponder

    kind = task_kind(config.task)
    source = config.tasks or kind.default_tasks()
    tasks = [task for task in kind.load(source, config.split) if task.facts]
    if not tasks:
        raise UsageError(
            f"The scripted human speaks from a task's facts, and no task of {source} has any.",
            where="--tasks",
            fix="--tasks micro, or --engine embedded --model MODEL",
        )
    return ScriptedResponder(tasks), None


def _embedded(config: ServeConfig) -> tuple[ChatClient, Any]:
    from sweet.llm.embedded import EmbeddedClient

    assert config.model is not None
    client = EmbeddedClient.load(config.model, device=config.device)
    return client, client


async def _serve_client(
    config: ServeConfig, client: ChatClient, text: Any, ready: Callable[[str], None], stop: Stop
) -> None:
    from sweet.llm.server import listening, make_app

    try:
        async with listening(make_app(client, text), config.host, config.port) as (url, served):
            ready(url)
            while not (stop() or served.done()):
                await asyncio.sleep(_GLANCE)
            if served.done():
                await served
                raise SweetError("The server stopped by itself.", where=url)
    finally:
        await client.aclose()


def _serve_vllm(config: ServeConfig, reporter: Reporter, ready: Callable[[str], None], stop: Stop) -> None:
    from sweet.llm.vllm import VllmServer

    assert config.model is not None
    with tempfile.NamedTemporaryFile(prefix="sweet-vllm-", suffix=".log", delete=False) as log:
        path = Path(log.name)
    server = VllmServer(
        config.model,
        log=path,
        host=config.host,
        port=config.port,
        tensor_parallel=config.tp,
        passthrough=config.passthrough,
        cancelled=stop,
    )
    reporter.say(f"Starting vllm; its output goes to {path}.")
    try:
        with server:
            ready(server.url)
            while not stop():
                if not server.alive:
                    raise server.died()
                time.sleep(_GLANCE)
    except Interrupted:
        reporter.say("Stopped while vllm was starting.")


@contextmanager
def _stoppable(should_stop: Stop) -> Iterator[Stop]:
    """A question that SIGINT and SIGTERM answer too; they do so in the main thread alone, which signals go to."""
    told = threading.Event()

    def tell(_: int, __: FrameType | None) -> None:
        told.set()

    former: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        former = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: told.is_set() or should_stop()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
