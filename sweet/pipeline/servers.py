"""The servers of `sweet train`: the simulated human, the agent and the judge.

The loop works in phases, and each names the roles that it needs with their models: the evaluation before the first
round needs the human and the agent, the ranking the agent, a training none. At the start of a phase the GPUs are
divided anew (`place`). Servers that the phase needs on the same GPUs with the same model keep
running, the others are ended, and those that are missing are started at the same time. So the human is started once
for the evaluation and the dialogues after it, the agent is replaced when a new actor plays, and a training has all
GPUs.

The stage gets the first GPUs, the servers those from the end: a stage that computes in the process of `sweet train`
uses the first GPU, and holds some of its memory afterwards; an online training on several devices needs as many GPUs.
The servers are placed in the order of `ROLES`, so the human's is on the same GPUs in every phase and can keep running.
A vllm that a stage starts itself, for a model without a server, gets the GPUs that no server uses (`in_use`).

The servers of a run hold a lock, which the system releases when the last of them has ended: a `sweet train` that was
killed and is started again waits until the GPUs are free.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from sweet.errors import Interrupted, ServerError, SweetError, UsageError
from sweet.gathering import run_all
from sweet.gpus import Gpu, in_use, restricted_to, visible_gpus
from sweet.hf import LOGIN
from sweet.llm.base import Role
from sweet.llm.local import DEFAULT_OPTIONS, EXIT_TIMEOUT, ROLE_NAMES, server_environment
from sweet.llm.vllm import TERM_TIMEOUT, VllmServer, VllmSettings, is_healthy
from sweet.pipeline.tables import ServerTable
from sweet.regular import make_folder, open_descriptor
from sweet.runs.run import Run
from sweet.runs.store import Store
from sweet.stages.base import Reporter
from sweet.tasks.registry import task_kind
from sweet.units import format_duration

G = TypeVar("G")

ROLES: tuple[Role, ...] = ("sim", "judge", "agent")
"""In the order of placement: the human's model is the same in all phases."""

LOCK_TIMEOUT = TERM_TIMEOUT + 15
"""Seconds to wait for the servers of an earlier `sweet train`."""
POLL_INTERVAL = 0.05
READ_LOG = "read the log; the same command continues"

_Started = tuple[VllmSettings, dict[str, str]]
"""What a server is started with: its settings, and the variables of its environment that differ from this process's.
Where they are the same, a server can be used for another phase."""


class Servers:
    """The servers of a run. A context manager, which ends them all.

    Args:
        tables: the servers by role; a role without a table has none.
        log: the log of the attempt: those of the servers are next to it.
        task: of the rollouts; a server that is shown pages needs it.
    """

    def __init__(
        self,
        run: Run,
        tables: Mapping[Role, ServerTable],
        log: Path,
        reporter: Reporter,
        *,
        task: str = "code",
    ) -> None:
        self.run, self.tables, self.log, self.reporter, self.task = run, dict(tables), log, reporter, task
        self._environment = server_environment()
        self._running: dict[Role, VllmServer] = {}
        self._started: dict[Role, _Started] = {}
        self._runner = asyncio.Runner()  # of the event loop that watches their processes
        self._open = ExitStack()
        self._lock: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs that this process may use."""
        return visible_gpus(self._environment)

    def place(self, models: Mapping[Role, str], computes: int = 0) -> dict[Role, list[Gpu]]:
        """Divide the GPUs for a phase; arguments and errors are those of `running`."""
        started = {role: self.tables[role] for role in ROLES if role in models and role in self.tables}
        gpus = self.gpus if started else []
        return place(gpus, started, computes if gpus else 0)

    @contextmanager
    def running(self, models: Mapping[Role, str], *, computes: int = 0) -> Iterator[dict[Role, list[str]]]:
        """Run the servers of a phase, and yield their addresses; a role without a table has none.

        Args:
            models: the roles that the phase needs, and the model of each as the stages name it.
            computes: number of GPUs that the stage computes on, which are left for it.

        Raises:
            UsageError: there are too few GPUs, or a model cannot be served by the engine.
            SweetError: a server does not start.
            ServerError: a server ended, or did not answer, so that the stage failed.
        """
        placement = self.place(models, computes)
        required = {role: self._wanted(role, models[role], gpus) for role, gpus in placement.items()}
        _release_memory()
        self._stop({role for role in self._running if required.get(role) != self._started[role]})
        for role, server in list(self._running.items()):
            if not is_healthy(server.url):
                self.reporter.warn(f"{server.name} at {server.url} does not answer; it is started again.")
                self._stop([role])
        try:
            self._runner.run(self._start({role: spec for role, spec in required.items() if role not in self._running}))
        except BaseException:
            self._stop(self._running)
            raise
        urls = {role: [self._running[role].url] for role in required}
        with in_use(gpu for gpus in placement.values() for gpu in gpus):
            try:
                yield urls
            except SweetError as error:
                if not isinstance(error, Interrupted | UsageError):
                    self._raise_if_ended(error)
                raise

    def close(self) -> None:
        """End all servers."""
        try:
            self._stop(self._running)
        finally:
            self._runner.close()
            self._lock = None
            self._open.close()

    def _wanted(self, role: Role, model: str, gpus: list[Gpu]) -> _Started:
        from sweet.humans.base import PICTURES

        table = self.tables[role]
        each = table.gpus_each(self.gpus)
        replicas = len(gpus) // each if each else 1
        options = ["--data-parallel-size", str(replicas)] if replicas > 1 else []
        settings = VllmSettings(
            model,
            port=table.port,
            tensor_parallel=max(1, each),
            passthrough=(*DEFAULT_OPTIONS, *options, *table.options),
            images=PICTURES if role == "sim" and task_kind(self.task).visual else 0,
            tools=role == "agent" and task_kind(self.task).offers_tools,
        )
        return settings, restricted_to(gpus, self._environment) if self.gpus else {}

    async def _start(self, servers: Mapping[Role, _Started]) -> None:
        """Start servers, and wait until each answers."""
        for role, (settings, variables) in servers.items():
            if self._lock is None:
                path = Store(self.run.path.absolute()).lock_path("servers")
                self._lock = self._open.enter_context(server_lock(path))
            log = self.log.with_suffix(f".server-{role}.log")
            make_folder(log.parent)
            environment, name = self._environment | variables, f"The server of {ROLE_NAMES[role].lower()}"
            self._running[role] = await VllmServer.start(
                settings, log, environment, [self._lock], name=name, say=self.reporter.say
            )
            self._started[role] = settings, variables
        await run_all(map(self._wait, servers))

    async def _wait(self, role: Role) -> None:
        began, server = time.monotonic(), self._running[role]
        try:
            await server.wait_until_ready(self.tables[role].startup_timeout, self.reporter.say)
        except SweetError as error:
            if error.fix != LOGIN:
                error.fix = READ_LOG
            raise
        self.reporter.say(f"{server.name} answers at {server.url} after {format_duration(time.monotonic() - began)}.")

    def _stop(self, roles: Iterable[Role]) -> None:
        """End servers, all at the same time."""
        servers = [self._running.pop(role) for role in list(roles)]

        async def stop() -> None:
            await asyncio.gather(*(server.stop() for server in servers))

        if servers:
            self._runner.run(stop())

    def _raise_if_ended(self, error: SweetError) -> None:
        """If a server has ended or does not answer, raise that as the cause of a stage's error."""
        no_answer = isinstance(error, ServerError)

        async def one_ended() -> None:
            waiting = [asyncio.create_task(server.ended()) for server in self._running.values()]
            await asyncio.wait(waiting, timeout=EXIT_TIMEOUT if no_answer else 0.1, return_when="FIRST_COMPLETED")

        if self._running:
            self._runner.run(one_ended())
        for server in self._running.values():
            status = server.process.returncode
            if status is not None or (no_answer and not is_healthy(server.url)):
                what = f"does not answer at {server.url}" if status is None else f"ended with status {status}"
                failure = server.failure(f"{server.name} {what}.")
                raise ServerError(failure.what, where=failure.where, fix=READ_LOG) from error


