"""The process in a jail that forks a child for each answer. A script for `sweet.sandbox.jail`, standard library only.

First it restricts itself (Landlock if configured, limits, a seccomp filter), so that a child has little to do before it
runs; a fork costs time for each page that it touches. Then it serves orders over an inherited socket: `R` with three
descriptors (the program, the pipe for its results, the null device) forks a child that reads the first, writes the
second, and has the third as its standard streams; `K` kills the last child and its descendants; `W` does the same, and
returns the child's wait status. It measures no time and never reads a program's text or values, so that nothing of one
answer, or of a reference, is in the memory that the next child inherits. Nor is an open file: processes that inherit
one share its flags, owner and locks, so all three descriptors were opened for this child. When the socket closes,
because the parent is gone, it ends; in its own process namespace everything in it ends too.

Most of the time of a fork goes into copying the pages that parent and child write to afterwards. So each does little,
and before the first fork the memory is packed (`_pack_memory`).
"""

from __future__ import annotations

import ctypes
import gc
import marshal
import os
import resource
import struct
import sys
from _socket import CMSG_SPACE, MSG_WAITALL, socket  # smaller than the module socket, which every child would inherit
from os import getpid, getppid  # answers find others in `os` (determinism)

import child as program_child  # type: ignore[import-not-found]
import determinism  # type: ignore[import-not-found]  # in the same folder, as is the next

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

sys.path.pop(0)

SIGKILL = 9
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
SECCOMP_MODE_FILTER = 2
LINUX = sys.platform == "linux"  # other systems have only the tier without a jail
STATUS = struct.Struct("!i")
_DESCRIPTORS = struct.Struct("iii")
_BLOCKS = range(16, 513, 16)
"""The sizes of the small blocks from which Python's allocator takes objects."""
_BYTES_OVERHEAD = sys.getsizeof(b"")
_IN_A_ROW = 12
_MOST_BLOCKS = 20_000
_taken: list[object] = []
"""The blocks that children do not get."""
_REPORT = 41
"""The descriptor of the orders here, and of the results in a child, where these replace the orders. It is beyond those
that an answer opens and closes by number."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong)


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _prctl(option: int, value: int, extra: Any = None) -> None:
    if _libc.prctl(option, value, extra, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def enter_jail(setup: dict[str, Any]) -> None:
    """Give up all rights that this process does not need. If a step of the tier fails, the jail is not used."""
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
            rules.allow(path, rules=reading if os.path.isdir(path) else landlock.FSAccess.READ_FILE)
        rules.apply()
    _drop_capabilities()


def _drop_capabilities() -> None:
    """Drop all capabilities, by which root could raise its own limits."""
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    if _libc.capset(ctypes.create_string_buffer(header), ctypes.create_string_buffer(bytes(24))) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _import_numpy(folder: str) -> None:
    """Import numpy from its own folder, so that no other installed package can be found."""
    import importlib.util

    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process with threads cannot be forked safely
    spec = importlib.util.spec_from_file_location("numpy", f"{folder}/__init__.py", submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        return
    sys.modules["numpy"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    importlib.import_module("numpy.random")
    os.environ.clear()


def _import(modules: list[str], numpy: str) -> None:
    """Import those of the modules that exist, without fork hooks: `random` would seed itself in every child."""
    at_fork, os.register_at_fork = os.register_at_fork, lambda **_hooks: None
    for name in modules:
        try:
            __import__(name)
        except ImportError:
            continue
    if numpy:
        _import_numpy(numpy)
    os.register_at_fork = at_fork


def _bound(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


_SAMPLE = """
class Box:
    def __init__(self, inside):
        self.inside = inside
def f(n, items=None):
    found = {f"{i:03d}": [x * i for x in (items or [1, 2])] for i in range(n) if i % 2 == 0}
    found["box"] = Box(n).inside + 0.5
    found["words"] = " ".join(sorted("one, two; three".replace(";", ",").split(", ")))
    if n < 0:
        raise ValueError(f"{n} is negative")
    return found
"""


def _warm_up() -> None:
    """Run a program as children will, so that the interpreter's work at a first use is done before the fork."""
    calls = ("f(7)", "f(-1)", "f(3, [4, 5])", "(f(2), {1, 2}, 1.5, None)")
    program: dict[str, Any] = {"source": _SAMPLE, "calls": calls, "code": None, "call_codes": None}
    program |= {"scoped": False, "uses_random": False}
    order = {"program": program, "nonce": "", "value_bytes": 4096}
    for _ in range(10):  # until the interpreter has specialised its code
        unread, report = os.pipe()  # the results fit into the pipe's buffer
        program_child.run(marshal.loads(marshal.dumps(order)), report, determinism.start_call)
        os.close(unread)
        os.close(report)
    sys.modules.pop(program_child.MODULE, None)


