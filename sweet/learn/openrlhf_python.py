"""Finds the Python that has OpenRLHF. Its version pins conflict with vllm's, so it may be in a separate environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sweet.errors import UsageError

PYTHON_VARIABLE = "SWEET_OPENRLHF_PYTHON"
"""Environment variable with the path of that environment's Python."""

INSTALL = (
    f"python -m venv openrlhf && openrlhf/bin/pip install openrlhf && export {PYTHON_VARIABLE}=$PWD/openrlhf/bin/python"
)

_VERSION_QUERY = "import importlib.metadata as m; print(m.version('openrlhf'))"
_TIMEOUT = 60.0


def find_python() -> tuple[str, str]:
    """The Python that has OpenRLHF, and OpenRLHF's version.

    Raises:
        UsageError: neither this environment nor the one that SWEET_OPENRLHF_PYTHON names has it.
    """
    configured = os.environ.get(PYTHON_VARIABLE)
    # It is run in another directory later. A bare name is looked up in PATH; a link must not be resolved (virtual env).
    resolved = str(Path(configured).expanduser().absolute()) if configured and os.sep in configured else configured
    python = resolved or sys.executable
    where = f"{PYTHON_VARIABLE}={configured}" if configured else python
    fix = f"{configured} -m pip install openrlhf, or unset {PYTHON_VARIABLE}" if configured else INSTALL
    try:
        result = subprocess.run(
            [python, "-I", "-c", _VERSION_QUERY],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{python} cannot be run: {error}", where=where, fix=fix) from error
    if result.returncode != 0:
        last = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
        raise UsageError(f"OpenRLHF is not installed for {python}: {last[0]}", where=where, fix=fix)
    return python, result.stdout.strip()
