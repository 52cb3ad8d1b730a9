"""Lists the GPUs as CUDA does, without importing torch: those of nvidia-smi, filtered by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

PROBE_TIMEOUT = 20.0
"""Time-out in seconds; a faulty driver can hang."""

_IN_USE: ContextVar[frozenset[str]] = ContextVar("_IN_USE", default=frozenset())

_QUERY = "--query-gpu=index,uuid,memory.free,memory.total"


@dataclass(frozen=True)
class Gpu:
    """A GPU that a child process sees.

    Attributes:
        free: the free share of its memory, None if unknown.
        word: what selects it in CUDA_VISIBLE_DEVICES: the word there, otherwise its index.
    """

    name: str
    free: float | None = None
    word: str = field(default="", compare=False)


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[Gpu]:
    """The NVIDIA GPUs that CUDA would see in this environment; none if nvidia-smi is missing or fails."""
    command = ("nvidia-smi", _QUERY, "--format=csv,noheader,nounits")
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT, check=True).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return []
    gpus: dict[str, Gpu] = {}
    for row in csv.reader(output.splitlines(), skipinitialspace=True):
        if len(row) == 4 and row[0].isdecimal():
            gpus[row[0]] = Gpu(row[1], _share(row[2], row[3]), row[0])
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
