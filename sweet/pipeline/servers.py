"""The servers of `sweet train`: the simulated human, the agent and the judge, each by address or started here.

The loop works in phases, and each names the roles that it needs with their models: the evaluation before the first
round needs the human and the agent, the ranking the agent, a training none. At the start of a phase the GPUs are
divided anew (`sweet.pipeline.placement`). Servers that the phase needs on the same GPUs with the same model keep
running, the others are ended, and those that are missing are started at the same time. So the human is started once
for the evaluation and the dialogues after it, the agent is replaced when a new actor plays, and a training has all
GPUs.

A stage runs in the process of `sweet train`, on the first GPU, which is left for it if it computes (`computes`); an
online training on several devices needs as many GPUs. A vllm that a stage starts itself, for a model without a server,
gets the GPUs that no server uses (`sweet.llm.gpus.in_use`).
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sweet.errors import Interrupted, ServerError, SweetError, UsageError
from sweet.llm.base import Role
from sweet.llm.gpus import Gpu, in_use, restricted_to, visible_gpus
from sweet.llm.local import DEFAULT_OPTIONS, PROGRESS_INTERVAL, server_environment
from sweet.llm.scripted import SCRIPTED
from sweet.pipeline.placement import Placement, Request, place
from sweet.pipeline.server_process import POLL_INTERVAL, Command, ServerProcess, server_lock
from sweet.pipeline.tables import ServerTable
from sweet.runs.run import Run
from sweet.runs.store import Store
from sweet.stages.base import Reporter
from sweet.units import format_duration

ROLES: tuple[Role, ...] = ("sim", "judge", "agent")
"""In the order of placement: the human's model is the same in all phases."""
NAMES: dict[Role, str] = {"sim": "the simulated human", "judge": "the judge", "agent": "the agent"}

EXIT_TIMEOUT = 3.0
"""Seconds in which the end of a server is noticed after a stage could not reach it."""


