"""One jail: a zygote started under a tier, controlled over one socket, and killed and replaced as a whole.

`bwrap`     new namespaces for everything (no network, separate processes), a read-only root with only the interpreter
            and the C libraries, no capabilities; with libseccomp also the seccomp filter. Without the filter it is used
            only if the kernel limits the jail's processes.
`landlock`  no new namespaces, so it works where those are refused: Landlock hides every file but the interpreter and
            the C libraries, and the seccomp filter forbids everything else: processes, signals, sockets, writing. The
            existence of a file remains visible (stat).
`docker`    a container of the local engine (sweet.sandbox.container).
`unsafe`    only limits on time, memory and output.

The zygote gets nothing on its command line or in its environment; its configuration is sent over the socket. A jail can
also hold a service instead of answers: a program of this package that reads hostile texts and executes none.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import json
import marshal
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.errors import SweetError
from sweet.sandbox.container import ENVIRONMENT, Container
from sweet.sandbox.program import MARSHAL, MODULES, Limits, Tier, Warmth
from sweet.sandbox.syscalls import FilterError, lasting_filter, seccomp_filters

_HERE = Path(__file__).parent
_SCRIPTS = ("zygote.py", "child.py", "determinism.py")
_INSIDE = "/sweet"
_STATUS = struct.Struct("!i")
_START_SECONDS = 20.0
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_FOLDERS_OF_LIBRARIES = re.compile(r".+-linux-.+|locale|ossl-modules")
"""Folders in these that hold C libraries or their data. The others hold installed programs and packages."""
_MOST_MOUNTS = 64
"""Libraries of one folder that are mounted one by one; of a folder with more, the other folders in it are hidden."""
_ASK_PERSONALITY, _ADDR_NO_RANDOMIZE = 0xFFFFFFFF, 0x0040000
_ZONES = "/usr/share/zoneinfo"


class JailError(SweetError):
    """The jail could not be started, or does not answer."""


@dataclass(frozen=True)
class Interpreter:
    """The files of the running interpreter itself (not those of a virtual environment)."""

    program: Path
    stdlib: Path
    shared: Path | None

    @classmethod
    def current(cls) -> Interpreter:
        program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
        stdlib = Path(os.__file__).resolve().parent
        folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
        shared = Path(folder) / name if folder and name and str(name).endswith((".so", ".so.1.0", ".dylib")) else None
        return cls(program, stdlib, shared if shared is not None and shared.is_file() else None)


class Jail:
    """A running zygote. Not thread-safe: one thread uses it at a time."""

    def __init__(self, tier: Tier, limits: Limits, *, warmth: Warmth = "bare", service: str = "") -> None:
        """Start the jail.

        Args:
            limits: the limits of every answer.
            warmth: the modules that its children find imported.
            service: source of a program, which may import this package and defines `serve`: it serves the socket in the
                place of a zygote.

        Raises:
            JailError: it cannot be started on this machine; says why.
        """
        self.tier, self.limits = tier, limits
        self._warmth, self._service = warmth, service
        self._packages = _numpy() if warmth == "wide" else []
        self._inner_pid: int | None = None
        self._container: Container | None = None
        ours, theirs = socket.socketpair()
        self._orders = self.socket = ours
        ours.settimeout(_START_SECONDS)
        try:
            with theirs:
                self._process = self._start(theirs)
        except OSError as error:
            ours.close()
            raise JailError(f"A {tier} jail cannot be started: {error}.") from error
        try:
            self._configure()
        except (OSError, FilterError) as error:
            reason = self._last_error_line() or str(error)
            self.kill()
            raise JailError(f"A {tier} jail cannot be started: {reason}.") from error

    def fork(self, program: int, report: int) -> None:
        """Fork a child that reads the file descriptor `program` and writes `report`; both stay open in this process.
        It gets the null device, opened anew, as its standard streams.

        Raises:
            JailError: the zygote has ended.
        """
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            socket.send_fds(self._orders, [b"R"], [program, report, nothing])
        except OSError as error:
            raise JailError("The sandbox's zygote is gone.") from error
        finally:
            os.close(nothing)

    def reap(self, timeout: float = 5.0) -> int:
        """Kill the last child and its descendants, if it was not released, and return its wait status, else 0.

        Raises:
            JailError: the zygote has ended, or does not answer within `timeout` seconds.
        """
        try:
            self._orders.settimeout(timeout)
            self._orders.sendall(b"W")
            data = self._orders.recv(_STATUS.size, socket.MSG_WAITALL)
        except OSError as error:
            raise JailError("The sandbox's zygote does not answer.") from error
        if len(data) != _STATUS.size:
            raise JailError("The sandbox's zygote is gone.")
        return int(_STATUS.unpack(data)[0])

    def release(self) -> None:
        """Order the last child and its descendants killed, without waiting: the zygote does it before the next fork.

        Raises:
            JailError: the zygote has ended.
        """
        try:
            self._orders.sendall(b"K")
        except OSError as error:
            raise JailError("The sandbox's zygote is gone.") from error

    @property
    def same_python(self) -> bool:
        """Whether the jail runs the same interpreter as this process."""
        return self._container is None

    @property
    def root(self) -> int | None:
        """The zygote's process id as seen from this process; None if it cannot be seen (docker)."""
        return None if self._container else self._inner_pid or self._process.pid

    def ending(self, timeout: float) -> int:
        """Return the status with which a service has ended, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: it has not ended within `timeout` seconds.
        """
        status = self._process.wait(timeout)
        return 128 - status if self.tier == "bwrap" and status > 128 else status

    def forget(self) -> None:
        """Leave the jail to the process that this one was forked from."""
        self._orders.close()
        self._process.returncode = 0

    def kill(self) -> None:
        """Kill the zygote and everything in its jail."""
        self._orders.close()  # a working zygote then reaps its child and ends
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0 if self._container else 0.5)
        if self._process.returncode is None and self._container is not None:
            self._container.kill()
        if self._process.returncode is None and self._inner_pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._inner_pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _start(self, orders: socket.socket) -> subprocess.Popen[bytes]:
        if self.tier == "docker":
            self._container = Container(self.limits, orders)
            return self._container.process
        python = Interpreter.current()
        if self.tier == "bwrap":
            return self._start_bwrap(python, orders.fileno())
        return self._popen([*_zygote_command(python, _HERE), str(orders.fileno())], [orders.fileno()])

    def _start_bwrap(self, python: Interpreter, orders: int) -> subprocess.Popen[bytes]:
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise FileNotFoundError("bubblewrap (bwrap) is not installed")
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as status:
            try:
                command = [
                    bwrap,
                    *_bwrap_arguments(python, self._packages, service=bool(self._service)),
                    "--info-fd",
                    str(writing),
                    "--",
                ]
                command += [*_zygote_command(python, Path(_INSIDE)), str(orders)]
                process = self._popen(command, [orders, writing])
            finally:
                os.close(writing)
            ready, _, _ = select.select([status], [], [], _START_SECONDS)
            with contextlib.suppress(ValueError, KeyError):
                self._inner_pid = int(json.loads(status.read() if ready else b"")["child-pid"])
        return process

    @staticmethod
    def _popen(command: list[str], descriptors: list[int]) -> subprocess.Popen[bytes]:
        with _fixed_addresses():
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
                pass_fds=descriptors,
                start_new_session=True,
            )

    def _configure(self) -> None:
        data = marshal.dumps(self._setup(), MARSHAL)
        self._orders.sendall(struct.pack("!I", len(data)) + data)
        if self._orders.recv(1) != b"+":
            raise ConnectionResetError("it ended at once")
        if not self._service:
            self._orders.sendall(b"K")  # nothing yet: the first child then finds the memory that later ones find

    def _setup(self) -> dict[str, Any]:
        setup: dict[str, Any] = {
            "jailed": self.tier != "unsafe",
            "landlock": "",
            "filters": [],
            "service": self._service,
            "root": _INSIDE if self.tier == "bwrap" else str(_HERE.parents[1]),
            "limits": {"AS": self.limits.memory_bytes, "FSIZE": 0, "NOFILE": 64, "CORE": 0},
        }
        packages = [] if self.tier == "docker" else self._packages  # an image has its own numpy or none
        setup["modules"] = MODULES[self._warmth]
        setup["numpy"] = str(packages[0]) if packages else ""
        if self.tier == "unsafe":
            return setup
        if self.tier == "bwrap" and packages:
            setup["numpy"] = f"{_INSIDE}/numpy"
        setup["machine"] = os.uname().machine
        try:
            filters = seccomp_filters()
            setup["filters"] = [filters.zygote.hex(), filters.child.hex()]
        except FilterError:
            if self.tier == "landlock" or (self.tier == "bwrap" and not bounds_processes()):
                raise
            setup["filters"] = [lasting_filter(setup["machine"]).hex()]
        if self.tier == "bwrap" and bounds_processes():
            setup["limits"]["NPROC"] = self.limits.tasks
        if self.tier == "landlock":
            spec = importlib.util.find_spec("landlock")
            if spec is None or spec.origin is None:
                raise FilterError("the package landlock is not installed")
            python = Interpreter.current()
            setup["landlock"] = str(Path(spec.origin).parent.parent)
            setup |= {"folder": str(python.stdlib), "readable": _readable(python) + [str(path) for path in packages]}
        return setup

    def _last_error_line(self) -> str:
        """Return the last line on stderr of a process that did not start."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        if self._process.returncode is None or self._process.stderr is None:
            return ""
        lines = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


@contextlib.contextmanager
def _fixed_addresses() -> Iterator[None]:
    """Let the processes that this thread starts have the same addresses each time, if the kernel permits it.

    `id`, the hashes of objects and the order of sets of them follow the addresses. The setting is the thread's.
    """
    if sys.platform != "linux":
        yield
        return
    personality = ctypes.CDLL(None).personality
    personality.argtypes = (ctypes.c_ulong,)
    former = personality(_ASK_PERSONALITY)
    changed = former >= 0 and personality(former | _ADDR_NO_RANDOMIZE) >= 0
    try:
        yield
    finally:
        if changed:
            personality(former)


def _zygote_command(python: Interpreter, folder: Path) -> list[str]:
    return [str(python.program), "-S", "-s", "-B", str(folder / _SCRIPTS[0])]


def _numpy() -> list[Path]:
    """Return the folders of the installed numpy: the package, and the libraries of its wheel."""
    spec = importlib.util.find_spec("numpy")
    if spec is None or spec.origin is None:
        return []
    package = Path(spec.origin).parent
    return [path for path in (package, package.with_name("numpy.libs")) if path.is_dir()]


def _bwrap_arguments(python: Interpreter, packages: list[Path], *, service: bool = False) -> list[str]:
    """A service sees this package, and is not process 1, which the kernel spares the signal of a time limit."""
    arguments = ["--unshare-all", "--unshare-user", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    arguments += [] if service else ["--as-pid-1"]
    for name, value in ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    for path in _LIBRARIES:
        arguments += _bound_libraries(Path(path))
    shown = [python.stdlib, python.program, *([python.shared] if python.shared else []), Path(_ZONES)]
    for file in shown:
        if file.exists():
            arguments += ["--ro-bind", str(file), str(file)]
    for folder in _site_folders(python):
        arguments += ["--tmpfs", str(folder)]
    for script in _SCRIPTS:
        arguments += ["--ro-bind", str(_HERE / script), f"{_INSIDE}/{script}"]
    for package in [*packages, *([_HERE.parent] if service else [])]:
        arguments += ["--ro-bind", str(package), f"{_INSIDE}/{package.name}"]
    empty = [where for option, where in itertools.pairwise(arguments) if option == "--tmpfs"]
    for path in (*empty, "/"):
        arguments += ["--remount-ro", path]
    return [*arguments, "--chdir", "/"]


def _bound_libraries(folder: Path) -> list[str]:
    """Return the arguments that show the C libraries of a folder, with few mounts: those shown, or those hidden."""
    if folder.is_symlink() and str(folder.resolve()) in _LIBRARIES:
        return ["--symlink", str(folder.readlink()), str(folder)]
    if not folder.is_dir():
        return []
    libraries = _libraries(folder)
    if len(libraries) <= _MOST_MOUNTS:
        return [part for path in libraries for part in ("--ro-bind", str(path), str(path))]
    hidden = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink() and path not in libraries]
    return ["--ro-bind", str(folder), str(folder), *(part for path in hidden for part in ("--tmpfs", str(path)))]


def _libraries(folder: Path) -> list[Path]:
    """Return the entries of a library folder that are C libraries, or folders of them."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() or (path.is_dir() and _FOLDERS_OF_LIBRARIES.fullmatch(path.name))
    ]


def bounds_processes() -> bool:
    """Return whether the kernel limits the processes of one `bwrap` jail: it counts per user namespace, but not root's.

    If it does not, a fork bomb is faster than a parent that polls, so that the filter must forbid forks.
    """
    return os.geteuid() != 0 and tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) >= (5, 14)


def _site_folders(python: Interpreter) -> list[Path]:
    """Return the folders of installed packages under the standard library, which are hidden."""
    return [folder for name in ("site-packages", "dist-packages") if (folder := python.stdlib / name).is_dir()]


def _readable(python: Interpreter) -> list[str]:
    """Return the paths that Landlock allows to read: the standard library without packages, and the C libraries."""
    hidden = set(_site_folders(python))
    paths = [str(entry) for entry in sorted(python.stdlib.iterdir()) if entry not in hidden]
    if python.shared is not None:
        paths.append(str(python.shared))
    if Path(_ZONES).exists():
        paths.append(_ZONES)
    folders = {Path(path).resolve() for path in _LIBRARIES if Path(path).is_dir()}
    return paths + [str(path) for folder in sorted(folders) for path in _libraries(folder)]
