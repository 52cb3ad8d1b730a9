"""Determine which tiers work on this machine, by running a probe that tries to escape, and open a sandbox."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sweet.device import usable_cores
from sweet.errors import SweetError, UsageError
from sweet.paths import home
from sweet.sandbox.container import IMAGE_VARIABLE, engine_fault, image
from sweet.sandbox.jail import JailError, bounds_processes
from sweet.sandbox.pool import Sandbox, open_jails
from sweet.sandbox.program import Limits, Program, Tier, TierChoice
from sweet.sandbox.syscalls import FilterError, seccomp_filters

SAFE_TIERS: tuple[Tier, ...] = ("bwrap", "landlock", "docker")
"""The tiers from which `auto` chooses, the strongest first."""

_PROBE = """
import os, socket

def refused(attempt):
    try:
        attempt()
    except (OSError, ValueError):
        return True
    return False

def connect(port):
    with socket.socket() as sock:
        sock.settimeout(1)
        sock.connect(("127.0.0.1", port))

def probe(secrets, folders, port, parent):
    found = {"network": refused(lambda: connect(port)), "signals": refused(lambda: os.kill(parent, 0))}
    found["reading"] = all(refused(lambda: open(path).read()) for path in secrets)
    found["writing"] = all(refused(lambda: open(folder + "/sweet-probe", "x")) for folder in folders)
    found["environment"] = not any(name != "LC_CTYPE" for name in os.environ)
    return found
"""


@dataclass(frozen=True)
class TierStatus:
    """Whether a tier works on this machine, a description or the reason, and the command that makes it work."""

    name: Tier
    works: bool
    detail: str
    fix: str | None = None


def probe_tiers() -> list[TierStatus]:
    """Probe every tier by running a jail, the strongest first."""
    return [probe_tier(tier) for tier in (*SAFE_TIERS, "unsafe")]


@functools.cache
def probe_tier(tier: Tier) -> TierStatus:
    """Run a probe in a jail of this tier that tries forbidden actions. The result is cached in the process."""
    if tier == "unsafe":
        return TierStatus(tier, True, "no isolation, limits only; used only when asked for by name")
    fault = engine_fault() if tier == "docker" else None
    if fault is not None:
        return TierStatus(tier, False, *fault)
    try:
        escapes = find_escapes(tier)
    except JailError as error:
        return TierStatus(tier, False, error.what, _fix_for(tier))
    if escapes:
        return TierStatus(tier, False, f"the jail leaves open: {', '.join(escapes)}", _fix_for(tier))
    return TierStatus(tier, True, _describe(tier))


WORKERS_A_CORE = 3
"""Jails for each core: while one waits for an answer that hangs, or for this process, the others continue."""


@contextmanager
def open_sandbox(
    tier: TierChoice = "auto", workers: int | None = None, limits: Limits | None = None, cores: int | None = None
) -> Iterator[Sandbox]:
    """Open a pool of jails.

    Args:
        tier: `auto` selects the strongest that works, but never `unsafe`.
        workers: number of jails; None for WORKERS_A_CORE for each core.
        limits: the limits of every answer.
        cores: number of cores to use; None for all that this process may use.

    Raises:
        UsageError: the requested tier does not work on this machine.
        SweetError: no safe tier works on this machine.
    """
    with open_jails(_choose(tier), workers or WORKERS_A_CORE * (cores or usable_cores()), limits or Limits()) as box:
        yield box


def _choose(tier: TierChoice) -> Tier:
    if tier != "auto":
        status = probe_tier(tier)
        if not status.works:
            raise UsageError(
                f"The sandbox tier {tier} does not work here: {status.detail}", where="--sandbox", fix=status.fix
            )
        return tier
    tried = []
    for name in SAFE_TIERS:
        status = probe_tier(name)
        if status.works:
            return name
        tried.append(status)
    raise SweetError(
        "No sandbox works here, and code that a model wrote is not run without one. "
        + " ".join(f"{status.name}: {status.detail}" for status in tried),
        where="--sandbox auto",
        fix=" or ".join(status.fix for status in tried if status.fix),
    )


def find_escapes(tier: Tier) -> list[str]:
    """Run a program in the jail and return the forbidden actions that it could perform."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        secret = Path(folder, "secret")
        secret.write_text("not for you")
        secrets = [str(secret), *(str(path) for path in _own_files(home()))]
        folders = [folder, str(home()), tempfile.gettempdir(), "/dev/shm", "/", "."]
        call = f"probe({secrets!r}, {folders!r}, {server.getsockname()[1]}, {os.getpid()})"
        limits = Limits(call_seconds=5.0)
        with open_jails(tier, 1, limits) as box:
            (result,) = box.run([Program(_PROBE, (call,))])[0].results
    if result.status != "value" or not isinstance(result.value, dict):
        raise JailError(f"A {tier} jail returned no result: {result.explanation}.")
    return [name for name, refused in result.value["dict"] if refused is not True]


def _own_files(folder: Path) -> list[Path]:
    try:
        return [path for path in sorted(folder.iterdir()) if path.is_file() and path.stat().st_size][:20]
    except OSError:
        return []


def _describe(tier: Tier) -> str:
    try:
        seccomp_filters()
        also = "seccomp"
    except FilterError:
        also = "no seccomp filter: libseccomp2 is missing"
    if tier == "docker":
        return f"container of {image()} ({IMAGE_VARIABLE} names another), {also}"
    return f"namespaces, {also}" if tier == "bwrap" else "landlock+seccomp"


def _fix_for(tier: Tier) -> str:
    if sys.platform != "linux":
        return "run on Linux"
    if tier == "docker":
        return f"name an image with python3 of 3.11 or newer in {IMAGE_VARIABLE}"
    if tier == "bwrap" and shutil.which("bwrap") is None:
        return "apt-get install bubblewrap"
    if tier == "landlock" or not bounds_processes():
        try:
            seccomp_filters()
        except FilterError:
            return "pip install landlock pyseccomp, and apt-get install libseccomp2"
    if tier == "bwrap":
        return "allow unprivileged user namespaces (sysctl -w kernel.apparmor_restrict_unprivileged_userns=0)"
    return "pip install landlock, on a kernel of 5.13 or newer that has Landlock enabled (lsm=landlock)"
