"""Measure the memory and threads of the processes in a jail from outside, through /proc.

A child cannot exceed its address space, but it may start thousands of threads, and processes if a jail has no seccomp
filter. The parent therefore measures the whole process tree under a zygote during a long call. Processes that cannot be
read (another system, a process that has just ended, a container's) count as 0: the rlimits still hold.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def excess(roots: Iterable[int], memory_bytes: int, tasks: int) -> dict[int, str]:
    """Return for each of some processes the limit that its descendants exceed together, as text, if they do."""
    children, exceeded = _children_of_all(), {}
    for root in roots:
        pids = descendants(root, children)
        usages = [_usage(pid) for pid in pids]
        if sum(resident for resident, _ in usages) > memory_bytes and sum(map(_memory, pids)) > memory_bytes:
            exceeded[root] = f"more than {memory_bytes >> 20} MiB of memory"
        elif sum(threads for _, threads in usages) > tasks:
            exceeded[root] = f"more than {tasks} threads and processes"
    return exceeded


def descendants(root: int, children: Mapping[int, Sequence[int]] | None = None) -> list[int]:
    """Return all descendants of process `root`, whatever their session or group is.

    Args:
        children: of all processes; None for those now.
    """
    children = _children_of_all() if children is None else children
    pids = list(children.get(root, ()))
    for pid in pids:
        pids += children.get(pid, ())
    return pids


def _children_of_all() -> defaultdict[int, list[int]]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    with contextlib.suppress(OSError):
        for name in os.listdir(_PROC):  # noqa: PTH208 (hundreds of files, several times a second: paths take longer)
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    with open(f"{_PROC}/{name}/stat", "rb", 0) as file:  # noqa: PTH123
                        fields = file.read().rpartition(b")")[2].split(None, 2)
                    children[int(fields[1])].append(int(name))
    return children


def _memory(pid: int) -> int:
    """Return resident bytes of a process, those that it shares (after a fork) divided by their users: slow to read."""
    try:
        return int((_PROC / str(pid) / "smaps_rollup").read_bytes().partition(b"\nPss:")[2].split()[0]) << 10
    except (OSError, IndexError):
        return _usage(pid)[0]


def _usage(pid: int) -> tuple[int, int]:
    """Return resident bytes, those that it shares too, and number of threads of a process."""
    try:
        resident = int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
        threads = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[17]
        return resident, int(threads)
    except (OSError, ValueError, IndexError):
        return 0, 0
