"""One rank of a training, as torchrun starts it: `python -m sweet.learn.worker FOLDER`.

It reads the job from the folder, joins the other ranks, and runs the loop with the distributed engine. Rank 0 reports
progress and writes the model; a rank that fails writes its error to the folder and ends at once, upon which the
launcher ends the others. A rank does not outlive its launcher (on Linux).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sweet import collector
from sweet.errors import Interrupted, SweetError
from sweet.learn.launcher import write_error

with collector.paused():
    import torch

    from sweet.learn.distributed import PROGRESS
    from sweet.learn.job import Job, checkpoint_path, stop_path
    from sweet.learn.metrics import Record
    from sweet.learn.trainee import Trainee
    from sweet.learn.vision_processor import vision_processor
    from sweet.learn.zero import ZeroEngine, init_ranks, load_in_ranks
    from sweet.llm.pretrained import load_tokenizer
    from sweet.runs.jsonl import JsonlWriter

_PR_SET_PDEATHSIG = 1


def run(folder: Path) -> None:
    """Run this rank's part of the job in `folder`."""
    job = Job.read(folder)
    device = init_ranks(job.device)
    log = JsonlWriter(folder / PROGRESS) if torch.distributed.get_rank() == 0 else None

    def report(record: Record) -> None:
        if log is not None:
            log.write({"record": record})

    vision = None if job.vision is None else vision_processor(job.vision)

    def make_engine(model: Any, clip: float) -> ZeroEngine:
        return ZeroEngine(model, clip, job.zero, device, vision)

    with collector.paused():  # it imports transformers
        trainee = load_in_ranks(job.start, job.device, job.zero, job.settings.clip)
    stop = stop_path(folder)
    loop = job.loop(trainee.model, checkpoint_path(folder), on_step=report, make_engine=make_engine, stop=stop.exists)
    try:
        summary = loop.run(resume=job.resume)
    except Interrupted as error:  # on all ranks
        torch.distributed.destroy_process_group()
        if log is not None:
            log.write({"stopped": error.what})
            log.close()
        return
    weights = loop.final_weights()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    if log is not None and weights is not None:
        trainee = Trainee.load(job.start, "cpu")
        trainee.load_weights(weights)
        if vision is not None:
            vision.save_pretrained(job.output)  # before the model, whose configuration marks the folder as complete
        change_counts = trainee.write(load_tokenizer(job.start.base), job.output)
        log.write({"summary": summary | change_counts})
        log.close()


def main(arguments: Sequence[str], run: Callable[[Path], None] = run) -> int:
    """Do a rank's work in a folder; return its exit status.

    Args:
        run: the work.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    folder = Path(arguments[0])
    try:
        run(folder)
    except Exception as error:
        traceback.print_exc()
        _write_error(folder, error)
        sys.stderr.flush()
        os._exit(1)  # the other ranks wait in a collective operation, and a regular exit would wait for them
    return 0


def _write_error(folder: Path, error: Exception) -> None:
    """Write the error for the command to report."""
    if isinstance(error, torch.OutOfMemoryError):
        fix = "a smaller --micro-batch-tokens, --gradient-checkpointing on, --zero 3, --offload, or --lora"
        error = SweetError("A GPU's memory is full.", fix=fix)
    write_error(folder, os.environ.get("RANK", "0"), error)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    collector.before_exit()
    sys.exit(status)
