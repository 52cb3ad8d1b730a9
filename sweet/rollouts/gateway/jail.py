"""A jail for a user's program (`--harness-jail`), by bubblewrap: it is started for each dialogue, and ends with it.

The program sees, read-only, the system's programs and libraries, its interpreter with the packages, and the folders of
the files that its command names, in which runs and tasks are hidden. It writes to `/tmp` and `/dev/shm` alone, in
memory. It has no network but the way to the gateway (`sweet.rollouts.gateway.relay`), no process of others, and of the
environment what it needs. What it uses is measured from outside, as of an answer (`sweet.sandbox`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sweet.errors import UsageError
from sweet.hints import option
from sweet.rollouts.gateway import relay
from sweet.sandbox.jail import Interpreter, bounds_processes
from sweet.sandbox.resource_monitor import excess

_SYSTEM = [Path("/", name) for name in ("usr", "bin", "sbin", "lib", "lib64", "opt")]
_SYSTEM += [Path("/etc", name) for name in ("ssl", "ld.so.cache", "alternatives")]
_KEPT = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH")
_WRITABLE = {"/tmp": 1 << 28, "/dev/shm": 1 << 26}
"""Folders in memory, with their bytes."""
MEMORY_BYTES, TASKS = 4 << 30, 1024
"""Resident memory of a program with its processes, and its threads and processes."""


def kept_in_jail(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that a program in a jail gets."""
    return {name: environment[name] for name in _KEPT if name in environment} | {"HOME": "/tmp", "TMPDIR": "/tmp"}


@asynccontextmanager
async def jailed(
    words: Sequence[str], url: str, hidden: Iterable[Path], running: dict[int, str]
) -> AsyncIterator[list[str]]:
    """Open the way to a gateway, and yield the words that start a program in a jail that has it.

    Args:
        words: that start the program outside of one.
        hidden: folders and files that it must not read.
        running: the leaders of the process groups of such programs. One that exceeds a bound is killed, and its value
            becomes what it exceeded.

    Raises:
        UsageError: bubblewrap is not installed, or starts nothing on this machine, or the program has no folder of its
            own.
    """
    for place in _visible(words):
        if str(place) in ("/", *_WRITABLE):
            what = f"A jail shows the folder of the program, which is {place}."
            raise UsageError(what, where=option("harness_jail"), fix="put the program into a folder of its own")
    with tempfile.TemporaryDirectory(prefix="sweet-harness-") as folder:
        way, present = Path(folder, "gateway"), [path.resolve() for path in hidden if path.exists()]
        host, _, port = urlsplit(url).netloc.partition(":")
        async with await relay.serve(str(way), host, int(port)):
            options = _options(words, way, port, present)
            watch = asyncio.create_task(_watch(running))
            try:
                yield _command(words, way, port, present, options)
            finally:
                watch.cancel()


async def _watch(running: dict[int, str]) -> None:
    while True:
        await asyncio.sleep(0.25)
        reasons = await asyncio.to_thread(excess, [*running], MEMORY_BYTES, TASKS)
        for leader in reasons.keys() & running.keys():
            running[leader] = reasons[leader]
            with suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGKILL)


def _options(words: Sequence[str], way: Path, port: str, hidden: Sequence[Path]) -> list[str]:
    """Return the options with which this jail starts here. In a user namespace of its own a program could mount memory
    without bounds: it is refused one where bubblewrap can."""
    reason = ""
    for options in (["--disable-userns"], []):
        try:
            tried = [*_command(words, way, port, hidden, options)[: -len(words)], shutil.which("true") or "true"]
            subprocess.run(tried, capture_output=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            reason = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip() or str(error)
        else:
            return options
    fix = "apt install bubblewrap, or leave --harness-jail out for a program that you trust"
    raise UsageError(f"bubblewrap starts no jail here: {reason[-300:]}", where=option("harness_jail"), fix=fix)


def _command(
    words: Sequence[str], way: Path, port: str, hidden: Sequence[Path], options: Sequence[str] = ()
) -> list[str]:
    """Return the words that start a program in a jail, in the first folder of its files.

    Args:
        way: the Unix socket that leads to the gateway.
        port: of the gateway, the same in the jail.
    """
    visible = [*dict.fromkeys(_visible(words))]
    within = [path for path in hidden if any(map(path.is_relative_to, (*_SYSTEM, *visible)))]
    within = [path for path in within if not set(path.parents).intersection(within)]  # a hidden folder hides them
    arguments = ["bwrap", "--unshare-all", "--unshare-user", *options, "--die-with-parent", "--new-session"]
    arguments += ["--cap-drop", "ALL"]
    arguments += [part for path in _SYSTEM for part in ("--ro-bind-try", str(path), str(path))]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    for place, most in _WRITABLE.items():
        arguments += ["--size", str(most), "--tmpfs", place]
    arguments += [part for path in visible for part in ("--ro-bind", str(path), str(path))]
    for path in within:
        arguments += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", os.devnull, str(path)]
    arguments += ["--ro-bind", relay.__file__, "/tmp/relay.py", "--ro-bind", str(way), "/tmp/gateway"]
    for name in ("/", "/dev", "/proc", *(str(path) for path in within if path.is_dir())):
        arguments += ["--remount-ro", name]  # in /proc, root could set what holds for the machine
    most, python = 2 * TASKS if bounds_processes() else 0, str(Interpreter.current().program)
    program = str(Path(shutil.which(words[0]) or words[0]).absolute())
    words = [program, *(str(Path(word).resolve()) if Path(word).is_file() else word for word in words[1:])]
    arguments += ["--chdir", str(next(iter(_folders(words)), "/tmp")), "--", python, "-I", "-S"]
    return [*arguments, "/tmp/relay.py", "/tmp/gateway", port, str(most), *words]


def _folders(words: Sequence[str]) -> Iterator[Path]:
    """Yield the folders of the files that the arguments of a command name."""
    yield from (Path(word).resolve().parent for word in words[1:] if Path(word).is_file())


def _visible(words: Sequence[str]) -> Iterator[Path]:
    """Yield what the program reads besides the system: its folders, the installations of interpreters, and the packages
    that lie elsewhere, by PYTHONPATH or an editable installation (PEP 610)."""
    yield from _folders(words)
    named = [Path(folder).absolute() for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    yield from (path for path in named if path.is_dir() and str(path) not in ("/", *_WRITABLE))
    program = Path(shutil.which(words[0]) or words[0]).absolute()
    for file in (program, program.resolve(), Interpreter.current().program):
        prefix = file.parent.parent if file.parent.name == "bin" else file.parent
        if prefix != Path("/") and not any(prefix.is_relative_to(path) for path in _SYSTEM):
            yield prefix
        for record in prefix.glob("lib/python*/site-packages/*.dist-info/direct_url.json"):
            with suppress(OSError, ValueError):
                installed = json.loads(record.read_text())
                if installed.get("dir_info", {}).get("editable"):
                    yield Path(url2pathname(urlsplit(installed["url"]).path))
