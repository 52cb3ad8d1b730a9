"""Stages of `benchmarks.gpu` whose parts fail, end their process or take too long."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.gpu.results import Figures, Part, Settings, Skipped
from sweet.errors import SweetError


def one(value: float = 1.0, **more: object) -> Figures:
    return {"seconds": value, "values": [value, 2 * value], **more}


def lacks() -> Figures:
    raise Skipped("a library is not installed")


def wrong() -> Figures:
    raise ValueError("it is wrong\nin two lines")


def refused() -> Figures:
    raise SweetError("It is refused.", fix="another")


def full() -> Figures:
    raise torch.OutOfMemoryError("CUDA out of memory")


def killed() -> Figures:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def all_kinds(_settings: Settings) -> Sequence[Part]:
    return [
        Part("one", one),
        Part("lacks", lacks),
        Part("wrong", wrong),
        Part("refused", refused),
        Part("full", full),
        Part("killed", killed),
        Part("two", lambda: one(2.0, against="one")),
    ]


def lacking(_settings: Settings) -> Sequence[Part]:
    return [Part("lacks", lacks)]


def broken(_settings: Settings) -> Sequence[Part]:
    raise RuntimeError("no parts")


def slow(settings: Settings, resumes: str) -> Sequence[Part]:
    """A part that takes minutes until the file `ready` exists, which a quick one follows."""

    def wait() -> Figures:
        (settings.work / "waits").write_text(str(os.getpid()))
        while not (settings.out / "ready").exists():
            time.sleep(0.05)
        return one()

    return [Part("quick", one), Part("slow", wait, resumes=resumes == "yes"), Part("last", one)]


def endless(_settings: Settings) -> Sequence[Part]:
    def wait() -> Figures:
        time.sleep(200)
        return one()

    return [Part("endless", wait), Part("last", one)]


def is_alive(file: Path) -> bool:
    """Whether the process whose number is in a file still runs."""
    try:
        os.kill(int(file.read_text()), 0)
    except ProcessLookupError:
        return False
    return True
