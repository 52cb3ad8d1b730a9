"""`sweet serve-sim`: a simulated human (or any model) as an OpenAI-compatible server, until it is stopped.

`scripted` answers the prompts of the simulated human from the facts of known tasks, `embedded` runs a model in this
process, `server` asks one elsewhere; all also serve the human itself, with its guards, by sessions (`gateway`). `vllm`
starts the installed vllm and monitors it. This is not a stage of a run: it makes no artifact.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sweet.errors import UsageError
from sweet.gathering import run_main, stop_signal, until
from sweet.stages.base import BEHIND_DASHES, OPERATIONAL, Reporter, about
from sweet.stages.options import DeviceConfig, HumanConfig, ListenConfig, SimUrlConfig, TasksConfig
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TRAIN

if TYPE_CHECKING:
    from sweet.llm.base import ChatClient
    from sweet.tasks.base import Task

MOST_REPLIES = 100
"""Replies of the human in a session at most."""


class ServeConfig(DeviceConfig, HumanConfig, SimUrlConfig, ListenConfig, TasksConfig):
    main_options = "engine", "model", "sim_url", "task", "tasks", "human", "host", "port"

    engine: Literal["scripted", "embedded", "server", "vllm"] = Field(
        default="scripted", json_schema_extra=about("Servers")
    )
    """scripted (tasks with facts, no model), embedded (a model in this process), server (a model at --sim-url, for the
    human by sessions) or vllm (the installed vllm, with its own API and without sessions)."""
    model: str | None = Field(default=None, json_schema_extra=about("Servers"))
    """Model of the other engines: micro, a directory, a hub id, or the name that a server has for it."""
    tp: int = Field(default=1, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """GPUs over which vllm distributes the model (its tensor parallel size)."""
    log: Path | None = Field(default=None, json_schema_extra=about("Checkpoints and logs", OPERATIONAL))
    """File for the output of vllm; default: a new one in the folder for temporary files."""
    passthrough: list[str] = Field(default_factory=list, json_schema_extra=BEHIND_DASHES)
    """Arguments after -- are passed unchanged to vllm."""


def run_serve(
    config: ServeConfig,
    reporter: Reporter,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        ready: called with the address as soon as the server answers.

    Raises:
        UsageError: the configuration, the model or the address cannot be used.
        SweetError: vllm died.
    """
    _check(config)
    if config.engine == "vllm":
        run_main(_serve_vllm(config, reporter, ready))
        return
    here = None if config.engine == "server" else _embedded(config) if config.model else _scripted(config)
    run_main(_serve_client(config, here, ready))


def _check(config: ServeConfig) -> None:
    if config.engine == "scripted" and config.model is not None:
        what = f"The scripted human has no model, and {config.model} was named."
        raise UsageError(what, where="--model", fix=f"--engine embedded --model {config.model}")
    if config.engine != "scripted" and config.model is None:
        raise UsageError(f"The engine {config.engine} needs a model.", where="--engine", fix="--model MODEL")
    if (config.engine == "server") != bool(config.sim_url):
        what = "The engine server asks a model at --sim-url, and no other engine does."
        raise UsageError(what, where=f"--engine {config.engine}", fix="--engine server --model MODEL --sim-url URL")
    if config.engine == "vllm":
        return
    if config.engine != "scripted" and task_kind(config.task).visual:
        what = f"The human of {config.task} tasks must see pages, and sessions of this server have text alone."
        raise UsageError(what, where=f"--engine {config.engine}", fix="--engine vllm --model MODEL, a vision model")
    options = {"--tp": config.tp > 1, "--log": config.log is not None, "arguments after --": bool(config.passthrough)}
    if names := ", ".join(name for name, is_given in options.items() if is_given):
        raise UsageError(f"Only vllm accepts {names}.", where="--engine", fix=f"--engine vllm, or without {names}")


