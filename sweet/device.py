"""The `--device` option (see `sweet.hf.resolve_device`), and the CPU cores and memory of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

CORES = "cores"
"""The key under which the number of cores is recorded."""

Device = Literal["auto", "cpu", "cuda"]


def usable_cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed_threads() -> int:
    """The number of threads that this process may compute with: one for each core, or `OMP_NUM_THREADS`, which is set
    where several programs share the cores."""
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(usable_cores(), int(limit)) if limit.isdecimal() and int(limit) else usable_cores()


def free_memory() -> int:
    """Return the available memory in MB, or the machine's total memory if that is unknown."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) // 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
