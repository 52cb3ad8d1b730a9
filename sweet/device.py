"""The `--device` option (see `sweet.hf.resolve_device`) and the CPU cores of this machine."""

from __future__ import annotations

import os
from typing import Literal

CORES = "cores"
"""The key under which the number of cores is recorded."""

Device = Literal["auto", "cpu", "cuda"]


def usable_cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
