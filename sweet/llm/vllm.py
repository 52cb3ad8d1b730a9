"""Starting, watching and stopping the installed `vllm serve`.

The server gets a process group of its own, because it starts workers that must go with it, and its output goes to a
file, of which the last lines are told when it dies before it is healthy.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from sweet.errors import Interrupted, ServerError, SweetError, UsageError
from sweet.llm.pretrained import model_path

START_TIMEOUT = 1800.0
"""Seconds a large model may take to load."""

STOP_TIMEOUT = 30.0
"""Seconds the server gets to stop by itself."""

_TAIL = 20


def find_vllm() -> str:
    """The `vllm` command: beside this Python, or on the PATH; UsageError with how to install it."""
    beside = Path(sys.executable).with_name("vllm")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("vllm")
    if found is None:
        raise UsageError(
            "vllm is not installed, or its command is not on the PATH.",
            where="--engine vllm",
            fix="pip install 'sweet-rl[gpu]' (or --engine embedded)",
        )
    return found


def serve_command(model: str, host: str, port: int, tensor_parallel: int, passthrough: Sequence[str]) -> list[str]:
    """The command line; what is passed through stands last, so that it wins."""
    path = model_path(model)
    command = [find_vllm(), "serve", path, "--host", host, "--port", str(port)]
    command += ["--tensor-parallel-size", str(tensor_parallel)]
    if path != model:
        command += ["--served-model-name", model]
    return [*command, *passthrough]


class VllmServer:
    """A `vllm serve` process, as a context manager that is entered when the server is healthy.

    Attributes:
        url: the base address that OpenAI clients take.

    Args:
        port: 0 takes a free one.
        log: the file its output is appended to.
        cancelled: asked while waiting; True gives up.

    Raises (on entering):
        UsageError: vllm is not installed.
        SweetError: it died while starting; the last lines of its output are told.
        ServerError: it was not healthy in time.
        Interrupted: `cancelled` said so.
    """

    def __init__(
        self,
        model: str,
        *,
        log: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        tensor_parallel: int = 1,
        passthrough: Sequence[str] = (),
        start_timeout: float = START_TIMEOUT,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.log = log
        port = port or _free_port(host)
        self.command = serve_command(model, host, port, tensor_parallel, passthrough)
        plain = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        self._root = f"http://[{plain}]:{port}" if ":" in plain else f"http://{plain}:{port}"
        self.url = f"{self._root}/v1"
        self._start_timeout, self._cancelled = start_timeout, cancelled
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VllmServer:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def died(self) -> SweetError:
        """The error to raise when it is not alive any more."""
        status = None if self._process is None else self._process.poll()
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL:]
        return SweetError(
            f"vllm stopped with status {status}. Its last lines:\n" + "\n".join(lines),
            where=self.log,
            fix="read the whole log, then change the options after --",
        )

    def stop(self) -> None:
        """Ask it to stop, and kill its process group when it does not or when workers stay behind."""
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _wait(self) -> None:
        # A proxy of the environment must not be asked for what is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        ends = time.monotonic() + self._start_timeout
        while True:
            if self._cancelled():
                raise Interrupted("Stopped while vllm was starting.", where=self.log)
            if not self.alive:
                raise self.died()
            with suppress(OSError, urllib.error.URLError), opener.open(f"{self._root}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
            if time.monotonic() > ends:
                raise ServerError(
                    f"vllm was not ready within {self._start_timeout:g} seconds.", where=self.log, fix="read the log"
                )
            time.sleep(0.2)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise UsageError(f"{host} cannot be listened on: {error}.", where="--host") from error
        port: int = probe.getsockname()[1]
        return port