def place(gpus: Sequence[G], tables: Mapping[Role, ServerTable], stage: int = 0) -> dict[Role, list[G]]:
    """Divide GPUs.

    Args:
        gpus: all that may be used.
        tables: of the servers, in the order of placement.
        stage: GPUs that the stage needs at least.

    Returns:
        For each role the GPUs of its server, those of all replicas; the first ones are left for the stage.

    Raises:
        UsageError: there are too few; says how many of what are needed.
    """
    each = {role: table.gpus_each(gpus) for role, table in tables.items()}
    counts = {role: 1 if table.replicas == "fill" else table.replicas for role, table in tables.items()}
    left = len(gpus) - stage - sum(each[role] * count for role, count in counts.items())
    if left < 0:
        raise _too_few(len(gpus), tables, each, counts, stage)
    growing = [role for role, table in tables.items() if table.replicas == "fill" and each[role]]
    while growing:  # one more replica of each in turn, so that none takes all
        growing = [role for role in growing if each[role] <= left]
        for role in growing:
            if each[role] <= left:
                counts[role] += 1
                left -= each[role]
    servers: dict[Role, list[G]] = {}
    end = len(gpus)
    for role, count in counts.items():
        start = end - each[role] * count
        servers[role] = list(gpus[start:end])
        end = start
    return servers


def _too_few(
    available: int, tables: Mapping[Role, ServerTable], each: Mapping[Role, int], counts: Mapping[Role, int], stage: int
) -> UsageError:
    needing = [role for role in tables if each[role]]
    least = {role: "at least 1" if tables[role].replicas == "fill" else counts[role] for role in needing}
    parts = [f"{least[role]} × {each[role]} for {role}" for role in needing]
    parts += [f"{stage} for the stage itself"] if stage else []
    needed = stage + sum(each[role] * counts[role] for role in needing)
    return UsageError(
        f"{needed} GPUs are needed at the same time ({', '.join(parts)}), and there are {available}.",
        where=", ".join(f"[servers.{role}]" for role in needing),
        fix="fewer gpus or replicas, or a server elsewhere (sim-url); nvidia-smi and CUDA_VISIBLE_DEVICES say which "
        "GPUs there are",
    )


def _release_memory() -> None:
    """Free the GPU memory that torch keeps in this process for later tensors: servers and ranks need it."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


@contextmanager
def server_lock(path: Path) -> Iterator[int]:
    """Hold the lock of a run's servers, and yield its descriptor, which the servers inherit.

    Raises:
        UsageError: servers of another `sweet train` of this run do not end.
    """
    import fcntl

    descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT)
    try:
        ends = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > ends:
                    raise UsageError(
                        f"Servers of another sweet train have not ended within {LOCK_TIMEOUT:.0f} seconds.",
                        where=path,
                        fix="wait for that sweet train, or end it",
                    ) from None
                time.sleep(POLL_INTERVAL)
        yield descriptor
    finally:
        os.close(descriptor)
