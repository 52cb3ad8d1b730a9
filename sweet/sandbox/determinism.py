"""What could make two executions of one program differ, made the same in every child. Standard library only.

A reward must not depend on luck: an answer that tosses a coin gets the same side every time. `make_deterministic`
replaces, in the zygote and thus in all its children, the functions whose results differ between executions, before any
other module has taken them:

- random bytes (`os.urandom`, `os.getrandom`, `random.SystemRandom`, `secrets`, `uuid`, generators without a seed, of
  numpy too) come from one fixed stream;
- the date is a clock that starts at MOMENT in every call, and that only sleeping, and reading it very often, advance;
- the other clocks (`monotonic`, `perf_counter`, `process_time`) advance by a microsecond whenever one is read, and by
  what was slept or waited for in vain;
- process and thread numbers are 0; the kernel's accounts and the times and numbers of files are 0.

The kernel does the rest: the seccomp filter refuses random bytes and accounts and hides process numbers (sweet.sandbox
.syscalls), the jail shows no devices, and addresses are not randomised (sweet.sandbox.jail). What remains is listed in
docs/sandbox.md.
"""

from __future__ import annotations

import _random
import _signal  # type: ignore[import-not-found]
import _thread
import errno
import gc
import os
import posix
import resource
import sys
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOMENT = 1_704_110_400.0
"""Noon of 1 January 2024, UTC, the time at which every call starts."""
_FREE_READS = 1000
_TICK = 0.001
_RUNNING = 1_000_000_000_000
_STEP = 1000
"""What the clocks other than the date show at first, and by what they advance with each reading, in nanoseconds."""
_NODE = 0x020000000001
"""The network address in `uuid.uuid1`: a local one."""

_WALL, _ELAPSED, _USED = (0, 5, 8, 11), (1, 4, 6, 7, 9), (2, 3)
"""The clocks of Linux, by what they count: the date, the time since an unknown moment, processor time."""
_TIMES = tuple(f"st_{what}time{unit}" for what in "amc" for unit in ("", "_ns"))


class _Clock:
    """The clocks of a child. `start` sets the date back to MOMENT; the others never go back."""

    def __init__(self) -> None:
        self.waited = 0
        self.steps = 0
        self.start()

    def start(self) -> None:
        self.slept = 0.0
        self.reads = 0

    def sleep(self, seconds: float) -> None:
        """Advance all clocks but those of processor time."""
        self.slept += seconds
        self.waited += int(seconds * 1e9)

    def date(self) -> float:
        self.reads += 1
        return MOMENT + self.slept + _TICK * max(0, self.reads - _FREE_READS)

    def used(self) -> int:
        """Return the processor time in nanoseconds."""
        self.steps += _STEP
        return self.steps

    def elapsed(self) -> int:
        """Return the time of the clocks that count from an unknown moment, in nanoseconds."""
        return _RUNNING + self.waited + self.used()


class _Stream:
    """The random bytes that the system would provide: the same for every call."""

    def __init__(self) -> None:
        self.generator: Any = None

    def start(self) -> None:
        self.generator = None

    def read(self, size: int, /) -> bytes:
        self.generator = self.generator or _random.Random(1)
        return self.generator.getrandbits(8 * size).to_bytes(size, "little") if size else b""


_clock = _Clock()
_stream = _Stream()


def make_deterministic(import_modules: Callable[[], None]) -> None:
    """Replace the sources of randomness and time in this process and its children.

    Args:
        import_modules: imports the modules that children find imported; called when these get the replaced functions.
    """
    _fix_clocks()
    for lock in (_thread.LockType, _thread.RLock):
        _change(lock, "acquire", _advancing(lock.acquire, 2, 1.0))
    _fix_random_bytes()
    _fix_numbers()
    _fix_files()
    sys.modules["_uuid"] = None  # type: ignore[assignment]  # it reads clocks and random bytes in C
    import_modules()
    if "datetime" in sys.modules:
        _fix_datetime()
    if "select" in sys.modules:
        _fix_select()
    seed()


