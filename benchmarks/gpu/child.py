"""The process of one stage: `python -m benchmarks.gpu.child STAGE SETTINGS`, which `benchmarks.gpu.runner` starts.

It measures the parts that have no row yet, and writes a line before and after each. An error of a part is its result,
also a lack of GPU memory; an error that ends the process is recorded by the runner.
"""

from __future__ import annotations

import gc
import sys
import time
import traceback
from collections.abc import Sequence

import torch

from benchmarks.gpu.machine import describe
from benchmarks.gpu.results import Figures, Part, Row, Settings, Skipped, Status, read_progress, write_line
from benchmarks.gpu.stages import Stage
from sweet.errors import SweetError, first_line


def measured(part: Part) -> Row:
    """Measure a part and return its row."""
    began = time.monotonic()
    figures: Figures = {}
    status: Status = "failed"
    reason = None
    try:
        figures, status = part.measure(), "done"
    except Skipped as error:
        status, reason = "skipped", str(error)
    except torch.OutOfMemoryError as error:
        status, reason = "out of memory", first_line(error)
    except SweetError as error:
        traceback.print_exc()
        reason = " ".join(str(error).split())
    except Exception as error:  # a failed part must not stop the others
        traceback.print_exc()
        reason = f"{type(error).__name__}: {first_line(error)}"
    seconds = round(time.monotonic() - began, 3)
    return Row(part=part.name, status=status, reason=reason, seconds=seconds, figures=figures)


def free_memory() -> None:
    """Return the memory of the last part to the device, and forget the kernels that it compiled.

    torch compiles a function for a few shapes only, and every size of model has its own. Files of kernels stay.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def main(arguments: Sequence[str]) -> None:
    stage, settings = Stage.from_json(arguments[0]), Settings.model_validate_json(arguments[1])
    path = settings.rows_file(stage.name)
    parts = stage.parts(settings)
    known = {row.part for row in read_progress(path).rows}
    write_line(path, machine=describe(), names=[part.name for part in parts])
    for part in parts:
        if part.name in known:
            continue
        write_line(path, begun=part.name, resumes=part.resumes)
        write_line(path, row=measured(part).model_dump(mode="json"))
        free_memory()


if __name__ == "__main__":
    main(sys.argv[1:])
