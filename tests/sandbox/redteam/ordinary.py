"""Run a command as an ordinary user: as this one, or as nobody if this one is root."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
NOBODY = "65534"

OPEN_AND_DROP = """
set -e
if [ "$closed" ]; then
    mount --bind "$prefix" "$hold"
    mount -t tmpfs -o mode=755 none "$closed"
    mkdir -p "$prefix"
    mount --bind "$hold" "$prefix"
fi
exec setpriv --reuid $nobody --regid $nobody --clear-groups "$@"
"""
"""As root, in a separate mount namespace: make the interpreter reachable for other users, then become nobody."""


def can_become_ordinary() -> bool:
    """Return whether `ordinary` works: this user is not root, or root has the programs."""
    return os.geteuid() != 0 or (shutil.which("unshare") is not None and shutil.which("setpriv") is not None)


def ordinary(command: list[str], home: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs as an ordinary user, with `home` as its home folder, and its environment."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(home)}
    if os.geteuid() != 0:
        return command, environment
    prefix = Path(sys.base_prefix)
    closed = next((str(folder) for folder in reversed(prefix.parents) if not folder.stat().st_mode & 0o001), "")
    os.chown(home, int(NOBODY), int(NOBODY))
    hold = home / "hold"
    hold.mkdir()
    environment |= {"prefix": str(prefix), "closed": closed, "hold": str(hold), "nobody": NOBODY}
    return ["unshare", "--mount", "sh", "-c", OPEN_AND_DROP, "sh", *command], environment
