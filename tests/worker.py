"""Stands in for the Python interpreter of one of pytest-xdist's processes, which the zygote `tests` forks instead.

`python -S tests/worker.py OPTIONS -c CODE` passes its standard streams on, and ends with that process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from tests import programs

    process = programs.Forked(programs.zygote("tests"), sys.argv[sys.argv.index("-c") :], dict(os.environ))
    for stream in (0, 1):
        os.close(stream)  # or the other end would not see when the process closes it
    os._exit(process.wait() & 0xFF)
