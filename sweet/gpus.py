"""Lists the GPUs as CUDA does, without importing torch: those of nvidia-smi, filtered by CUDA_VISIBLE_DEVICES.

GPUs that a server holds which another command of this user started are left out: the processes of a server have the
variable `HOLDS`, which says what they hold. What holds nothing any more has ended, so nothing has to be released.
"""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweet.errors import UsageError
from sweet.hints import option

PROBE_TIMEOUT = 20.0
"""Time-out in seconds; a faulty driver can hang."""

HOLDS = "_SWEET_HOLDS_GPUS"
"""In the environment of a server's processes: the process that started it, and its GPUs, `17:GPU-a,GPU-b`."""

_IN_USE: ContextVar[frozenset[str]] = ContextVar("_IN_USE", default=frozenset())

_QUERY = "--query-gpu=index,uuid,memory.free,memory.total"


@dataclass(frozen=True)
class Gpu:
    """A GPU that a child process sees.

    Attributes:
        free: the free share of its memory, None if unknown.
        memory: all of its memory in bytes, None if unknown.
        word: what selects it in CUDA_VISIBLE_DEVICES: the word there, otherwise its index.
    """

    name: str
    free: float | None = None
    memory: int | None = field(default=None, compare=False)
    word: str = field(default="", compare=False)


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[Gpu]:
    """The GPUs of `listed_gpus` that no server of another command holds."""
    every = listed_gpus(environment)
    held = held_gpus() if every else {}
    return [gpu for gpu in every if gpu.name not in held]


def held_gpus() -> dict[str, int]:
    """The GPUs that servers hold on this machine which this user's other commands started, each with the process of
    the command; on a system without /proc none is known."""
    found: dict[str, int] = {}
    prefix, own = f"{HOLDS}=".encode(), _lineage()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it is another user's, or has ended
            continue
        for variable in (one for one in variables if one.startswith(prefix)):
            starter, _, names = variable.removeprefix(prefix).decode(errors="replace").partition(":")
            lives = starter.isdecimal() and Path("/proc", starter).exists()
            if lives and int(starter) not in own:  # a server whose starter is gone is about to end (`sweet.supervisor`)
                found |= dict.fromkeys(names.split(","), int(starter))
    return found


def _lineage() -> set[int]:
    """This process and its ancestors: it may be one of several that a command has."""
    found: set[int] = set()
    process = os.getpid()
    while process and process not in found:
        found.add(process)
        try:
            process = int(Path("/proc", str(process), "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return found


def keep_off_held_gpus() -> None:
    """Let CUDA, which has not started in this process yet, see no GPU that a server of another command holds.

    Raises:
        UsageError: they hold all GPUs.
    """
    held = held_gpus()
    if not held:
        return
    every = listed_gpus()
    kept = [gpu for gpu in every if gpu.name not in held]
    if every and not kept:
        raise all_held(held)
    if len(kept) < len(every):
        os.environ.update(restricted_to(kept))


def all_held(held: Mapping[str, int]) -> UsageError:
    """Return the error where no GPU is left."""
    commands = ", ".join(map(str, sorted({*held.values()})))
    return UsageError(
        f"All GPUs are held by servers that other commands started (process {commands}).",
        where=option("device", "auto"),
        fix=f"end one of them with Ctrl-C, or {option('device', 'cpu')}",
    )


def listed_gpus(environment: Mapping[str, str] = os.environ) -> list[Gpu]:
    """The NVIDIA GPUs that CUDA would see in this environment; none if nvidia-smi is missing or fails."""
    command = ("nvidia-smi", _QUERY, "--format=csv,noheader,nounits")
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT, check=True).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return []
    gpus: dict[str, Gpu] = {}
    for row in csv.reader(output.splitlines(), skipinitialspace=True):
        if len(row) == 4 and row[0].isdecimal():
            memory = int(row[3]) << 20 if row[3].isdecimal() else None
            gpus[row[0]] = Gpu(row[1], _share(row[2], row[3]), memory, row[0])
    allowed = environment.get("CUDA_VISIBLE_DEVICES")
    if allowed is None or not gpus:
        return list(gpus.values())
    seen: list[Gpu] = []
    for word in (word.strip() for word in allowed.split(",")):
        found = Gpu(word) if word.startswith("MIG-") else _find_gpu(word, gpus)
        if found is None:  # as in CUDA, entries after an unknown one are ignored
            break
        seen.append(replace(found, word=word))
    return seen


def free_gpus() -> list[Gpu]:
    """The visible GPUs that are not `in_use`."""
    return [gpu for gpu in visible_gpus() if gpu.name not in _IN_USE.get()]


@contextmanager
def in_use(gpus: Iterable[Gpu]) -> Iterator[None]:
    """Within the block, `free_gpus` leaves these out: servers run on them."""
    token = _IN_USE.set(_IN_USE.get() | {gpu.name for gpu in gpus})
    try:
        yield
    finally:
        _IN_USE.reset(token)


def restricted_to(gpus: Sequence[Gpu], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables with which a process sees only these of the `visible_gpus(environment)`, in this order."""
    variables = {"CUDA_VISIBLE_DEVICES": ",".join(gpu.word for gpu in gpus)}
    if "CUDA_VISIBLE_DEVICES" not in environment:  # the indices are those of nvidia-smi, by default CUDA has others
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return variables


def _find_gpu(word: str, gpus: Mapping[str, Gpu]) -> Gpu | None:
    by_id = [gpu for gpu in gpus.values() if word.startswith("GPU-") and gpu.name.startswith(word)]
    return gpus.get(word) or (by_id[0] if len(by_id) == 1 else None)


def _share(free: str, total: str) -> float | None:
    try:
        return float(free) / float(total)
    except (ValueError, ZeroDivisionError):  # "[N/A]" where GPU and CPU share one memory
        return None
