"""The `--device` option (see `sweet.hf.resolve_device`), and the CPU cores of this machine."""

from __future__ import annotations

import os
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
