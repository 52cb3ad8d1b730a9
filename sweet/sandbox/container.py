"""The tier `docker`: a zygote in a container of the local engine, which communicates over the container's streams.

The container has no network, a read-only root, no capabilities, no shared memory, limits on memory and processes, and
runs as the user nobody under the engine's seccomp profile, in addition to the restrictions of the zygote itself.
Nothing of this machine is mounted: the zygote's source is sent over stdin. The image must exist; none is ever pulled.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from sweet.sandbox.program import Limits

IMAGE_VARIABLE = "SWEET_SANDBOX_IMAGE"
"""Environment variable that names another image; it needs only `python3` of 3.11 or newer."""

ENVIRONMENT = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1", "LD_BIND_NOW": "1"}
"""The environment of a zygote of any tier: references and answers iterate over their sets in the same order, a thread
needs address space only for its stack, and symbols are bound before the fork instead of in every child."""

_HERE = Path(__file__).parent
_FRAME = struct.Struct("!cI")
_ENGINE_SECONDS = 20.0
_BESIDE_BYTES = 128 * 2**20
"""Memory of the container beyond one answer's: the relay and the zygote."""
_BESIDE_TASKS = 8
_NOBODY = "65534:65534"
_BOOT = """import os
size, source = int(b"".join(os.read(0, 1) for _ in range(8)), 16), b""
while len(source) < size:
    source += os.read(0, size - len(source))
exec(compile(source, "<relay>", "exec"))"""


def image() -> str:
    """Return the image of the containers: python:X.Y-slim of the running interpreter, unless the variable is set."""
    return os.environ.get(IMAGE_VARIABLE) or f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"


def engine_fault() -> tuple[str, str] | None:
    """Return why no container can be started on this machine, and the fix; None if no reason is known."""
    docker = shutil.which("docker")
    if docker is None:
        return "docker is not installed", "install Docker (https://docs.docker.com/engine/install)"
    try:
        inspection = subprocess.run(
            [docker, "image", "inspect", "--format", "{{.Os}}", image()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ENGINE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"docker does not answer: {error}", "start the Docker engine (systemctl start docker)"
    if inspection.returncode == 0:
        return None
    reason = (inspection.stderr.strip().splitlines() or ["docker image inspect fails"])[-1]
    if "no such image" in reason.lower():
        return f"there is no image {image()} here, and none is pulled unasked", f"docker pull {image()}"
    return reason, "start the Docker engine (systemctl start docker), and be allowed to use it (group docker)"


class Container:
    """A running container, and the thread that forwards between its streams and a zygote's socket."""

    def __init__(self, limits: Limits, orders: socket.socket) -> None:
        """Start the container.

        Args:
            orders: the end of the socket that a zygote would have; it is duplicated.

        Raises:
            OSError: docker cannot be run.
        """
        self.name = f"sweet-{secrets.token_hex(8)}"
        self._docker = shutil.which("docker")
        if self._docker is None:
            raise FileNotFoundError("docker is not installed")
        self.process = subprocess.Popen(
            [self._docker, *run_arguments(self.name, limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        carrier = threading.Thread(target=self._carry, args=(orders.dup(),), name="sandbox-docker", daemon=True)
        carrier.start()

    def kill(self) -> None:
        """Kill the container if closing its socket has not ended it."""
        if self.process.returncode is None and self._docker is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    [self._docker, "kill", self.name],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_ENGINE_SECONDS,
                    check=False,
                )

    def _carry(self, orders: socket.socket) -> None:
        """Forward in both directions until either side closes."""
        into, out = self.process.stdin, self.process.stdout
        assert into is not None
        assert out is not None
        with contextlib.suppress(OSError, EOFError), orders, into, out:
            _send_modules(into)
            setup = orders.recv(4, socket.MSG_WAITALL)
            if len(setup) == 4:
                setup += orders.recv(struct.unpack("!I", setup)[0], socket.MSG_WAITALL)
            _send(into, b"S", setup)
            report, outwards = -1, out.fileno()
            try:
                while True:
                    ready, _, _ = select.select([orders.fileno(), outwards], [], [])
                    report = (
                        _forward_output(out, orders, report)
                        if outwards in ready
                        else _forward_order(into, orders, report)
                    )
            finally:
                _close(report)


def run_arguments(name: str, limits: Limits) -> list[str]:
    """Return the arguments of docker that run one jail."""
    memory = str(limits.memory_bytes + _BESIDE_BYTES)
    return [
        *("run", "--rm", "--interactive", "--name", name, "--pull", "never"),
        *("--network", "none", "--ipc", "none", "--read-only", "--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges", "--user", _NOBODY, "--workdir", "/"),
        *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(limits.tasks + _BESIDE_TASKS)),
        *("--ulimit", "core=0", "--log-driver", "none"),
        *(part for name, value in ENVIRONMENT.items() for part in ("--env", f"{name}={value}")),
        *("--entrypoint", "python3", image(), "-S", "-s", "-B", "-c", _BOOT),
    ]


def _send_modules(into: IO[bytes]) -> None:
    relay = (_HERE / "relay.py").read_bytes()
    into.write(b"%08x" % len(relay) + relay)
    modules = {name: (_HERE / f"{name}.py").read_text(encoding="utf-8") for name in ("determinism", "child", "zygote")}
    _send(into, b"M", json.dumps(modules).encode())


def _send(into: IO[bytes], kind: bytes, data: bytes) -> None:
    into.write(_FRAME.pack(kind, len(data)) + data)
    into.flush()


def _forward_order(into: IO[bytes], orders: socket.socket, report: int) -> int:
    """Forward one order to the container; return the descriptor for results from now on, or -1."""
    message, descriptors, _, _ = socket.recv_fds(orders, 1, 3)
    _close(report)
    if message == b"R":
        os.close(descriptors[2])  # the container has a null device of its own
        with os.fdopen(descriptors[0], "rb") as program:
            _send(into, b"R", program.read())
        return descriptors[1]
    if not message:
        raise EOFError
    _send(into, b"K", message)
    return -1


def _forward_output(out: IO[bytes], orders: socket.socket, report: int) -> int:
    """Forward one frame from the container; return the descriptor for results from now on, or -1."""
    kind, size = _FRAME.unpack(_read(out, _FRAME.size))
    data = _read(out, size)
    if kind == b"o":
        orders.sendall(data)
        return report
    if kind == b"d":
        try:
            while data:
                data = data[os.write(report, data) :]
        except OSError:  # the reader has closed the pipe
            _close(report)
            return -1
        return report
    _close(report)
    return -1


def _read(out: IO[bytes], size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(out.fileno(), size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