def start_call(uses_random: bool) -> None:
    """Set the date and the random bytes back. Seeding takes longer than most calls: not all of them need it."""
    _clock.start()
    _stream.start()
    if uses_random:
        seed()


def seed() -> None:
    """Seed the generators that the imported modules share."""
    modules = sys.modules
    if "random" in modules:
        modules["random"].seed(0)
    if "numpy.random" in modules:
        modules["numpy.random"].seed(0)
    if "uuid" in modules:
        vars(modules["uuid"]).update(_node=_NODE, _last_timestamp=None)


def _change(kind: Any, name: str, function: Any) -> None:
    """Replace a method of a class in C. A subclass in its place would be another class."""
    import ctypes

    gc.get_referents(vars(kind))[0][name] = function
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _fix_clocks() -> None:
    real_sleep, real_clock, real_format = time.sleep, time.clock_gettime_ns, time.strftime
    real_local, real_utc, real_asctime, real_ctime = time.localtime, time.gmtime, time.asctime, time.ctime

    def date_ns() -> int:
        return round(_clock.date() * 1000) * 1_000_000

    clocks: dict[int, Callable[[], int]] = {}
    for numbers, function in ((_WALL, date_ns), (_ELAPSED, _clock.elapsed), (_USED, _clock.used)):
        clocks |= dict.fromkeys(numbers, function)

    def sleep(seconds: float, /) -> None:
        real_sleep(seconds)
        _clock.sleep(seconds)

    def clock_gettime_ns(clock: int, /) -> int:
        return clocks[clock]() if clock in clocks else real_clock(clock)

    def clock_gettime(clock: int, /) -> float:
        return _clock.date() if clock in _WALL else clock_gettime_ns(clock) / 1e9

    def read(seconds: float | None) -> float:
        return _clock.date() if seconds is None else seconds

    replaced: dict[str, Any] = {
        "sleep": sleep,
        "clock_gettime": clock_gettime,
        "clock_gettime_ns": clock_gettime_ns,
        "time": lambda: _clock.date(),
        "time_ns": date_ns,
        "localtime": lambda seconds=None, /: real_local(read(seconds)),
        "gmtime": lambda seconds=None, /: real_utc(read(seconds)),
        "ctime": lambda seconds=None, /: real_ctime(read(seconds)),
        "asctime": lambda moment=None, /: real_asctime(moment or time.localtime()),
        "strftime": lambda form, moment=None, /: real_format(form, moment or time.localtime()),
        "pthread_getcpuclockid": lambda _thread, /: time.CLOCK_THREAD_CPUTIME_ID,
    }
    for name in ("monotonic", "perf_counter"):
        replaced |= {name: lambda: _clock.elapsed() / 1e9, f"{name}_ns": lambda: _clock.elapsed()}
    for name in ("process_time", "thread_time"):
        replaced |= {name: lambda: _clock.used() / 1e9, f"{name}_ns": lambda: _clock.used()}
    vars(time).update(replaced)


def _fix_datetime() -> None:
    import datetime

    def now(kind: Any, tz: Any = None) -> Any:
        return kind.fromtimestamp(_clock.date(), tz)

    def utcnow(kind: Any) -> Any:
        return kind.fromtimestamp(_clock.date(), datetime.UTC).replace(tzinfo=None)

    for method in (now, utcnow):
        _change(datetime.datetime, method.__name__, classmethod(method))


def _advancing(wait: Any, position: int, unit: float) -> Any:
    """Return a function that waits, and lets the clocks advance if it waited in vain: loops that wait for a time end.

    Args:
        wait: a function, or a method of a class, whose result is true if it did not wait in vain.
        position: of the timeout among its arguments.
        unit: of the timeout, in seconds.
    """

    def waiting(*arguments: Any, **named: Any) -> Any:
        result = wait(*arguments, **named)
        if not (any(result) if isinstance(result, tuple) else result):
            timeout = named.get("timeout", arguments[position] if len(arguments) > position else None)
            if timeout is not None and timeout > 0:
                _clock.sleep(timeout * unit)
        return result

    return waiting


