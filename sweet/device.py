"""Where a model runs, as it is asked for (`sweet.hf.resolve_device` says what that means on this machine), and the
cores that there are."""

from __future__ import annotations

import os
from typing import Literal

CORES = "cores"
"""Under which they are recorded."""

Device = Literal["auto", "cpu", "cuda"]


def usable_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
