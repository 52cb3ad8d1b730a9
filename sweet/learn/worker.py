"""One rank of a training, as a launcher starts it: `python -m sweet.learn.worker FOLDER`.

It reads the job from the folder, meets the other ranks, and runs the loop with the engine of many. Rank 0 tells how far
it is and writes the model; every rank that fails leaves its error in the folder and ends at once, upon which the
launcher ends the others. A rank does not outlive its launcher (Linux), nor, where there are several machines, the
command that the training belongs to, whose pulse it watches.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from sweet.errors import SweetError
from sweet.learn.failure import leave
from sweet.learn.heartbeat import STILL, Listener
from sweet.learn.job import FILE, PROGRESS, PULSE, Job, checkpoint_path
from sweet.learn.loop import Loop
from sweet.learn.metrics import Record
from sweet.learn.reference import ReferenceCache
from sweet.learn.trainee import Trainee
from sweet.learn.zero import ZeroEngine, join, loading
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import load_tokenizer
from sweet.runs.jsonl import JsonlWriter

_PR_SET_PDEATHSIG = 1


def work(folder: Path) -> None:
    """Do this rank's part of the job in `folder`."""
    job = Job.read(folder / FILE)
    device = join(job.device)
    log = JsonlWriter(folder / PROGRESS) if torch.distributed.get_rank() == 0 else None

    def tell(record: Record) -> None:
        if log is not None:
            log.write({"record": record})

    def make_engine(model: Any, clip: float) -> ZeroEngine:
        return ZeroEngine(model, clip, job.zero, device)

    # An adapter to start from is merged into whole weights.
    in_parts = job.zero.stage == 3 and find_adapter(job.start.base) is None
    with loading(job.zero, job.settings.clip) if in_parts else nullcontext():
        trainee = Trainee.load(job.start, job.device if in_parts else "cpu")
    loop = Loop(
        trainee.model,
        job.pool,
        job.examples,
        job.objective,
        job.settings,
        digest=job.digest,
        heldout=job.heldout,
        checkpoint=checkpoint_path(folder),
        on_step=tell,
        make_engine=make_engine,
        cache=ReferenceCache(job.start.base),
    )
    summary = loop.run(resume=job.resume)
    weights = loop.kept()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    if log is not None and weights is not None:
        trainee = Trainee.load(job.start, "cpu")
        trainee.put(weights)
        trainee.write(load_tokenizer(job.start.base), job.output)
        log.write({"summary": vars(summary)})
        log.close()


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
    if isinstance(error, torch.OutOfMemoryError):
        fix = "a smaller --micro-batch-tokens, --gradient-checkpointing on, --zero 3, --offload, or --lora"
        error = SweetError("A GPU's memory is full.", fix=fix)
    leave(folder, os.environ.get("RANK", "0"), error)


def watch(pulse: Path) -> None:
    """End this process once the pulse has stood still, or the command has ended."""
    listener = Listener(pulse)
    while listener.still() < STILL and not listener.ended:
        time.sleep(STILL / 10)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