def _scripted(config: ServeConfig) -> ChatClient:
    from sweet.humans.scripted import ScriptedResponder

    kind, tasks = task_kind(config.task), _tasks(config)
    if kind.visual:
        raise UsageError(
            f"The scripted human of {kind.name} tasks cannot be served: it compares both pages in a browser, and a "
            "request to a server does not contain them.",
            where=f"--task {config.task}",
            fix=f"sweet rollout --task {config.task} --sim scripted",
        )
    kind.check_scripted_human(tasks)
    return ScriptedResponder(kind, tasks)


def _tasks(config: ServeConfig) -> list[Task]:
    """Return the tasks of all splits, as those of a file are: one server is asked by every command."""
    kind = task_kind(config.task)
    source = config.tasks or kind.tasks_for(scripted=config.engine == "scripted")
    splits = kind.splits[source] if kind.has_dataset(source) else (TRAIN,)
    return [task for split in splits for task in kind.load(source, split)]


def _embedded(config: ServeConfig) -> ChatClient:
    from sweet.llm.embedded import EmbeddedClient

    assert config.model is not None
    return EmbeddedClient.load(config.model, device=config.device)


async def _serve_client(config: ServeConfig, here: ChatClient | None, ready: Callable[[str], None]) -> None:
    """Serve the model, and by sessions the human: it is opened as that of a rollout, and its guards are the same.

    Args:
        here: the model in this process; None where it is at a server.
    """
    from sweet.llm.connect import RoomyClient
    from sweet.llm.listening import listening
    from sweet.llm.remote import RemoteClient
    from sweet.llm.server import make_app
    from sweet.rollouts.assignments import plan_humans
    from sweet.rollouts.config import as_rollout
    from sweet.rollouts.gateway.app import HumanServer
    from sweet.rollouts.prepare import Dialogues
    from sweet.rollouts.sides import check_human

    async with AsyncExitStack() as stack:
        client = here or await RemoteClient.open(config.model or "", config.sim_url, "sim")
        stack.push_async_callback(client.aclose)
        sim = "scripted" if config.engine == "scripted" else client.model
        kind, played = task_kind(config.task), as_rollout(config, sim=sim, max_turns=MOST_REPLIES)
        kind = kind.with_specifications() if config.human == "spec" else kind
        tasks = _tasks(config) if config.tasks or kind.splits else []
        dialogues = Dialogues(played, kind, "", tasks, plan_humans(kind, played), None, None)
        check_human(dialogues.kind, dialogues.tasks, dialogues.config)
        roomy = RoomyClient(client, config.sim_effort)
        humans = await dialogues.open_simulated_humans(lambda _: nullcontext(roomy), stack, Path())
        stop = stack.enter_context(stop_signal())
        host, *names = config.host.split(",")
        app = make_app(HumanServer(client, humans, dialogues))
        ready(await stack.enter_async_context(listening(app, host, config.port, names)))
        await stop.wait()


async def _serve_vllm(config: ServeConfig, reporter: Reporter, ready: Callable[[str], None]) -> None:
    from sweet.humans.base import PICTURES
    from sweet.llm.vllm import VllmServer, VllmSettings

    assert config.model is not None
    settings = VllmSettings(
        config.model,
        config.host.partition(",")[0],
        config.port,
        config.tp,
        tuple(config.passthrough),
        PICTURES if task_kind(config.task).visual else 0,
    )
    with stop_signal() as stop:
        server = await VllmServer.start(settings, config.log or _new_log(), say=reporter.say)
        stopped = asyncio.create_task(stop.wait())

        async def serve() -> None:
            await server.wait_until_ready()
            ready(server.url)
            await server.ended()
            raise server.failure()

        try:
            await until(stopped, serve())
        finally:
            stopped.cancel()
            await server.stop()


def _new_log() -> Path:
    with tempfile.NamedTemporaryFile(prefix="sweet-vllm-", suffix=".log", delete=False) as log:
        return Path(log.name)
