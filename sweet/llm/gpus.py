"""What a vllm that is started here would run on: its build, and the GPUs it would see. Found out without torch.

vllm itself tells a CPU build by the version of its distribution; that is read with the Python that the program
belongs to, which may be one of another environment. GPUs are counted as CUDA counts them: those of nvidia-smi, as far
as CUDA_VISIBLE_DEVICES lets them through.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROBE_TIMEOUT = 20.0
"""Seconds a look at the machine may take; a driver in trouble can hang."""

_VERSION = "import importlib.metadata as m; print(m.version('vllm'))"
_QUERY = "--query-gpu=index,uuid,memory.free,memory.total"


@dataclass(frozen=True)
class Build:
    """An installed vllm: the program, and its version where that is known."""

    program: str
    version: str | None

    @property
    def needs_gpu(self) -> bool:
        """Whether it is not known to run on a CPU; the rules are vllm's own."""
        if os.environ.get("VLLM_TARGET_DEVICE") == "cpu" or sys.platform == "darwin":
            return False
        return "cpu" not in (self.version or "")

    def __str__(self) -> str:
        return f"vllm {self.version}" if self.version else "vllm"


@dataclass(frozen=True)
class Gpu:
    """A GPU that a child process sees. `free` is the share of its memory that is free, None where nobody tells."""

    name: str
    free: float | None = None


def find_build(program: str) -> Build:
    """What is installed beside the program."""
    python = _python_of(Path(program))
    output = _run_command(python, "-c", _VERSION) if python else None
    return Build(program, output.strip() if output and output.strip() else None)


def _python_of(program: Path) -> str | None:
    """The Python of the program's first line, else the one in its folder."""
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
    """The GPUs of NVIDIA that CUDA would see in this environment; none where nvidia-smi is not there or fails."""
    program = shutil.which("nvidia-smi")
    output = _run_command(program, _QUERY, "--format=csv,noheader,nounits") if program else None
    gpus: dict[str, Gpu] = {}
    for row in csv.reader((output or "").splitlines(), skipinitialspace=True):
        if len(row) == 4 and row[0].isdecimal():
            gpus[row[0]] = Gpu(row[1], _share(row[2], row[3]))
    allowed = environment.get("CUDA_VISIBLE_DEVICES")
    if allowed is None or not gpus:
        return list(gpus.values())
    seen: list[Gpu] = []
    for word in (word.strip() for word in allowed.split(",")):
        found = Gpu(word) if word.startswith("MIG-") else _find_gpu(word, gpus)
        if found is None:  # as CUDA does: what follows a name it does not know is not seen
            break
        seen.append(found)
    return seen


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
