"""A jail for a user's program (`--harness-jail`), by bubblewrap: it is started for each dialogue, and ends with it.

The program sees, read-only, the system's programs and libraries, its interpreter with the packages, and the folders of
the files that its command names, in which runs and tasks are hidden. It writes to `/tmp` alone, in memory. It has no
network but the way to the gateway (`sweet.rollouts.gateway.relay`), no process of others, and of the environment what
it needs. `sweet.sandbox` jails answers instead: functions without files, programs and network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from sweet.errors import UsageError
from sweet.hints import option
from sweet.rollouts.gateway import relay

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/etc/ssl", "/etc/ld.so.cache", "/etc/alternatives")
_KEPT = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH")
_MEMORY = 1 << 28
"""Bytes of `/tmp`."""


def kept_in_jail(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that a program in a jail gets."""
    return {name: environment[name] for name in _KEPT if name in environment} | {"HOME": "/tmp", "TMPDIR": "/tmp"}


@asynccontextmanager
async def jailed(words: Sequence[str], url: str, hidden: Iterable[Path]) -> AsyncIterator[list[str]]:
    """Open the way to a gateway, and yield the words that start a program in a jail that has it.

    Args:
        words: that start the program outside of one.
        hidden: folders and files that it must not read.

    Raises:
        UsageError: bubblewrap is not installed, or starts nothing on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="sweet-harness-") as folder:
        way, present = Path(folder, "gateway"), [path for path in hidden if path.exists()]
        host, _, port = urlsplit(url).netloc.partition(":")
        async with await relay.serve(str(way), host, int(port)):
            _check_starts(_command(["true"], way, port, present))
            yield _command(words, way, port, present)


def _command(words: Sequence[str], way: Path, port: str, hidden: Iterable[Path]) -> list[str]:
    """Return the words that start a program in a jail, in the first folder of its files.

    Args:
        way: the Unix socket that leads to the gateway.
        port: of the gateway, the same in the jail.
    """
    shown = [*dict.fromkeys(_shown(words))]
    arguments = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    arguments += [part for path in _SYSTEM for part in ("--ro-bind-try", path, path)]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--size", str(_MEMORY), "--tmpfs", "/tmp"]
    arguments += [part for path in shown for part in ("--ro-bind", str(path), str(path))]
    for path in (path.resolve() for path in hidden):
        if any(path.is_relative_to(folder) for folder in shown):
            arguments += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", os.devnull, str(path)]
    place = f"/tmp/{way.name}"
    arguments += ["--ro-bind", relay.__file__, "/tmp/relay.py", "--bind", str(way), place]
    arguments += ["--chdir", str(next(iter(_folders(words)), "/tmp")), "--", _interpreter(), "-I", "-S"]
    return [*arguments, "/tmp/relay.py", place, port, *words]


def _check_starts(command: list[str]) -> None:
    fix = "apt install bubblewrap, or leave --harness-jail out for a program that you trust"
    if shutil.which("bwrap") is None:
        raise UsageError("A jail for the program needs bubblewrap.", where=option("harness_jail"), fix=fix)
    tried = subprocess.run(command, capture_output=True, timeout=60, check=False)
    if tried.returncode:
        reason = tried.stderr.decode(errors="replace").strip()[-300:]
        raise UsageError(f"bubblewrap starts no jail here: {reason}", where=option("harness_jail"), fix=fix)


def _interpreter() -> str:
    return str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())


def _folders(words: Sequence[str]) -> Iterator[Path]:
    """Yield the folders of the files that the arguments of a command name."""
    yield from (Path(word).resolve().parent for word in words[1:] if Path(word).is_file())


def _shown(words: Sequence[str]) -> Iterator[Path]:
    """Yield what the program reads besides the system: its folders, and the installations of interpreters."""
    yield from _folders(words)
    program = Path(shutil.which(words[0]) or words[0]).absolute()
    for file in (program, program.resolve(), Path(_interpreter())):
        prefix = file.parent.parent if file.parent.name == "bin" else file.parent
        if prefix != Path("/") and not any(prefix.is_relative_to(path) for path in _SYSTEM):
            yield prefix
