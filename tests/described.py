"""Describes its own process: a program for `test_programs`, which also waits for its end if it is told so."""

import gc
import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

streams: list[Any] = [sys.stdin, sys.stdout, sys.stderr]
handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)]
described = {
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "executable": sys.executable,
    "path": sys.path[0],
    "cwd": str(Path.cwd()),
    "name": __name__,
    "environment": dict(os.environ),
    "streams": [(s.encoding, s.errors, s.line_buffering, s.write_through, s.fileno(), s.isatty()) for s in streams],
    "handlers": list(map(str, handlers)),
    "gc": gc.isenabled(),
    "first filter": warnings.filters[0][0],
    "files": sorted(os.listdir("/proc/self/fd"))[:-1],  # noqa: PTH208 (its own is the last)
    "threads": len([*Path("/proc/self/task").iterdir()]),
    "shown": Path("/proc/self/cmdline").read_text().rstrip("\0").split("\0"),
    "leads": os.getsid(0) == os.getpid(),
}
print(json.dumps(described))
if sys.argv[1:] == ["wait"]:
    print(os.getpid(), flush=True)
    signal.pause()
sys.exit(sys.argv[1] == "3" and 3)
