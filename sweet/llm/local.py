"""Runs models that have no server address: selects the engine, and starts `vllm serve` if needed.

A stage creates one `LocalServing`, declares with `plan` which models it will open, and passes it to `open_client`. The
engine is vllm if one is installed that this machine can run, otherwise the embedded engine; the choice and its reason
are printed and recorded. There is one server per model, with one replica per GPU, on a free port of the loopback
interface. Several users of the same model share its server; different models share the GPUs' memory. A server is
stopped when its last client is closed (and by `sweet.supervisor` if this process is killed).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sweet.device import Device, allowed_threads
from sweet.errors import ServerError, SweetError, UsageError
from sweet.gpus import Gpu, free_gpus, listed_gpus, restricted_to
from sweet.hints import option
from sweet.llm.adapter import find_adapter
from sweet.llm.base import STARTUP_TIMEOUT, EngineChoice, Role
from sweet.llm.pretrained import is_here, model_folder
from sweet.llm.servers import URL_OPTIONS, urls_of
from sweet.llm.vllm import (
    MEMORY,
    MEMORY_SHARE,
    PARALLEL_OPTIONS,
    REPLICAS,
    VllmServer,
    VllmSettings,
    find_vllm,
    not_installed,
    option_value,
    product_of,
)
from sweet.tasks.packaged import PACKAGED
from sweet.units import format_bytes, format_duration

EXIT_TIMEOUT = 3.0
"""Seconds after which the exit of a server has been noticed (its workers are ended first)."""
SMALL_MODEL_BYTES = 64 << 20
"""Bytes of weights up to which a model in this process answers before vllm would have started."""

TINY_MODEL_BYTES = 16 << 20
"""Bytes of weights up to which a model gets several processes of one thread (`sweet.llm.engine_processes`)."""
MANY_REPLIES = 2000
"""Replies from which that takes less time than it takes to start the processes."""
MOST_PROCESSES = 4
"""More than this process could give work to."""

ENGINE_NAMES = {"vllm": "by vllm", "embedded": "in this process (embedded engine)", "tinker": "by a Tinker service"}
ROLE_NAMES: dict[Role, str] = {"agent": "The agent", "sim": "The simulated human", "judge": "The judge"}
RESERVED_OPTIONS = ("--host", "--port", "--api-key")
DEFAULT_OPTIONS = ("--enable-prefix-caching", "--generation-config", "vllm")
"""Not the defaults of all vllm versions: prompts of a dialogue share prefixes, and top_k or a repetition penalty in the
model's generation_config.json must not change the sampling distribution. Where replies end is read in any case."""
_SPARE_MEMORY_SHARE = 0.03
_LEAST_SHARE = 0.05
"""Share of a GPU's memory below which no model is served."""
_UNUSED_SHARE = 0.95


@dataclass(frozen=True)
class Choice:
    """How a model is run, and why."""

    why: str
    engine: Literal["embedded", "vllm", "tinker"] = "embedded"