class Servers:
    """The servers of a run. A context manager, which ends them all.

    Args:
        tables: the servers by role; a role without a table has none.
        log: the log of the attempt: those of the servers are next to it.
        task, tasks: of the rollouts; the scripted human needs them, and a server that is shown pages.
    """

    def __init__(
        self,
        run: Run,
        tables: Mapping[Role, ServerTable],
        log: Path,
        reporter: Reporter,
        *,
        task: str = "code",
        tasks: str | None = None,
    ) -> None:
        self.run, self.tables, self.log, self.reporter = run, dict(tables), log, reporter
        self.task, self.tasks = task, tasks
        self._environment = server_environment()
        self._running: dict[Role, ServerProcess] = {}
        self._open = ExitStack()
        self._lock: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs that this process may use."""
        return visible_gpus(self._environment)

    def place(self, models: Mapping[Role, str], computes: int = 0) -> Placement[Role, Gpu]:
        """Divide the GPUs for a phase; arguments and errors are those of `running`."""
        started = [role for role in ROLES if role in models and role in self.tables and not self.tables[role].url]
        requests = [
            Request(role, self._gpus_of(role), None if table.replicas == "fill" else table.replicas)
            for role in started
            for table in [self.tables[role]]
        ]
        gpus = self.gpus if started else []
        return place(gpus, requests, computes if gpus else 0)

    @contextmanager
    def running(
        self, models: Mapping[Role, str], *, split: str = "train", computes: int = 0
    ) -> Iterator[dict[Role, list[str]]]:
        """Run the servers of a phase, and yield their addresses; a role without a table has none.

        Args:
            models: the roles that the phase needs, and the model of each as the stages name it.
            split: that the scripted human must know the tasks of.
            computes: number of GPUs that the stage computes on, which are left for it.

        Raises:
            UsageError: there are too few GPUs, or a model cannot be served by the engine.
            SweetError: a server does not start.
            ServerError: a server ended, or did not answer, so that the stage failed.
        """
        placement = self.place(models, computes)
        wanted = {role: self._command(role, models[role], split, gpus) for role, gpus in placement.servers.items()}
        _release_memory()
        self._stop({role for role, server in self._running.items() if wanted.get(role) != server.command})
        self._stop({role for role, server in self._running.items() if not self._is_well(server)})
        try:
            self._start({role: command for role, command in wanted.items() if role not in self._running})
        except BaseException:
            self.close()
            raise
        urls = {role: list(self.tables[role].url) for role in models if role in self.tables}
        urls |= {role: [str(self._running[role].url)] for role in wanted}
        with in_use(gpu for gpus in placement.servers.values() for gpu in gpus):
            try:
                yield urls
            except SweetError as error:
                if not isinstance(error, Interrupted | UsageError):
                    self._raise_if_ended(error)
                raise

    def close(self) -> None:
        """End all servers."""
        try:
            self._stop(set(self._running))
        finally:
            self._lock = None
            self._open.close()

    def _gpus_of(self, role: Role) -> int:
        table = self.tables[role]
        if table.gpus is not None or table.engine == SCRIPTED:
            return table.gpus or 0
        return 1 if self.gpus else 0

    def _command(self, role: Role, model: str, split: str, gpus: list[Gpu]) -> Command:
        table = self.tables[role]
        words = ["--engine", table.engine, "--port", str(table.port)]
        words += ["--task", self.task] if role == "sim" else []
        if table.engine == SCRIPTED:
            _check_scripted(role, model)
            words += ["--split", split, *(["--tasks", self.tasks] if self.tasks else [])]
        else:
            words += ["--model", model]
        if table.engine == "vllm":
            each = self._gpus_of(role)
            replicas = len(gpus) // each if each else 1
            options = ["--data-parallel-size", str(replicas)] if replicas > 1 else []
            words += ["--log", str(self._log_of(role).absolute()), "--tp", str(max(1, each))]
            words += ["--", *DEFAULT_OPTIONS, *options, *table.options]
        variables = restricted_to(gpus, self._environment) if self.gpus else {}
        return Command(tuple(words), tuple(variables.items()))

    def _log_of(self, role: Role) -> Path:
        return self.log.with_suffix(f".server-{role}.log")

    def _is_well(self, server: ServerProcess) -> bool:
        """Whether a server that was started for an earlier phase can be used again."""
        well = server.is_well()
        if not well:
            self.reporter.warn(f"The server of {server.name} at {server.url} does not answer; it is started again.")
        return well

    def _start(self, commands: Mapping[Role, Command]) -> None:
        """Start servers, and wait until each answers."""
        if commands and self._lock is None:
            self._lock = self._open.enter_context(server_lock(Store(self.run.path.absolute()).lock_path("servers")))
        for role, command in commands.items():
            assert self._lock is not None
            server = ServerProcess(NAMES[role], command, self._log_of(role), self._environment, self._lock)
            self._running[role] = server
            self.reporter.say(f"The server of {server.name} is starting; its output goes to {server.log}.")
        waiting = {role: self._running[role] for role in commands}
        said = time.monotonic()
        while waiting:
            for role, server in list(waiting.items()):
                if server.answers():
                    self.reporter.say(
                        f"The server of {server.name} answers at {server.url} after {format_duration(server.seconds)}."
                    )
                    del waiting[role]
                elif server.seconds > (timeout := self.tables[role].startup_timeout):
                    raise server.failure(SweetError, f"did not answer within {timeout:g} seconds")
            if time.monotonic() - said > PROGRESS_INTERVAL:
                said = time.monotonic()
                for server in waiting.values():
                    line = "".join(server.last_lines(1))[:160]
                    self.reporter.say(
                        f"The server of {server.name} is starting, {format_duration(server.seconds)}: {line or '…'}"
                    )
            if waiting:
                time.sleep(POLL_INTERVAL)

    def _stop(self, roles: set[Role]) -> None:
        """End servers, all at the same time."""
        for role in roles:
            self._running[role].terminate()
        for role in roles:
            self._running.pop(role).stop()

    def _raise_if_ended(self, error: SweetError) -> None:
        """If a server has ended or does not answer, raise that as the cause of a stage's error."""
        ends = time.monotonic() + EXIT_TIMEOUT
        while isinstance(error, ServerError) and time.monotonic() < ends and self._all_run():
            time.sleep(POLL_INTERVAL)
        for server in self._running.values():
            if server.process.poll() is not None:
                raise server.failure(ServerError, f"ended with status {server.process.returncode}") from error
            if isinstance(error, ServerError) and not server.is_well():
                raise server.failure(ServerError, f"does not answer at {server.url}") from error

    def _all_run(self) -> bool:
        return all(server.process.poll() is None for server in self._running.values())


def _check_scripted(role: Role, model: str) -> None:
    from sweet.humans.scripted import SERVED_NAME

    if role != "sim":
        raise UsageError(
            "Only the simulated human is scripted.",
            where=f"[servers.{role}] engine",
            fix='engine = "vllm", or embedded',
        )
    if model != SERVED_NAME:
        raise UsageError(
            f"The scripted human is served under the name {SERVED_NAME}, and the human of the recipe is {model}.",
            where="[servers.sim] engine",
            fix=f'sim = "{SERVED_NAME}"; or without [servers.sim], sim = "{SCRIPTED}"',
        )


def _release_memory() -> None:
    """Free the GPU memory that torch keeps in this process for later tensors: servers and ranks need it."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
