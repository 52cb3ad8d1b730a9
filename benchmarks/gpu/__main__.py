"""Measure on one GPU what this project claims about GPUs. It needs the repository with its dependencies, and no
network.

    python -m benchmarks.gpu --list
    python -m benchmarks.gpu --out DIR [--stages a,b] [--again] [--model DIR] [--seconds 540] [--within 580] [--tiny]

Stages run one after the other, each in a process of its own and for --seconds at most; --within limits the whole call.
Each prints its result as one line of JSON and writes it to --out/STAGE.json. The same command goes on where the last
call ended: stages that are done, skipped or failed are not repeated (--again does), and a stage that ran out of time
goes on with its missing parts. A library that is not installed is a skipped part with the reason, and an error is a
failed one. --model is the folder of SmolLM2-135M-Instruct (`python -m benchmarks.gpu.carry` brings it in parts). --tiny
checks everything with models of a few thousand weights on any device, and measures nothing.

Exit status: 0 if nothing is missing and nothing failed, 1 if a part failed, 3 if the time was up, 2 for a wrong call.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.results import Result, Settings, read_result
from benchmarks.gpu.runner import run_stage
from benchmarks.gpu.stages import LIMIT, STAGES, Stage
from sweet.errors import SweetError, UsageError

SHORTEST = 20.0
"""Seconds that must be left for another stage to begin."""
DONE, FAILED, TIME_IS_UP = 0, 1, 3


def forget(stage: Stage, settings: Settings) -> None:
    """Remove the result of a stage, and the runs that it made."""
    for path in (settings.result_file(stage.name), settings.rows_file(stage.name), settings.log_file(stage.name)):
        path.unlink(missing_ok=True)
    shutil.rmtree(settings.work / stage.name, ignore_errors=True)


def existing(stage: Stage, settings: Settings) -> Result | None:
    """Return the result of a stage that needs no further call.

    Raises:
        InputError: the file is not a result.
        UsageError: it is one of tiny models and this call is not, or the reverse.
    """
    path = settings.result_file(stage.name)
    if not path.exists():
        return None
    found = read_result(path)
    if found.tiny != settings.tiny:
        sizes = ("whole", "tiny")
        raise UsageError(
            f"The result is that of {sizes[found.tiny]} models, and this call measures {sizes[settings.tiny]} ones.",
            where=path,
            fix="name another folder with --out",
        )
    return None if found.status == "partial" else found


def measure(stages: Sequence[Stage], settings: Settings, given: argparse.Namespace) -> int:
    """Run the stages, print their results and return the exit status."""
    if not settings.tiny:
        _check_gpu()
    ends = time.monotonic() + given.within if given.within else None
    statuses = set()
    for stage in stages:
        if given.again:
            forget(stage, settings)
        result = existing(stage, settings)
        if result is None:
            left = given.seconds if ends is None else min(given.seconds, ends - time.monotonic())
            if left < min(SHORTEST, given.seconds):
                statuses.add("partial")
                print(f"{stage.name}: not begun, {left:.0f} s are left", file=sys.stderr)
                continue
            result = run_stage(stage, settings, left, whole=left >= given.seconds)
        else:
            print(f"{stage.name}: there is a result already (--again measures again)", file=sys.stderr)
        statuses.add(result.status)
        print(result.model_dump_json(), flush=True)
    return FAILED if "failed" in statuses else TIME_IS_UP if "partial" in statuses else DONE


def _check_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise UsageError("torch finds no GPU.", where="python -m benchmarks.gpu", fix="--tiny checks it on a CPU")


def chosen(names: str | None) -> list[Stage]:
    """Return the stages of these names, separated by commas, in the order of the table.

    Raises:
        UsageError: there is no such stage.
    """
    asked = list(STAGES) if names is None else names.split(",")
    for name in asked:
        if name not in STAGES:
            raise UsageError(f"There is no stage {name!r}.", where="--stages", fix=f"one of {', '.join(STAGES)}")
    return [stage for name, stage in STAGES.items() if name in asked]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="print the stages and what they show")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder of results and runs: %(default)s")
    parser.add_argument("--stages", help="names, separated by commas; default: all")
    parser.add_argument("--again", action="store_true", help="measure again what has a result")
    parser.add_argument("--model", type=Path, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--seconds", type=float, default=LIMIT, help="limit of a stage: %(default)s")
    parser.add_argument("--within", type=float, help="limit of this call in seconds")
    parser.add_argument("--tiny", action="store_true", help="tiny random models on any device")
    given = parser.parse_args(arguments)
    try:
        stages = chosen(given.stages)
        if given.list:
            for stage in stages:
                print(f"{stage.name:12}{stage.shows}")
            return DONE
        if given.model is not None and not (given.model / "config.json").is_file():
            raise UsageError("This is no folder of a model.", where=given.model, fix="--model DIR with its config.json")
        model = None if given.model is None else given.model.absolute()
        settings = Settings(out=given.out.absolute(), tiny=given.tiny, model=model)
        settings.work.mkdir(parents=True, exist_ok=True)
        return measure(stages, settings, given)
    except SweetError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
