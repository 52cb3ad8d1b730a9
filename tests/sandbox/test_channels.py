"""What one answer leaves in its jail for the answers after it: nothing that they can read.

Each channel is an expression that leaves something, and one that reads it. Both use the C library, since the
sandbox replaces some functions of Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweet.sandbox import jail
from sweet.sandbox.pool import Sandbox, open_jails
from sweet.sandbox.program import Limits, Program, Tier
from sweet.sandbox.syscalls import FilterError
from sweet.sandbox.tiers import probe_tier

SETUP = """
import ctypes, fcntl, os, resource, signal, struct
C = ctypes.CDLL(None, use_errno=True)
MACHINE = 0 if os.uname().machine == "x86_64" else 1

def attempt(what):
    try: return str(eval(what))
    except (OSError, ValueError) as error: return str(error)
def flags(fd): return C.fcntl(fd, 3, 0)
def limits(): return [resource.getrlimit(each) for each in (resource.RLIMIT_STACK, resource.RLIMIT_NOFILE)]
def zygote(): return os.getppid() or 1
def made(call, *arguments): return min(C[call](*arguments), 0)
def asked(option):
    told = ctypes.create_string_buffer(16)
    C.prctl(option, told, 0, 0, 0)
    return told.value.hex()
def cores():
    mask = ctypes.create_string_buffer(128)
    C.sched_getaffinity(0, 128, mask)
    return mask.raw.hex()
