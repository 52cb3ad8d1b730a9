"""The device and its libraries, and the rates that it reaches in plain products and copies: ceilings for the others."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.gpu.results import Figures, Part, Settings
from benchmarks.synthetic import peak_mib
from sweet.installation import VERSION, installed_version
from sweet.learn.engine import peak_flops

LIBRARIES = ("torch", "transformers", "triton", "peft", "trl", "deepspeed", "flash-attn", "vllm")
ROUNDS = 20


def device() -> torch.device:
    """The GPU, or the CPU where torch finds none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def synchronize() -> None:
    """Wait until the GPU has done what was asked."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def reset_memory() -> None:
    synchronize()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def memory() -> float:
    """Peak memory in MiB since `reset_memory`: of tensors on the GPU, or of this process."""
    return torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else peak_mib()


def describe() -> Figures:
    """Return the device and the versions that a stage was measured with."""
    where = device()
    found: Figures = {"device": "cpu", "memory_gib": None}
    if where.type == "cuda":
        properties: Any = torch.cuda.get_device_properties(where)
        found = {"device": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
    peak = peak_flops(where)
    return found | {
        "peak_tflops": peak / 1e12 if peak else None,
        "python": platform.python_version(),
        "sweet": VERSION,
        "cuda": torch.version.cuda,
        **{library: installed_version(library) for library in LIBRARIES},
    }


def mfu(operations: float, seconds: float) -> Figures:
    """Return the share of the device's peak in dense bf16 that some operations are, with the reason if it is
    unknown."""
    peak = peak_flops(device())
    if peak:
        return {"mfu": operations / seconds / peak}
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
    return {"mfu": None, "mfu_reason": f"no peak of {name} is known"}


def parts(settings: Settings) -> Sequence[Part]:
    size = 256 if settings.tiny else 8192
    return [Part("products", lambda: products(size)), Part("copies", lambda: copies(size)), Part("host", host)]


def _seconds(work: Callable[[], Any]) -> float:
    """Return the mean seconds of a call after three others."""
    for _ in range(3):
        work()
    synchronize()
    began = time.perf_counter()
    for _ in range(ROUNDS):
        work()
    synchronize()
    return (time.perf_counter() - began) / ROUNDS


def products(size: int) -> Figures:
    """Products of two random square matrices in bf16."""
    left, right = (torch.randn(size, size, dtype=torch.bfloat16, device=device()) for _ in range(2))
    seconds = _seconds(lambda: left @ right)
    return {"size": size, "tflops": 2 * size**3 / seconds / 1e12, **mfu(2 * size**3, seconds)}


def copies(size: int) -> Figures:
    """Copies on the device, bytes read and written."""
    source = torch.zeros(size * size, dtype=torch.float32, device=device())
    target = torch.empty_like(source)
    seconds = _seconds(lambda: target.copy_(source))
    return {"gb_per_s": 2 * source.numel() * 4 / seconds / 1e9}


def host() -> Figures:
    """The host's cores, and the memory and disk that are free."""
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cores": os.cpu_count(), "free_gib": pages / 2**30, "free_disk_gib": shutil.disk_usage(".").free / 2**30}
