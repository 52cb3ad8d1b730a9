"""Which Python has OpenRLHF. Its pins fight vllm's, so it may live in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sweet.errors import UsageError

PYTHON_VARIABLE = "SWEET_OPENRLHF_PYTHON"
"""Names the Python of that environment."""

INSTALL = (
    f"python -m venv openrlhf && openrlhf/bin/pip install openrlhf && export {PYTHON_VARIABLE}=$PWD/openrlhf/bin/python"
)

_ASKING = "import importlib.metadata as m; print(m.version('openrlhf'))"
_PATIENCE = 60.0


def find_python() -> tuple[str, str]:
    """The Python that has OpenRLHF, and OpenRLHF's version.

    Raises:
        UsageError: neither this environment nor the one that SWEET_OPENRLHF_PYTHON names has it.
    """
    elsewhere = os.environ.get(PYTHON_VARIABLE)
    # It is run in another directory later. A bare name is looked up, and a link is an environment of its own.
    named = str(Path(elsewhere).expanduser().absolute()) if elsewhere and os.sep in elsewhere else elsewhere
    python = named or sys.executable
    where = f"{PYTHON_VARIABLE}={elsewhere}" if elsewhere else python
    fix = f"{elsewhere} -m pip install openrlhf, or unset {PYTHON_VARIABLE}" if elsewhere else INSTALL
    try:
        asked = subprocess.run(
            [python, "-I", "-c", _ASKING],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{python} cannot be run: {error}", where=where, fix=fix) from error
    if asked.returncode != 0:
        last = asked.stderr.strip().splitlines()[-1:] or [f"exit code {asked.returncode}"]
        raise UsageError(f"OpenRLHF is not installed for {python}: {last[0]}", where=where, fix=fix)
    return python, asked.stdout.strip()
