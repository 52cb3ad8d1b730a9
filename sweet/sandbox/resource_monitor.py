"""What runs in a jail, seen from outside through /proc: how much memory it holds, and how many threads it has.

A child cannot exceed its address space, but it may share it out: threads by the thousand, and processes where a jail
has no seccomp filter. The parent looks at the whole tree beneath a zygote while a call takes long. What cannot be read
(another system, a process that has just gone, a container's processes) counts as nothing: the rlimits still hold.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from pathlib import Path

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def excess(root: int, memory_bytes: int, tasks: int) -> str | None:
    """Which bound the descendants of process `root` exceed together, in words for people, or None."""
    held = threads = 0
    for pid in descendants(root):
        resident, count = _usage(pid)
        held += resident
        threads += count
    if held > memory_bytes:
        return f"more than {memory_bytes >> 20} MiB of memory"
    return f"more than {tasks} threads and processes" if threads > tasks else None


def descendants(root: int) -> list[int]:
    """Every process below `root`, however deep; a session or group of its own hides none."""
    children = _children_of_all()
    found = list(children[root])
    for pid in found:
        found += children[pid]
    return found


def _children_of_all() -> defaultdict[int, list[int]]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    with contextlib.suppress(OSError):
        for entry in _PROC.iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                    children[int(fields[1])].append(int(entry.name))
    return children


def _usage(pid: int) -> tuple[int, int]:
    """Resident bytes and threads of a process."""
    try:
        resident = int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
        threads = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[17]
        return resident, int(threads)
    except (OSError, ValueError, IndexError):
        return 0, 0
