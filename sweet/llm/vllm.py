"""Starts and stops `vllm serve`.

vLLM is used as a program, not as a library: it runs in its own process group, so that its workers can be ended with it,
under a supervisor that ends it if this process is killed (see `sweet.supervisor`), and writes to a log file. It is
ready when /health answers; if it dies before, its error is reported, found in its log (`sweet.llm.vllm_log`). While it
downloads the model its time limit does not run.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import os
import re
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sweet import supervisor
from sweet.errors import SweetError, UsageError
from sweet.gpus import HOLDS, Gpu, held_gpus, listed_gpus, restricted_to, visible_gpus
from sweet.hf import LOGIN, is_gated
from sweet.hints import option
from sweet.installation import install_command
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import model_folder, model_path
from sweet.llm.servers import bind, url_of
from sweet.llm.vllm_log import root_cause
from sweet.regular import open_descriptor
from sweet.units import count, format_bytes, format_duration

HEALTH_PAUSE = 0.25
PROGRESS_INTERVAL = 15.0
HEALTH_TIMEOUT = 5.0
TERM_TIMEOUT = 20.0
"""Seconds that vLLM has to end after SIGTERM before it is killed."""
LOADING_TERM_TIMEOUT = 2.0
"""The same before it is ready: it ignores signals while its engine loads, and has no work to finish."""
ORPHAN_TIMEOUT = 5.0
"""The same once this process is gone."""

LAST_LINES = 12
MOST_LINES = 5000
"""Lines among which an error is looked for."""
READ_LOG = "read the log; options after -- are passed to vllm, e.g. -- --max-model-len 4096"

MEMORY_SHARE = 0.9
"""Of the memory of each of its GPUs, what vllm takes by default; it refuses to start where less is free."""
MEMORY_TIMEOUT = 10.0
"""Seconds that processes which have just ended may still hold memory."""

PARALLEL_OPTIONS = (("--tensor-parallel-size", "-tp"), ("--pipeline-parallel-size", "-pp"))
REPLICAS = ("--data-parallel-size", "-dp")
MEMORY = "--gpu-memory-utilization"
_NODES = ("--data-parallel-size-local", "--nnodes", "--data-parallel-backend", "--distributed-executor-backend")
"""Options of a server that is distributed over machines, or whose GPUs are chosen by another program."""

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vllm accepts for --max-lora-rank."""

_GENERATION = "--generation-config"
_LIMIT = "--limit-mm-per-prompt"
"""Accepts JSON, or one kind of medium after a dot (--limit-mm-per-prompt.image 2)."""

_PARSER, _CALLS = "--tool-call-parser", "--enable-auto-tool-choice"
TOOL_PARSERS = (
    ("qwen3_coder", "<function=", r"qwen3-coder|qwen3\.[5-9]"),
    ("openai", r"<\|channel\|>commentary", "gpt-?oss"),
    ("mistral", r"\[TOOL_CALLS\]", "mi(?:s|x|nis)tral|magistral|devstral"),
    ("gemma4", r"<\|tool_call>", "gemma-?4"),
    ("glm45", "<arg_key>", r"glm-?4\.[5-9]"),
    ("hermes", "<tool_call>", "qwen|hermes"),
    ("llama3_json", r"<\|python_tag\|>", "llama-?3"),
)
"""Its parsers of calls of tools, each with a pattern of the chat templates that write such calls, and one of the names
of models, in lower case, where the template is not on this machine. The first that fits is taken."""

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class VllmSettings:
    """The settings of `vllm serve`.

    Attributes:
        name: the model, a packaged one, a directory, that of an adapter or a hub id; clients request it by this name.
        passthrough: further options, appended unchanged.
        images: maximum number of images in a prompt, 0 for a text model; some vllm versions allow only one by default.
        tools: whether calls of tools are to be read.
    """

    name: str
    host: str = "127.0.0.1"
    port: int = 0
    tensor_parallel: int = 1
    passthrough: tuple[str, ...] = ()
    images: int = 0
    tools: bool = False