@dataclass
class LocalServing:
    """Selects how models without an address are run, and manages the servers.

    Attributes:
        engine: the engine that the user requested.
        device: where the embedded engine runs; `cpu` is no vllm, unless it is requested.
        options: the user's options for vllm, passed unchanged.
        logs: prefix of the paths of vllm's logs; the role and `.log` are appended.
        startup_timeout: seconds that a server may take to become ready.
        say: prints a progress message. warn: prints a warning.
        record: filled with the engine that was used, why, and its version.
        other_users: number of other components in this process that need GPU memory.
        images: maximum number of images in a prompt, for each model that gets any.
        tools: the models that are offered tools.
        variables: of the environment of the servers.
        replies: that a model is expected to sample, about.
    """

    engine: EngineChoice = "auto"
    device: Device = "auto"
    options: Sequence[str] = ()
    logs: str = "vllm-"
    startup_timeout: float = STARTUP_TIMEOUT
    say: Callable[[str], None] = lambda _: None
    warn: Callable[[str], None] = lambda _: None
    record: dict[str, Any] = field(default_factory=dict)
    other_users: int = 0
    images: Mapping[str, int] = field(default_factory=dict)
    tools: Collection[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    replies: int = 0
    _planned: list[str] = field(default_factory=list, init=False)
    _running: dict[str, tuple[VllmServer, str | None]] = field(default_factory=dict, init=False)
    _users: Counter[str] = field(default_factory=Counter, init=False)
    _choices: dict[str, Choice] = field(default_factory=dict, init=False)
    _started: Counter[str] = field(default_factory=Counter, init=False)

    @cached_property
    def gpus(self) -> list[Gpu]:
        return free_gpus()

    def plan(self, models: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Declare the models, with their addresses, that will be opened; called before anything is started.

        Raises:
            UsageError: vllm is requested and cannot be used, or options for vllm were given and it will not be used.
        """
        alone = [model for model, urls in models if not urls_of(model, urls)]
        self._planned = [model for model in dict.fromkeys(alone) if self.choose(model).engine == "vllm"]
        if not self.options:
            return
        reserved = next((name for name in RESERVED_OPTIONS if option_value(self.options, name) is not None), None)
        if reserved:
            raise UsageError(
                f"The vllm that is started here has its {reserved} chosen for it.",
                where="what follows --",
                fix=f"omit {reserved}, or start the server yourself and give its address",
            )
        if not self._planned:
            reasons = dict.fromkeys(self.choose(model).why for model in alone)
            why = "; ".join(reasons) or "every model is served already"
            raise UsageError(
                f"Options for vllm were given, and no vllm is started: {why}.",
                where="what follows --",
                fix="omit the options after --",
            )

    def choose(self, model: str) -> Choice:
        """The engine that runs `model`, a model without an address.

        Raises:
            UsageError: vllm is requested and not installed, or the model is an adapter that cannot be used.
        """
        if model not in self._choices:
            self._choices[model] = self._choose(model)
        return self._choices[model]

    def _choose(self, model: str) -> Choice:
        if self.engine == "tinker":
            return Choice("as --local-engine says", "tinker")
        if model in PACKAGED:
            return Choice("the packaged agent needs no server")
        adapter = find_adapter(model)
        if self.engine == "embedded":
            return Choice("as --local-engine says")
        is_installed = find_vllm() is not None
        if self.engine == "vllm":
            if not is_installed:
                raise not_installed("local_engine")
            return Choice("as --local-engine says", "vllm")
        if not is_installed:
            return Choice("no vllm is installed")
        if self.device == "cpu":
            return Choice("as --device says")
        if not self.gpus:
            return Choice("there is no GPU that nvidia-smi and CUDA_VISIBLE_DEVICES show")
        weights = weights_of(adapter.base if adapter else model)
        if weights is not None and weights <= SMALL_MODEL_BYTES and model not in self.images:
            return Choice("it is so small that a server would take longer to start")
        return Choice(f"{len(self.gpus)} GPU(s)", "vllm")

    def processes(self, model: str) -> int:
        """Return in how many processes the embedded engine runs `model`; 1 is this one."""
        on_gpu = self.device == "cuda" or (self.device == "auto" and self.gpus)
        if self.replies < MANY_REPLIES or on_gpu or not hasattr(os, "fork"):
            return 1
        weights = weights_of(str(PACKAGED.get(model, model)))
        return min(allowed_threads(), MOST_PROCESSES) if weights is not None and weights <= TINY_MODEL_BYTES else 1

    def note_deviation(self, role: Role, sentence: str, lost: bool) -> None:
        """Tell the user, and record, that a server requires another form of the requests (`sweet.llm.refusals`).

        Args:
            lost: whether a setting of the requests does not reach the server.
        """
        self.record[f"{role}_requests"] = [*self.record.get(f"{role}_requests", ()), sentence]
        (self.warn if lost else self.say)(sentence)

    def announce(self, model: str, role: Role) -> Choice:
        """Print and record how `model` is run."""
        choice = self.choose(model)
        self.record |= {f"{role}_engine": choice.engine, f"{role}_engine_why": choice.why}
        engine_text = ENGINE_NAMES[choice.engine]
        if choice.engine == "embedded" and (processes := self.processes(model)) > 1:
            self.record[f"{role}_processes"] = processes
            engine_text = f"in {processes} processes (embedded engine)"
        self.say(f"{ROLE_NAMES[role]} {model} is run {engine_text}: {choice.why}.")
        return choice

    @asynccontextmanager
    async def serve(self, model: str, role: Role) -> AsyncIterator[str]:
        """The address of a vllm that serves `model`. It is stopped at the end unless another client still uses it.

        Raises:
            SweetError: it ended or is not ready in time, or it ended while it was used.
        """
        if model not in self._running:
            self._running[model] = await self._start(model, role)
        server, self.record[f"{role}_vllm_version"] = self._running[model]
        self._users[model] += 1
        try:
            yield server.url
        except ServerError as error:
            # If the server does not answer because it has ended, its log says more.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.ended(), EXIT_TIMEOUT)
                raise server.failure() from error
            raise
        finally:
            self._users[model] -= 1
            if not self._users[model]:
                del self._running[model]
                await server.stop()

    async def _start(self, model: str, role: Role) -> tuple[VllmServer, str | None]:
        """Start a server, and wait until it answers; return it with its version."""
        started = time.monotonic()
        self._started[role] += 1
        number = f"-{self._started[role]}" if self._started[role] > 1 else ""  # of several humans each has a log
        log = Path(f"{self.logs}{role}{number}.log")
        server = await VllmServer.start(self._settings(model), log, self._environment(), say=self.say)
        try:
            await server.wait_until_ready(self.startup_timeout, self.say)
            version = await server.version()
        except BaseException as error:
            await server.stop()
            if isinstance(error, SweetError) and not is_here(model):
                error.fix = f"{option(URL_OPTIONS[role], 'URL')}, if a server serves the model; or {error.fix or ''}"
            raise
        self.record[f"{role}_vllm_seconds"] = round(time.monotonic() - started, 1)
        self.say(f"vllm {version or ''} answers at {server.url} after {format_duration(time.monotonic() - started)}.")
        return server, version

    def _settings(self, model: str) -> VllmSettings:
        options = list(DEFAULT_OPTIONS)
        each = product_of(self.options, *PARALLEL_OPTIONS)
        replicas = len(self.gpus) // each
        if replicas > 1 and option_value(self.options, *REPLICAS) is None:
            options += ["--data-parallel-size", str(replicas)]
        if option_value(self.options, MEMORY) is None:
            options += self._memory(model, each)
        images, tools = self.images.get(model, 0), model in self.tools
        return VllmSettings(model, passthrough=(*options, *self.options), images=images, tools=tools)

    def _environment(self) -> dict[str, str]:
        """The environment of a vllm, which takes every GPU that it sees."""
        seen = restricted_to(self.gpus) if self.gpus and len(self.gpus) < len(listed_gpus()) else {}
        return server_environment() | dict(self.variables) | seen

    def _memory(self, model: str, each: int) -> list[str]:
        """Options that divide the GPUs' memory: by default vllm takes nearly all of it.

        Args:
            each: GPUs of a replica.

        Raises:
            UsageError: the weights do not fit the share that is left.
        """
        # Models planned before this one have their share already; this one and the later ones divide the rest.
        remaining = len(self._planned) - self._planned.index(model) if model in self._planned else 1
        gpus = [gpu for gpu in free_gpus() if gpu.free is not None]
        if not gpus:
            return []
        least = min(gpus, key=lambda gpu: gpu.free or 0.0)
        free = least.free or 0.0
        if remaining + self.other_users == 1 and free >= _UNUSED_SHARE:
            return []
        share = min(MEMORY_SHARE, (free - _SPARE_MEMORY_SHARE) / (remaining + self.other_users))
        weights, memory = (weights_of(model) or 0) / each, least.memory or 0
        if share < _LEAST_SHARE or share * memory < weights:
            needed = f" for {format_bytes(weights)} of weights" if weights else ""
            raise UsageError(
                f"{max(share, 0):.0%} of the memory of GPU {least.word} is free for {model}{needed}: other processes "
                "hold the rest, or share it.",
                where=f"{free:.0%} of GPU {least.word} is free",
                fix="end what holds it, or choose other GPUs by CUDA_VISIBLE_DEVICES",
            )
        return [MEMORY, f"{share:.2f}"]


def weights_of(model: str) -> int | None:
    """Bytes of the weights of a model; None if it is not on this machine."""
    folder = model_folder(model)
    if folder is None or not (folder / "config.json").is_file():
        return None
    files = [path for path in folder.iterdir() if path.suffix in (".safetensors", ".bin")]
    return sum(path.stat().st_size for path in files) if files else None


def server_environment() -> dict[str, str]:
    """The server's environment: without an API key, and without usage reports unless the user enables them."""
    environment = {name: value for name, value in os.environ.items() if name != "VLLM_API_KEY"}
    return {"VLLM_NO_USAGE_STATS": "1"} | environment
