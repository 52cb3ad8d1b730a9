"""The process inside a jail that forks one child an answer. A script for `sweet.sandbox.jail`, standard library only.

It shuts itself in first (Landlock where asked), then serves orders that come over a socket it inherits:
`R` with two descriptors (the program, the pipe for its results): fork a child that reads the one and writes the other;
`K`: kill whatever the last child left and say how it ended. It keeps no clock and never sees a program's text or
values, so nothing of one answer, or of a reference, is in the memory that the next child inherits. When the socket
closes, because its parent is gone, it ends; in a process namespace of its own everything in it ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import guest  # type: ignore[import-not-found]  # beside this file

sys.path.pop(0)
for _name in ("bisect", "copy", "heapq", "itertools", "functools", "operator", "statistics", "string", "typing"):
    __import__(_name)  # what answers import most is warm in every child

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
SECCOMP_MODE_FILTER = 2
LINUX = sys.platform == "linux"  # elsewhere there is but the tier without a jail
STATUS = struct.Struct("!i")
_libc = ctypes.CDLL(None, use_errno=True)
_PRCTL = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong)


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _prctl(option: int, value: int, extra: Any = None) -> None:
    _libc.prctl.argtypes = _PRCTL
    if _libc.prctl(option, value, extra, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def shut_in(setup: dict[str, Any]) -> None:
    """Give up every right this process has no need of. What the tier promises must succeed, or the jail is not used."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _prctl(PR_SET_DUMPABLE, 0)
    if setup["landlock"]:
        sys.path.insert(0, setup["landlock"])
        import landlock

        sys.path.pop(0)
        reading = landlock.FSAccess.READ_FILE | landlock.FSAccess.READ_DIR
        rules = landlock.Ruleset()
        rules.allow(setup["folder"], rules=landlock.FSAccess.READ_DIR)
        for path in setup["readable"]:
            rules.allow(path, rules=reading if os.path.isdir(path) else landlock.FSAccess.READ_FILE)  # noqa: PTH112
        rules.apply()
    _drop_capabilities()


def _drop_capabilities() -> None:
    """Root is to be no more than anybody: it could raise its own limits otherwise."""
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    if _libc.capset(ctypes.create_string_buffer(header), ctypes.create_string_buffer(bytes(24))) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _import_numpy(folder: str) -> None:
    """Import numpy from its own folder: nothing else that is installed beside it can be found."""
    import importlib.util

    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process with threads cannot be forked safely
    spec = importlib.util.spec_from_file_location("numpy", f"{folder}/__init__.py", submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        return
    sys.modules["numpy"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    importlib.import_module("numpy.random")
    os.environ.clear()


def _limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def _child(program: int, report: int, setup: dict[str, Any], zygote: int) -> None:
    """Read the order, give up the rest, run. Never returns."""
    try:
        os.setsid()
        if LINUX:
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a zygote that is killed takes its child along
        if os.getppid() != zygote:
            os._exit(1)
        with open(program, "rb") as file:
            order = json.loads(file.read())
        spot = 16 + os.urandom(1)[0] % 44
        os.dup2(report, spot)
        os.close(report)
        _limit({**order["limits"], **setup["limits"]})
        if setup["filter"] and setup["machine"] == os.uname().machine:
            code = bytes.fromhex(setup["filter"])
            program_of_filter = _FilterProgram(len(code) // 8, code)
            _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program_of_filter))
        gc.enable()
        guest.run(order, spot)
        os._exit(0)
    finally:
        os._exit(1)


def _bury(child: int) -> int:
    """Kill what the last child left behind and give back how the child itself ended (a wait status)."""
    alone = os.getpid() == 1
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1 if alone else -child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)  # it may not have reached setsid yet
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ChildProcessError):
        while True:  # orphans come to this process, whatever session they made
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                if not alone:
                    _kill_children()
                os.waitpid(-1, 0)
    return status


def _kill_children() -> None:
    """Kill every direct child; theirs are handed to this process as they die."""
    me = str(os.getpid())
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit() and _parent_of(entry) == me:
                os.kill(int(entry.name), signal.SIGKILL)


def _parent_of(process: Path) -> str:
    return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]


def serve(orders: socket.socket, setup: dict[str, Any]) -> None:
    """Answer orders until the socket closes."""
    child, zygote = 0, os.getpid()
    if LINUX:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, 1, 2)
        if message == b"R":
            child = os.fork()
            if child == 0:
                orders.close()
                _child(descriptors[0], descriptors[1], setup, zygote)
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        status = _bury(child) if child else 0
        child = 0
        if message != b"K":
            return
        orders.sendall(STATUS.pack(status))


def main(orders: socket.socket) -> None:
    """Take the setup off the socket, shut this process in, answer orders."""
    size = struct.unpack("!I", orders.recv(4, socket.MSG_WAITALL))[0]
    setup = json.loads(orders.recv(size, socket.MSG_WAITALL))
    os.environ.clear()
    sys.argv[:] = ["answer"]
    os.chdir("/")
    if setup["jailed"]:
        shut_in(setup)
    if setup["numpy"]:
        _import_numpy(setup["numpy"])
    guest.stop_clock()
    orders.sendall(b"+")
    os.dup2(1, 2)  # nobody reads what answers print: a pipe would fill up and block the answers after
    gc.collect()
    gc.disable()
    gc.freeze()
    serve(orders, setup)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