def _pack_memory() -> None:
    """Let children allocate from few pages, and let a fork copy fewer.

    The small blocks that are free lie scattered over all pages; each that a child takes has a page copied. They are
    taken here, size by size, until blocks follow one another, because they come from a new pool. Memory that the C
    library has free is returned to the kernel.
    """
    for size in _BLOCKS:
        last = in_a_row = 0
        for _ in range(_MOST_BLOCKS):
            block = bytes(size - _BYTES_OVERHEAD) if size > _BYTES_OVERHEAD else _small_block(size, len(_taken))
            _taken.append(block)
            in_a_row = in_a_row + 1 if id(block) == last + size else 0
            last = id(block)
            if in_a_row == _IN_A_ROW:
                break
    trim = getattr(_libc, "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def _small_block(size: int, number: int) -> object:
    """Return a new object of 16 or 32 bytes."""
    return object() if size == _BLOCKS[0] else 2.0**40 + number


def _filters(setup: dict[str, Any]) -> list[Any]:
    """Return the filters in the form for `prctl`, the zygote's and the child's; without libseccomp only one; an empty
    list if there are none for this machine."""
    if not setup["filters"] or setup["machine"] != os.uname().machine:
        return []
    codes = [bytes.fromhex(code) for code in setup["filters"] if code]
    return [ctypes.byref(_FilterProgram(len(code) // 8, code)) for code in codes]


def _child(program: int, report: int, nothing: int, child_filter: Any, zygote: int) -> None:
    """Read the order, load the child's filter, and run the program. Never returns."""
    try:
        if zygote != 1:  # process 1 of a namespace kills all others, and ends them with it
            os.setsid()
            if LINUX:
                _prctl(PR_SET_PDEATHSIG, SIGKILL)
            if getppid() != zygote:
                os._exit(1)
        os.dup2(report, _REPORT)
        os.close(report)
        for stream in range(3):
            os.dup2(nothing, stream)
        os.close(nothing)
        order = marshal.loads(os.pread(program, os.lseek(program, 0, os.SEEK_END), 0))
        os.close(program)
        resource.setrlimit(resource.RLIMIT_CPU, (order["cpu_seconds"], order["cpu_seconds"]))
        if child_filter is not None:
            _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, child_filter)
        gc.enable()
        program_child.run(order, _REPORT, determinism.start_call)
        os._exit(0)
    finally:
        os._exit(1)


def _reap(child: int, filtered: bool) -> int:
    """Kill the last child and its descendants, and return the child's wait status.

    A child that had the filter has no descendants, and nothing else has to be looked for.
    """
    if filtered:
        _kill(child)
        return os.waitpid(child, 0)[1]
    alone = getpid() == 1
    _kill(-1 if alone else -child)
    if not alone:
        _kill(child)  # it may not have reached setsid yet
    _, status = os.waitpid(child, 0)
    try:
        while True:  # orphans become children of this process, whatever their session is
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                if not alone:
                    _kill_children()
                os.waitpid(-1, 0)
    except ChildProcessError:
        return status


def _kill(process: int) -> None:
    try:
        os.kill(process, SIGKILL)
    except ProcessLookupError:
        pass


def _kill_children() -> None:
    """Kill every direct child; their children become this process's as they die."""
    me = str(getpid())
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and _parent_of(name) == me:
                os.kill(int(name), SIGKILL)
        except (OSError, IndexError):
            continue


def _parent_of(process: str) -> str:
    with open(f"/proc/{process}/stat", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[1]


def serve(orders: socket, child_filter: Any) -> None:
    """Serve orders until the socket closes. `child_filter` is the filter that each child adds."""
    child, zygote = 0, getpid()
    if LINUX:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
    while True:
        message, ancillary, _, _ = orders.recvmsg(1, CMSG_SPACE(_DESCRIPTORS.size))
        if message == b"R":
            program, report, nothing = opened = _DESCRIPTORS.unpack(ancillary[0][2])
            child = os.fork()
            if child == 0:
                _child(program, report, nothing, child_filter, zygote)
            for descriptor in opened:
                os.close(descriptor)
            continue
        status = _reap(child, child_filter is not None) if child else 0
        child = 0
        if message == b"W":
            orders.sendall(STATUS.pack(status))
        elif message != b"K":
            return


def _moved(orders: socket) -> socket:
    """Return the socket at the descriptor `_REPORT`."""
    former = orders.detach()
    if former != _REPORT:
        os.dup2(former, _REPORT)
        os.close(former)
    return socket(fileno=_REPORT)


def serve_itself(orders: socket, setup: dict[str, Any]) -> None:
    """Become the program `service`: it is loaded, the jail closes, and its function `serve` serves the socket."""
    sys.path.append(setup["root"])
    program: dict[str, Any] = {}
    exec(setup["service"], program)
    if setup["jailed"]:
        enter_jail(setup)
    _bound(setup["limits"])
    os.dup2(1, 2)
    os.closerange(3, _REPORT)
    for each in _filters(setup):
        _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, each)
    orders.sendall(b"+")
    program["serve"](orders)


def main(orders: socket) -> None:
    """Read the setup from the socket, restrict this process, and serve orders."""
    size = struct.unpack("!I", orders.recv(4, MSG_WAITALL))[0]
    setup = marshal.loads(orders.recv(size, MSG_WAITALL))
    os.environ.clear()
    sys.argv[:] = ["answer"]
    orders = _moved(orders)
    os.chdir("/")
    if setup["service"]:
        serve_itself(orders, setup)
        return
    if setup["jailed"]:
        enter_jail(setup)
    determinism.make_deterministic(lambda: _import(setup["modules"], setup["numpy"]))
    _warm_up()
    filters = _filters(setup)
    _bound(setup["limits"])
    if filters:
        _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filters[0])
    orders.sendall(b"+")
    os.dup2(1, 2)  # the output of answers is not read: a pipe would fill up and block later answers
    os.closerange(3, _REPORT)  # Landlock's rules: children would share what they are opened as
    gc.collect()
    gc.disable()
    _pack_memory()
    gc.freeze()
    serve(orders, filters[1] if len(filters) > 1 else None)


if __name__ == "__main__":
    main(socket(fileno=int(sys.argv[1])))
