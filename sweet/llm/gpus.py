"""Detects the installed vllm build and the GPUs that it would see, without importing torch.

Like vllm itself, a CPU build is recognised by the version of its distribution, read with the Python that the program
belongs to, which may be in another environment. GPUs are listed as CUDA does: those that nvidia-smi reports, filtered
by CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path

PROBE_TIMEOUT = 20.0
"""Time-out in seconds of each probe; a faulty driver can hang."""

_IN_USE: ContextVar[frozenset[str]] = ContextVar("_IN_USE", default=frozenset())

_VERSION = "import importlib.metadata as m; print(m.version('vllm'))"
_QUERY = "--query-gpu=index,uuid,memory.free,memory.total"


@dataclass(frozen=True)
class Build:
    """An installed vllm: the program, and its version if known."""

    program: str
    version: str | None

    @property
    def needs_gpu(self) -> bool:
        """Whether it requires a GPU, as far as known; the rules are those of vllm."""
        if os.environ.get("VLLM_TARGET_DEVICE") == "cpu" or sys.platform == "darwin":
            return False
        return "cpu" not in (self.version or "")

    def __str__(self) -> str:
        return f"vllm {self.version}" if self.version else "vllm"


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


def find_build(program: str) -> Build:
    """The build of the vllm that `program` belongs to."""
    python = _python_of(Path(program))
    output = _run_command(python, "-c", _VERSION) if python else None
    return Build(program, output.strip() if output and output.strip() else None)


def _python_of(program: Path) -> str | None:
    """The Python in the program's shebang line, otherwise the one in its folder."""
    try:
        with program.open("rb") as file:
            first = file.readline(4096).decode(errors="replace")
    except OSError:
        return None
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    if words and re.match(r"python[\d.]*$", Path(words[0]).name):
        return words[0]
    sibling = program.resolve().parent / "python"
    return str(sibling) if os.access(sibling, os.X_OK) else None


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[Gpu]:
    """The NVIDIA GPUs that CUDA would see in this environment; none if nvidia-smi is missing or fails."""
    program = shutil.which("nvidia-smi")
    output = _run_command(program, _QUERY, "--format=csv,noheader,nounits") if program else None
    gpus: dict[str, Gpu] = {}
    for row in csv.reader((output or "").splitlines(), skipinitialspace=True):
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


def _run_command(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout
