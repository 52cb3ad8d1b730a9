"""The system calls a child may make, as a seccomp filter in kernel form.

Everything not named here fails with EPERM: no new process or program, no signal to anybody, no socket but an anonymous
pair of this process's own, no file opened for writing, no tracing, no limits raised, no namespaces, no other kernel
interface.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import tempfile
from typing import Any

_ALLOWED = """
access arch_prctl brk chdir clock_getres clock_gettime clock_nanosleep close close_range dup dup2 dup3 epoll_create
epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd2 exit exit_group faccessat faccessat2 fchdir
fstat fstatfs futex get_robust_list getcpu getcwd getdents64 getegid geteuid getgid getgroups getitimer getpgid
getpgrp getpid getppid getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid
gettimeofday getuid lseek lstat madvise membarrier mmap mprotect mremap munmap nanosleep newfstatat pipe pipe2 poll
ppoll pread64 pselect6 read readlink readlinkat readv recvfrom restart_syscall rseq rt_sigaction rt_sigpending
rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_getaffinity sched_getparam sched_getscheduler
sched_yield select set_robust_list set_tid_address setitimer shutdown sigaltstack stat statfs statx sysinfo time
times umask uname wait4 waitid write writev
"""

_HARMLESS_IOCTL = (0x5401, 0x5421, 0x5450, 0x5451)  # is it a terminal, non-blocking, close on exec or not
_HARMLESS_FCNTL = (0, 1, 2, 3, 4, 1030)  # duplicate a descriptor, read and set its flags
_CLONE_THREAD = 0x00010000
_CLONE_NEW = 0x7E020080  # every CLONE_NEW… flag
_CLONE3 = 435
_BINARY_TREE = 2  # the kernel runs a filter once for each system call there is when a child loads it


class FilterError(Exception):
    """No filter can be made here; says why."""


@functools.cache
def seccomp_filter() -> bytes:
    """The filter as an array of struct sock_filter (8 bytes each) for this machine.

    Raises:
        FilterError: pyseccomp or libseccomp is missing, or does not know this machine.
    """
    try:
        import pyseccomp as seccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise FilterError(f"seccomp filters cannot be made: {error}") from error
    arg, equal, masked = seccomp.Arg, seccomp.EQ, seccomp.MASKED_EQ
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (os.O_TMPFILE & ~os.O_DIRECTORY)
    unix = 1
    rules: list[tuple[Any, ...]] = [
        *((name,) for name in _ALLOWED.split()),
        ("open", arg(1, masked, writing, 0)),
        ("openat", arg(2, masked, writing, 0)),
        ("clone", arg(0, masked, _CLONE_THREAD | _CLONE_NEW, _CLONE_THREAD)),
        *(("ioctl", arg(1, equal, request)) for request in _HARMLESS_IOCTL),
        *(("fcntl", arg(1, equal, command)) for command in _HARMLESS_FCNTL),
        ("prlimit64", arg(0, equal, 0), arg(2, equal, 0)),
        ("sendto", arg(4, equal, 0)),
        ("socketpair", arg(0, equal, unix)),
    ]
    program = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    try:
        with contextlib.suppress(
            OSError, ValueError
        ):  # a libseccomp before 2.5 knows no tree: slower to load, no weaker
            program.set_attr(seccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)
        program.add_rule(seccomp.ERRNO(errno.ENOSYS), _CLONE3)  # the C library then falls back to clone
        for name, *arguments in rules:
            _allow(program, seccomp.ALLOW, name, arguments)
        with tempfile.TemporaryFile() as file:
            program.export_bpf(file)
            file.seek(0)
            return file.read()
    except OSError as error:
        raise FilterError(f"seccomp filters cannot be made: {error}") from error


def _allow(program: Any, action: int, name: str, arguments: list[Any]) -> None:
    import pyseccomp as seccomp

    number = seccomp.resolve_syscall(seccomp.system_arch(), name)
    if number >= 0:  # what this architecture or this libseccomp does not know stays forbidden
        program.add_rule(action, number, *arguments)