def find_vllm() -> str | None:
    """The `vllm` program: next to this Python, otherwise on the PATH."""
    sibling = Path(sys.executable).parent / "vllm"
    return str(sibling) if os.access(sibling, os.X_OK) else shutil.which("vllm")


def not_installed(name: str = "engine") -> UsageError:
    """Return the error for a missing vllm, which the option `name` asked for."""
    return UsageError(
        "vllm is not installed.",
        where=option(name, "vllm"),
        fix=f"{install_command('gpu')}, or {option(name, 'embedded')}, which needs nothing more",
    )


def option_value(words: Sequence[str], *names: str) -> str | None:
    """The value of an option on vllm's command line, the last one, as vllm reads it; None if it is not given.

    Args:
        names: all names of the option. A switch has the next word, or nothing, as its value.
    """
    last = None
    for word, after in zip(words, [*words, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        if name in names:
            last = value if equals else after
    return last


def product_of(words: Sequence[str], *options: Sequence[str]) -> int:
    """Return the product of the values of options, each by all of its names, that are numbers."""
    values = (option_value(words, *names) or "" for names in options)
    return math.prod(max(int(value), 1) for value in values if value.isdecimal())


async def choose_gpus(words: Sequence[str], environment: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the variables that make the server use the first GPUs which are free, and say that it holds them.

    Args:
        words: the command line of the server. One that has a share of the memory by it (`MEMORY`) holds no GPU: others
            may have the rest.
        name: what messages call it.

    Raises:
        UsageError: there are too few.
    """
    if any(option_value(words, option) is not None for option in _NODES):
        return {}
    needed, ends = product_of(words, *PARALLEL_OPTIONS, REPLICAS), time.monotonic() + MEMORY_TIMEOUT
    shares = option_value(words, MEMORY) is not None
    while gpus := await asyncio.to_thread(visible_gpus, environment):
        usable = [gpu for gpu in gpus if shares or gpu.free is None or gpu.free >= MEMORY_SHARE]
        if len(usable) >= needed:
            chosen = usable[:needed]
            variables = {} if shares else {HOLDS: f"{os.getpid()}:{','.join(gpu.name for gpu in chosen)}"}
            return variables | (restricted_to(chosen, environment) if needed < len(listed_gpus(environment)) else {})
        if len(gpus) < needed or time.monotonic() > ends:
            break
        await asyncio.sleep(HEALTH_PAUSE)
    return _check_gpus(needed, gpus, environment, name)


def _check_gpus(needed: int, gpus: Sequence[Gpu], environment: Mapping[str, str], name: str) -> dict[str, str]:
    """Raise UsageError where there are GPUs, but too few that are free for a server; else return nothing to set."""
    holder, every = held_gpus(), listed_gpus(environment)
    if not every:
        return {}
    used = [f"GPU {gpu.word} has {gpu.free:.0%} of its memory free" for gpu in gpus if (gpu.free or 1) < MEMORY_SHARE]
    used += [f"GPU {gpu.word} is held by a server of process {holder[gpu.name]}" for gpu in every if gpu.name in holder]
    raise UsageError(
        f"{name} needs {count(needed, 'free GPU')} and there are {len(every)}"
        + (f": {'; '.join(used)}." if used else "."),
        where="nvidia-smi",
        fix=f"end what uses them, use fewer, or share their memory: {MEMORY} 0.4 among vllm's options (after --)",
    )


def tool_parser(model: str) -> str:
    """Return the parser of the calls of tools of a model, by its chat template or its name.

    Raises:
        UsageError: neither is known.
    """
    folder = model_folder(model)
    files = [folder / name for name in ("chat_template.jinja", "tokenizer_config.json")] if folder else []
    template = "".join(file.read_text("utf-8", "replace") for file in files if file.is_file())
    for parser, in_template, in_name in TOOL_PARSERS:
        if re.search(in_template, template) if template else re.search(in_name, model.lower()):
            return parser
    raise UsageError(
        f"The tasks offer tools, and how {model} writes calls of them is not known.",
        where=str(folder or model),
        fix=f"-- {_PARSER} NAME, by the documentation of vllm or of the model",
    )


def command(program: str, settings: VllmSettings) -> list[str]:
    """The command line of the server. Raises UsageError as `tool_parser` does."""
    adapter, name = find_adapter(settings.name), settings.name
    folder = Path(model_path(name)).expanduser()
    model = adapter.base if adapter else str(folder) if folder.is_dir() else name
    words = [program, "serve", model, "--host", settings.host, "--port", str(settings.port)]
    words += ["--tensor-parallel-size", str(settings.tensor_parallel)]
    if adapter is not None:
        words += ["--enable-lora", "--lora-modules", json.dumps({"name": name, "path": str(adapter.path.absolute())})]
        words += ["--max-lora-rank", str(next((rank for rank in RANKS if rank >= adapter.rank), adapter.rank))]
        if adapter.own_tokenizer:  # by default vllm uses the base's, even if the adapter has its own
            words += ["--tokenizer", str(adapter.path.absolute())]
        name = model
    if option_value(settings.passthrough, "--served-model-name") is None:
        words += ["--served-model-name", name]
    if settings.images and not any(word.replace("_", "-").startswith(_LIMIT) for word in settings.passthrough):
        words += [_LIMIT, json.dumps({"image": settings.images})]
    if settings.tools:
        chosen = option_value(settings.passthrough, _PARSER) is not None
        words += [_CALLS] if option_value(settings.passthrough, _CALLS) is None else []
        words += [] if chosen else [_PARSER, tool_parser(model)]
    words += settings.passthrough
    ends = None if adapter is None else adapter.path.absolute() / "generation_config.json"
    if ends is not None and ends.is_file() and option_value(words, _GENERATION) in (None, "vllm"):
        words += [_GENERATION, str(ends.parent)]  # only where replies end; those of the base may end elsewhere
    return words


class VllmServer:
    """A running `vllm serve`. Created by `start`; `stop` must be called.

    Attributes:
        process: that of its supervisor.
        log: the file that its output is appended to.
        name: what messages call it.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        url: str,
        log: Path,
        log_start: int,
        name: str,
        downloads: Path | None = None,
    ) -> None:
        self.process, self.url, self.log, self.name = process, url, log, name
        self._log_start, self._downloads = log_start, downloads
        self._answered = False
        self._end = asyncio.create_task(process.wait())

    @classmethod
    async def start(
        cls,
        settings: VllmSettings,
        log: Path,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        *,
        name: str = "vllm",
        say: Callable[[str], None],
    ) -> VllmServer:
        """Start the server without waiting until it is ready.

        Args:
            log: the file that its output is appended to.
            environment: that of this process if not given.
            pass_fds: descriptors that it inherits.
            name: what messages call it.
            say: is told where its output goes.

        Raises:
            UsageError: vllm is not installed, the port is taken, or too few GPUs are free.
        """
        program = find_vllm()
        if program is None:
            raise not_installed()
        # Otherwise another server that listens on the port would be mistaken for this one.
        with bind(settings.host, settings.port) as socket:
            port = socket.getsockname()[1]
        words = command(program, replace(settings, port=port))
        environment = dict(os.environ if environment is None else environment)
        environment |= await choose_gpus(words, environment, name)
        with os.fdopen(open_descriptor(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as output:
            log_start = os.fstat(output.fileno()).st_size
            process = await asyncio.create_subprocess_exec(
                *supervisor.supervised(words, ORPHAN_TIMEOUT),
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        say(f"{name} is starting; its output goes to {log}.")
        return cls(process, url_of(settings.host, port), log, log_start, name, download_folder(words))

    async def wait_until_ready(self, timeout: float = math.inf, say: Callable[[str], None] = lambda _: None) -> None:
        """Wait until the server is ready, and tell how far it is.

        Args:
            timeout: seconds that it may take, after the last time that its download has grown.

        Raises:
            SweetError: it ended before, or is not ready in time.
        """
        reported = began = grown = time.monotonic()
        size = before = downloaded_bytes(self._downloads)
        while not await asyncio.to_thread(is_healthy, self.url):
            await asyncio.wait({self._end}, timeout=HEALTH_PAUSE)
            if self._end.done():
                raise self.failure()
            now = time.monotonic()
            if (downloaded := downloaded_bytes(self._downloads)) != size:
                size, grown = downloaded, now
            if now - grown > timeout:
                raise self.failure(f"{self.name} did not answer within {timeout:g} seconds.")
            if now - reported > PROGRESS_INTERVAL:
                doing = (last_lines(self.log, 1, self._log_start) or ["…"])[0][:160]
                if size != before:
                    doing = f"{format_bytes(size)} of the model are downloaded"
                reported, before = now, size
                say(f"{self.name} is starting, {format_duration(now - began)}: {doing}")
        self._answered = True

    async def ended(self) -> None:
        """Wait until the process has ended; cancelling this does not end it."""
        await asyncio.wait({self._end})

    async def version(self) -> str | None:
        """The version that it reports; None if it does not."""
        output = await asyncio.to_thread(_get, self.url.removesuffix("/v1") + "/version")
        try:
            version = json.loads(output or b"").get("version")
        except (ValueError, AttributeError):
            return None
        return version[:64] if isinstance(version, str) else None

    def failure(self, what: str | None = None) -> SweetError:
        """The error for a server that ended unexpectedly, or for `what`, with the error in its log if it has ended, or
        the last lines."""
        ended, heading = self.process.returncode is not None, "Its error"
        output = root_cause(last_lines(self.log, MOST_LINES, self._log_start), ran=self._answered) if ended else []
        if not output:
            heading, output = "Its last lines", list(last_lines(self.log, start=self._log_start))
        return SweetError(
            (what or f"{self.name} ended with status {self.process.returncode}.")
            + ("\n".join([f" {heading}:", *output]) if output else ""),
            where=self.log,
            fix=LOGIN if is_gated("\n".join(output)) else READ_LOG,
        )

    async def stop(self) -> None:
        """End the server and all its workers."""
        try:
            if self.process.returncode is None:
                # The first process ends its workers; only those left after it are killed.
                with suppress(ProcessLookupError):
                    self.process.send_signal(signal.SIGTERM)
                timeout = TERM_TIMEOUT if self._answered else min(LOADING_TERM_TIMEOUT, TERM_TIMEOUT)
                await asyncio.wait({self._end}, timeout=timeout)
            if not self._end.done():
                with suppress(ProcessLookupError):
                    self.process.send_signal(signal.SIGINT)
                await asyncio.wait({self._end}, timeout=2 * supervisor.KILL_TIMEOUT)
        finally:  # a second Ctrl-C must not leave processes behind
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        await self._end


def last_lines(log: Path, count: int = LAST_LINES, start: int = 0) -> Sequence[str]:
    """The last lines of a log, without terminal escape sequences.

    Args:
        start: the byte from which it is read.
    """
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - max(1 << 16, count << 8)))
        text = file.read().decode(errors="replace")
    lines = [_ESCAPES.sub("", line).rstrip() for line in text.splitlines()]
    return [line for line in lines if line][-count:]


def download_folder(words: Sequence[str]) -> Path | None:
    """Where the server of a command line downloads its model to; None for a model in a directory."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    model = words[words.index("serve") + 1]
    if Path(model).is_dir():
        return None
    cache = option_value(words, "--download-dir") or constants.HF_HUB_CACHE
    return Path(cache) / repo_folder_name(repo_id=model, repo_type="model") / "blobs"


def downloaded_bytes(folder: Path | None) -> int:
    """The bytes in a folder of the hub's cache, those of unfinished files too."""
    size = 0
    with suppress(OSError):  # files are renamed meanwhile
        for file in folder.iterdir() if folder is not None else ():
            size += file.stat().st_blocks * 512
    return size


def is_healthy(url: str) -> bool:
    """Whether the server at an API's address answers /health with success within `HEALTH_TIMEOUT` seconds."""
    return _get(url.removesuffix("/v1") + "/health") is not None


def _get(address: str) -> bytes | None:
    """The first bytes of a response; None unless its status is 200."""
    # Without proxies: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=HEALTH_TIMEOUT) as answer:
            return bytes(answer.read(1 << 16)) if answer.status == 200 else None
    except (OSError, ValueError, http.client.HTTPException):
        return None