def _fix_select() -> None:
    import select

    vars(select)["select"] = _advancing(select.select, 3, 1.0)
    for kind, unit in ((select.epoll, 1.0), (type(select.poll()), 0.001)):
        _change(kind, "poll", _advancing(kind.poll, 1, unit))


def _fix_random_bytes() -> None:
    former: Any = _random.Random

    class Random(former):  # type: ignore[misc]
        """The generator in C, which would seed itself by random bytes of its own."""

        def __new__(cls, *_arguments: Any, **_named: Any) -> Any:
            return former.__new__(cls, 0)

        def __init__(self, seed: Any = None) -> None:
            self.seed(seed)

        def seed(self, seed: Any = None, /) -> None:
            former.seed(self, int.from_bytes(_stream.read(32), "little") if seed is None else seed)

    Random.__module__ = former.__module__
    vars(_random)["Random"] = Random

    _replace_in_os(urandom=_stream.read, getrandom=lambda size, *_flags, **_named: _stream.read(size))


def _fix_numbers() -> None:
    """Hide the numbers of processes and threads, and the kernel's accounts of them and of the machine."""

    def nobody(*_arguments: Any) -> int:
        return 0

    def times() -> Any:
        return os.times_result((_clock.used() / 1e9, 0.0, 0.0, 0.0, _clock.elapsed() / 1e9))

    def sysconf(name: Any, /) -> int:
        return _refuse() if name in ("SC_AVPHYS_PAGES", names.get("SC_AVPHYS_PAGES")) else real_sysconf(name)

    def setitimer(*arguments: Any) -> tuple[float, float]:
        set_timer(*arguments)
        return 0.0, 0.0  # and not what was left of the former timer

    real_sysconf, names, set_timer = os.sysconf, os.sysconf_names, _signal.setitimer
    _replace_in_os(getpid=nobody, getppid=nobody, getpgrp=nobody, getpgid=nobody, getsid=nobody)
    _replace_in_os(times=times, getloadavg=lambda: (0.0, 0.0, 0.0), sysconf=sysconf, statvfs=_refuse, fstatvfs=_refuse)
    vars(_thread)["get_native_id"] = nobody
    vars(_signal).update(setitimer=setitimer, getitimer=lambda _which, /: (0.0, 0.0))
    vars(resource)["getrusage"] = lambda _who, /: resource.struct_rusage((0.0, 0.0, *(0,) * 14))


def _fix_files() -> None:
    """Hide the numbers and times of files: for pipes, the jail's own folders and `/proc` they are new each time."""
    import _frozen_importlib_external as importing

    real = types.ModuleType("posix")
    vars(real).update(vars(posix))
    vars(importing)["_os"] = real  # it compares the times of modules and of their compiled files

    def settled(look: Any) -> Any:
        def stat(*arguments: Any, **named: Any) -> Any:
            result = look(*arguments, **named)
            head = (result.st_mode, 0, 0, 1, result.st_uid, result.st_gid, result.st_size, 0, 0, 0)
            return os.stat_result(head, dict.fromkeys(_TIMES, 0) | {"st_blocks": 0, "st_blksize": 4096, "st_rdev": 0})

        return stat

    _replace_in_os(stat=settled(os.stat), lstat=settled(os.lstat), fstat=settled(os.fstat))
    _change(os.DirEntry, "stat", settled(os.DirEntry.stat))
    _change(os.DirEntry, "inode", lambda _entry, /: 0)


def _refuse(*_arguments: Any) -> Any:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _replace_in_os(**functions: Any) -> None:
    for module in (os, posix):
        vars(module).update(functions)
