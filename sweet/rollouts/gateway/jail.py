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
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sweet.errors import UsageError
from sweet.hints import option
from sweet.rollouts.gateway import relay

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/etc/ssl", "/etc/ld.so.cache", "/etc/alternatives")
_KEPT = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH")
_MEMORY = 1 << 28
"""Bytes of `/tmp`."""


@dataclass(frozen=True)
class HarnessJail:
    """An open way to the gateway.

    Attributes:
        socket: the Unix socket that leads there.
        port: of the gateway, the same in the jail.
        hidden: folders and files that the program must not read.
    """

    socket: Path
    port: int
    hidden: Sequence[Path]

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the words that start a program in the jail, in the first folder of its files."""
        shown = [*dict.fromkeys(_shown(words))]
        arguments = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        arguments += [part for path in _SYSTEM for part in ("--ro-bind-try", path, path)]
        arguments += ["--proc", "/proc", "--dev", "/dev", "--size", str(_MEMORY), "--tmpfs", "/tmp"]
        arguments += [part for path in shown for part in ("--ro-bind", str(path), str(path))]
        for path in (path.resolve() for path in self.hidden):
            if any(path.is_relative_to(folder) for folder in shown):
                arguments += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", os.devnull, str(path)]
        place = f"/tmp/{self.socket.name}"
        arguments += ["--ro-bind", relay.__file__, "/tmp/relay.py", "--bind", str(self.socket), place]
        arguments += ["--chdir", str(next(iter(_folders(words)), "/tmp")), "--", _interpreter(), "-I", "-S"]
        return [*arguments, "/tmp/relay.py", place, str(self.port), *words]

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the part of an environment that the program gets."""
        own = {name: value for name, value in given.items() if name in _KEPT or name.startswith(("OPENAI_", "SWEET_"))}
        return own | {"HOME": "/tmp", "TMPDIR": "/tmp"}


@asynccontextmanager
async def open_harness_jail(url: str, hidden: Iterable[Path]) -> AsyncIterator[HarnessJail]:
    """Open the way to a gateway.

    Raises:
        UsageError: bubblewrap is not installed, or starts nothing on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="sweet-harness-") as folder:
        address = urlsplit(url)
        assert address.hostname, "the gateway is on this machine"
        jail = HarnessJail(Path(folder, "gateway"), address.port or 80, [path for path in hidden if path.exists()])
        async with await relay.serve(str(jail.socket), address.hostname, jail.port):
            _probe(jail)
            yield jail


def _probe(jail: HarnessJail) -> None:
    fix = "apt install bubblewrap, or leave --harness-jail out for a program that you trust"
    if shutil.which("bwrap") is None:
        raise UsageError("A jail for the program needs bubblewrap.", where=option("harness_jail"), fix=fix)
    tried = subprocess.run(jail.command(["true"]), capture_output=True, timeout=60, check=False)
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
