"""One rank of a training, as a launcher starts it: `python -m sweet.learn.rank FOLDER`.

It reads the job from the folder, meets the other ranks, and runs the loop with the engine of many. Rank 0 tells how far
it is and writes the model; every rank that fails leaves its error in the folder and ends at once, upon which the
launcher ends the others. A rank does not outlive its launcher (Linux), nor, where there are several machines, the
command that the training belongs to, whose pulse it watches.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sweet.errors import SweetError, UsageError
from sweet.learn.engine import save_model
from sweet.learn.figures import Record
from sweet.learn.head import attach_head
from sweet.learn.job import FILE, PROGRESS, PULSE, Job, checkpoint_path, error_path
from sweet.learn.loop import Loop
from sweet.learn.reference import ReferenceCache
from sweet.learn.zero import ZeroEngine, join
from sweet.llm.pretrained import load_model, load_tokenizer, stored_type
from sweet.runs.jsonl import JsonlWriter

STILL = 60.0
"""Seconds without a pulse after which the command is dead."""
_PR_SET_PDEATHSIG = 1


def work(folder: Path) -> None:
    """Do this rank's part of the job in `folder`."""
    job = Job.read(folder / FILE)
    device = join(job.device)
    log = JsonlWriter(folder / PROGRESS) if torch.distributed.get_rank() == 0 else None

    def tell(record: Record) -> None:
        if log is not None:
            log.write({"record": record})

    made: list[ZeroEngine] = []

    def make_engine(model: Any, clip: float) -> ZeroEngine:
        made.append(ZeroEngine(model, clip, job.zero, device))
        return made[0]

    model = load_model(job.base, "cpu", "float32")
    if job.objective.target is not None:
        attach_head(model)
    loop = Loop(
        model,
        job.pool,
        job.examples,
        job.objective,
        job.settings,
        digest=job.digest,
        heldout=job.heldout,
        checkpoint=checkpoint_path(folder),
        on_step=tell,
        make_engine=make_engine,
        cache=ReferenceCache(job.base),
    )
    summary = loop.run(resume=job.resume)
    weights = made[0].weights()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    if log is not None and weights is not None:
        _store(job, weights)
        log.write({"summary": vars(summary)})
        log.close()


def _store(job: Job, weights: dict[str, torch.Tensor]) -> None:
    """Write the model as one device would: the one it started from, with these weights, in its type."""
    kind = stored_type(job.base) or torch.float32
    model = load_model(job.base, "cpu", str(kind).removeprefix("torch."))
    if job.objective.target is not None:
        attach_head(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights.pop(name))
    save_model(model, load_tokenizer(job.base), job.output)


def main(arguments: Sequence[str]) -> int:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    folder = Path(arguments[0])
    if (folder / PULSE).exists():
        threading.Thread(target=watch, args=(folder / PULSE,), daemon=True).start()
    try:
        work(folder)
    except Exception as error:
        traceback.print_exc()
        _leave(folder, error)
        sys.stderr.flush()
        os._exit(1)  # the other ranks wait in an exchange, and an orderly end would wait for them
    return 0


def _leave(folder: Path, error: Exception) -> None:
    """The error, for the command to show."""
    if isinstance(error, SweetError):
        told = {"what": error.what, "where": error.where, "fix": error.fix}
    elif isinstance(error, torch.OutOfMemoryError):
        told = {"what": "A GPU's memory is full.", "fix": "a smaller --micro-batch-tokens, --zero 3, or --offload"}
    else:
        told = {"what": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"}
    known = isinstance(error, SweetError | torch.OutOfMemoryError)
    about = {"usage": isinstance(error, UsageError), "known": known, "time": time.time()}
    path = error_path(folder, os.environ.get("RANK", "0"))
    part = path.with_suffix(".part")
    part.write_text(json.dumps(told | about), encoding="utf-8")
    part.replace(path)


def watch(pulse: Path) -> None:
    """End this process once the pulse has stood still."""
    last, since = "", time.monotonic()
    while time.monotonic() - since < STILL:
        time.sleep(STILL / 10)
        try:
            now = pulse.read_text(encoding="utf-8")
        except OSError:
            continue
        if now != last:
            last, since = now, time.monotonic()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
