"""The system calls that a child may make, as two seccomp filters in kernel form.

All others fail with EPERM: no new process or program, no signals, no sockets except an anonymous pair within the
process, no file opened for writing, no tracing, no raised limits, no namespaces, no other kernel interface. Loading a
filter makes the kernel run it once for every system call that exists, so the long one is loaded once, by the zygote: it
allows what a child may do, and the few calls by which the zygote creates, limits and ends a child. A child inherits it
and adds the short one, which forbids these few. Sources of randomness (sweet.sandbox.determinism) are refused as
well: random bytes, processor time, accounts of the machine; the numbers of processes are 0.

Where libseccomp is missing, `lasting_filter` refuses only what one answer could leave in its jail for the next.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_ALLOWED = """
access arch_prctl brk chdir close close_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait
epoll_pwait2 epoll_wait eventfd2 exit exit_group faccessat faccessat2 fchdir fstat futex getcwd getdents64 getegid
geteuid getgid getgroups getresgid getresuid getrlimit getsockname getsockopt gettimeofday getuid lseek lstat madvise
membarrier mmap mprotect mremap munmap nanosleep newfstatat pipe pipe2 poll ppoll pread64 pselect6 read readlink
readlinkat readv recvfrom restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend
rt_sigtimedwait sched_yield select set_robust_list set_tid_address setitimer shutdown sigaltstack stat statx time
umask uname wait4 waitid write writev
"""

_NUMBERS = "getpgid getpgrp getpid getppid getsid gettid"
"""Calls that return the number of a process or thread. In a child they return 0: the numbers are new each time."""

_OF_ITSELF = "sched_getaffinity sched_getparam sched_getscheduler"
"""Calls that take a process; only 0, the caller, is allowed. Of others they would say whether these exist."""

_OF_A_CLOCK = "clock_getres clock_gettime clock_nanosleep"
_CLOCKS = (0, 1, 4, 5, 6, 7, 11)
"""The clocks of the date and of elapsed time, but none of processor time, and none of another process."""

_ZYGOTES = "fork kill prctl prlimit64 recvmsg setrlimit setsid"
"""Further calls of the zygote, and of a child before it loads its own filter."""

_HARMLESS_IOCTL = (0x5401, 0x5421, 0x5450, 0x5451)  # is it a terminal, non-blocking, close on exec or not
_HARMLESS_FCNTL = (0, 1, 2, 3, 4, 1030)  # duplicate a descriptor, read and set its flags
_CLONE_THREAD = 0x00010000
_CLONE_NEW = 0x7E020080  # every CLONE_NEW… flag
_CLONE3 = 435
_BINARY_TREE = 2

_LASTING = {  # add_key request_key keyctl shmget semget msgget mq_open setpriority ioprio_set sched_setaffinity
    # sched_setscheduler sched_setparam sched_setattr migrate_pages move_pages process_madvise process_vm_writev ptrace
    "x86_64": (248, 249, 250, 29, 64, 68, 240, 141, 251, 203, 144, 142, 314, 256, 279, 440, 311, 101),
    "aarch64": (217, 218, 219, 194, 190, 186, 180, 140, 30, 122, 119, 118, 274, 238, 239, 440, 271, 117),
}
"""By machine, the numbers of calls that make what outlives a process, or change another process."""
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
_OTHER_NUMBERS = 0x40000000  # of x32
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06

_Rule = tuple[Any, ...]


class FilterError(Exception):
    """No filter can be created on this machine; says why."""


@dataclass(frozen=True)
class Filters:
    """Arrays of struct sock_filter (8 bytes each): the filter of the zygote, and the one that each child adds."""

    zygote: bytes
    child: bytes


@functools.cache
def seccomp_filters() -> Filters:
    """Return the filters for this machine.

    Raises:
        FilterError: pyseccomp or libseccomp is missing, or does not support this machine.
    """
    try:
        import pyseccomp as seccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise FilterError(f"seccomp filters cannot be created: {error}") from error
    arg, equal, masked, unequal = seccomp.Arg, seccomp.EQ, seccomp.MASKED_EQ, seccomp.NE
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (os.O_TMPFILE & ~os.O_DIRECTORY)
    unix = 1
    any_clone = _CLONE_THREAD | _CLONE_NEW
    allowed: list[_Rule] = [
        *((name,) for name in _ALLOWED.split()),
        *((name,) for name in f"{_ZYGOTES} {_NUMBERS}".split()),
        *((name, arg(0, equal, 0)) for name in _OF_ITSELF.split()),
        *((name, arg(0, equal, clock)) for name in _OF_A_CLOCK.split() for clock in _CLOCKS),
        ("open", arg(1, masked, writing, 0)),
        ("openat", arg(2, masked, writing, 0)),
        ("clone", arg(0, masked, any_clone, _CLONE_THREAD)),
        ("clone", arg(0, masked, any_clone, 0)),
        *(("ioctl", arg(1, equal, request)) for request in _HARMLESS_IOCTL),
        *(("fcntl", arg(1, equal, command)) for command in _HARMLESS_FCNTL),
        ("sendto", arg(4, equal, 0)),
        ("socketpair", arg(0, equal, unix)),
    ]
    forbidden: list[_Rule] = [
        *((name,) for name in _ZYGOTES.split() if name != "prlimit64"),
        ("clone", arg(0, masked, _CLONE_THREAD, 0)),
        ("prlimit64", arg(0, unequal, 0)),
        ("prlimit64", arg(2, unequal, 0)),
    ]
    try:
        return Filters(
            zygote=_exported(seccomp.ERRNO(errno.EPERM), seccomp.ALLOW, allowed),
            child=_exported(seccomp.ALLOW, seccomp.ERRNO(errno.EPERM), forbidden, returning_0=_NUMBERS.split()),
        )
    except OSError as error:
        raise FilterError(f"seccomp filters cannot be created: {error}") from error


def lasting_filter(machine: str) -> bytes:
    """Return a filter, made without libseccomp, that refuses the calls of `_LASTING`; none for an unknown machine.

    It refuses `prlimit64` for another process than the caller, and the calls of another architecture.
    """
    if machine not in _LASTING:
        return b""
    calls = _LASTING[machine]
    refuse = len(calls) + 8
    tests = [(_AT_LEAST, refuse - 4, 0, _OTHER_NUMBERS)]
    tests += [(_EQUAL, refuse - at, 0, number) for at, number in enumerate(calls, start=5)]
    instructions = [
        *((_LOAD, 0, 0, 4), (_EQUAL, 0, refuse - 2, _ARCHITECTURE[machine]), (_LOAD, 0, 0, 0), *tests),
        *((_EQUAL, 0, 2, _PRLIMIT[machine]), (_LOAD, 0, 0, 16), (_EQUAL, 0, 1, 0)),  # its process, 0 for the caller
        *((_RETURN, 0, 0, 0x7FFF0000), (_RETURN, 0, 0, 0x00050000 | errno.EPERM)),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def _exported(default: int, action: int, rules: list[_Rule], returning_0: Sequence[str] = ()) -> bytes:
    """Return a filter that answers the calls of `rules` by `action`, `returning_0` by 0, the others by `default`."""
    import pyseccomp as seccomp

    program = seccomp.SyscallFilter(default)
    with contextlib.suppress(OSError, ValueError):  # libseccomp before 2.5 has no tree: slower, but not weaker
        program.set_attr(seccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)
    program.add_rule(seccomp.ERRNO(errno.ENOSYS), _CLONE3)  # the C library then falls back to clone
    filter_rules = [(action, *rule) for rule in rules] + [(seccomp.ERRNO(0), name) for name in returning_0]
    for answer, name, *arguments in filter_rules:
        number = seccomp.resolve_syscall(seccomp.system_arch(), name)
        if number >= 0:  # a call unknown to this architecture or libseccomp is forbidden by the zygote's filter
            program.add_rule(answer, number, *arguments)
    with tempfile.TemporaryFile() as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()