"""

STREAMS = {
    "non-blocking": ("C.fcntl({fd}, 4, flags({fd}) | os.O_NONBLOCK)", "flags({fd})"),
    "append": ("C.fcntl({fd}, 4, flags({fd}) | os.O_APPEND)", "flags({fd})"),
    "direct": ("C.fcntl({fd}, 4, flags({fd}) | os.O_DIRECT)", "flags({fd})"),
    "no access time": ("C.fcntl({fd}, 4, flags({fd}) | os.O_NOATIME)", "flags({fd})"),
    "asynchronous": ("C.fcntl({fd}, 4, flags({fd}) | 0o20000)", "flags({fd})"),
    "non-blocking by ioctl": ("C.ioctl({fd}, 0x5421, ctypes.byref(ctypes.c_int(1)))", "flags({fd})"),
    "close on exec": ("C.fcntl({fd}, 2, 1)", "C.fcntl({fd}, 1, 0)"),
    "owner": ("C.fcntl({fd}, 8, os.getpid() or 1)", "C.fcntl({fd}, 9, 0)"),
    "signal of the owner": ("C.fcntl({fd}, 10, 12)", "C.fcntl({fd}, 11, 0)"),
    "lease": ("C.fcntl({fd}, 1024, 1)", "C.fcntl({fd}, 1025, 0)"),
    "hint": ("C.fcntl({fd}, 1036, ctypes.byref(ctypes.c_ulong(3)))", "C.fcntl({fd}, 1031 + 1, 0)"),
    "position": ("C.lseek({fd}, 77, 0)", "C.lseek({fd}, 0, 1)"),
    "closed": ("C.close({fd})", "flags({fd})"),
    "another file": ("C.dup2(os.pipe()[0], {fd})", "os.fstat({fd}).st_mode"),
}
PROCESS = {
    "umask": ("C.umask(0o123)", "C.umask(0o22)"),
    "folder": ("os.chdir('/usr')", "os.getcwd()"),
    "limits": ("resource.setrlimit(resource.RLIMIT_NOFILE, (33, 64))", "limits()"),
    "signal's handler": ("signal.signal(signal.SIGUSR1, signal.SIG_IGN)", "str(signal.getsignal(signal.SIGUSR1))"),
    "signal mask": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])",
        "len(signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    ),
    "timer": ("signal.setitimer(signal.ITIMER_REAL, 90)", "signal.getitimer(signal.ITIMER_REAL)[0] > 0"),
    "name": ("C.prctl(15, b'left', 0, 0, 0)", "asked(16)"),
    "parent's signal": ("C.prctl(1, 12, 0, 0, 0)", "asked(2)"),
    "timer slack": ("C.prctl(29, 77, 0, 0, 0)", "C.prctl(30, 0, 0, 0, 0)"),
    "priority": ("C.setpriority(0, 0, 7), C.setpriority(0, zygote(), 7)", "C.getpriority(0, 0)"),
    "scheduler": (
        "[C.sched_setscheduler(p, 3, ctypes.byref(ctypes.c_int(0))) for p in (0, zygote())]",
        "C.sched_getscheduler(0)",
    ),
    "cores": ("[C.sched_setaffinity(p, 128, (1).to_bytes(128, 'little')) for p in (0, zygote())]", "cores()"),
    "limits of the zygote": ("C.prlimit(zygote(), 3, struct.pack('QQ', 1 << 20, 1 << 20), None)", "limits()"),
    "order of access to disks": (
        "[C.syscall((251, 30)[MACHINE], 1, p, 3 << 13) for p in (0, zygote())]",
        "C.syscall((252, 31)[MACHINE], 1, 0)",
    ),
    "session": ("os.setsid()", "os.getsid(0) == os.getpid()"),
    "group": ("os.setpgid(0, 0)", "os.getpgid(0) == os.getsid(0)"),
}
KERNEL = {
    "shared memory": ("C.shmget(0x5EED, 4096, 0o1666)", "made('shmget', 0x5EED, 4096, 0o666)"),
    "semaphores": ("C.semget(0x5EED, 1, 0o1666)", "made('semget', 0x5EED, 1, 0o666)"),
    "messages": ("C.msgget(0x5EED, 0o1666)", "made('msgget', 0x5EED, 0o666)"),
    "queue": ("C.mq_open(b'/left', 0o100, 0o666, None)", "made('mq_open', b'/left', 0)"),
    "key": (
        "[C.syscall((248, 217)[MACHINE], b'user', b'left', b'x', 1, ring) for ring in (-3, -4, -5)]",
        "min(C.syscall((249, 218)[MACHINE], b'user', b'left', None, 0), 0)",
    ),
    "file in shared memory": ("open('/dev/shm/left', 'x')", "os.path.exists('/dev/shm/left')"),
    "file": ("open('/tmp/left', 'x')", "os.path.exists('/tmp/left')"),
    "abstract socket": (
        "__import__('socket').socket(1).bind('\\0left')",
        "__import__('socket').socket(1).bind('\\0left')",
    ),
}

OTHERS = {**PROCESS, **KERNEL}


def program(statement: str, expression: str) -> Program:
    return Program(f"{SETUP}\ndef f():\n    attempt({statement!r})\n    return attempt({expression!r})", ("f()",))


@pytest.fixture(scope="module", params=["bwrap", "bwrap without its filter", "landlock", "docker", "unsafe"])
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    tier: Tier = request.param.partition(" ")[0]
    if not probe_tier(tier).works:
        pytest.skip(f"{tier}: {probe_tier(tier).detail}")
    with pytest.MonkeyPatch.context() as patch:
        if request.param != tier:
            patch.setattr(jail, "seccomp_filters", _no_filter)
            patch.setattr(jail, "bounds_processes", lambda: True)
        with open_jails(tier, 1, Limits()) as sandbox:
            sandbox.run([Program("", ("1",))])
            yield sandbox


def _no_filter() -> bytes:
    raise FilterError("left out for the test")


def read_after(box: Sandbox, statement: str, expression: str) -> tuple[str, str, str]:
    """What the expression is before the statement, in its own answer, and in the answer after it."""
    same = [program(what, f"{expression}  # {statement}") for what in ("None", statement, "None")]  # in the same jail
    before, within, after = (execution.results[0] for execution in box.run(same))
    assert before.status == "value", before.explanation
    assert after.status == "value", after.explanation
    return str(before.value), str(within.value), str(after.value)


@pytest.mark.parametrize("kind", STREAMS)
def test_the_standard_streams_of_an_answer_are_its_own(box: Sandbox, kind: str) -> None:
    for stream in range(3):
        statement, expression = (text.format(fd=stream) for text in STREAMS[kind])
        before, _, after = read_after(box, statement, expression)
        assert before == after, stream


@pytest.mark.parametrize("kind", OTHERS)
def test_an_answer_leaves_nothing_of_its_process_or_in_the_kernel(box: Sandbox, kind: str) -> None:
    if box.tier == "unsafe":
        pytest.skip("it isolates nothing")
    before, _, after = read_after(box, *OTHERS[kind])
    assert before == after


@pytest.mark.parametrize("kind", ["non-blocking", "append", "non-blocking by ioctl", "close on exec", "closed"])
def test_an_answer_would_see_what_is_left(kind: str) -> None:
    """In the answer itself the expression shows what the statement did."""
    with open_jails("unsafe", 1, Limits()) as sandbox:
        before, within, after = read_after(sandbox, *(text.format(fd=1) for text in STREAMS[kind]))
    assert before == after != within


def test_a_zygote_shares_no_open_file_and_no_writable_memory(box: Sandbox) -> None:
    """Its own descriptors are its streams and the socket of the orders, which its children replace."""
    for running in box._workers[0].jails.values():
        running.reap()
        process = Path(f"/proc/{running.root}")
        try:
            opened = {link.name for link in (process / "fd").iterdir()}
            maps = (process / "maps").read_text().splitlines()
        except PermissionError:
            pytest.skip("only root sees the files of a zygote")
        assert opened == {"0", "1", "2", "41"}
        assert not [line for line in maps if line.split()[1].startswith("rw") and line.split()[1].endswith("s")]
