"""The study of `sweet bench` with a real language model: SmolLM2-135M-Instruct after a short warm-up.

    python -m benchmarks.smollm2 --model DIR --out DIR [--tasks orders|orders-long] [--device auto|cpu|cuda]
                                 [--size tiny|full] [--first-seed N] [--seeds N] [--jobs N]
                                 [--methods zero-shot,rft,…] [--json]

The tasks are orders in a shop, in natural language (`sweet.tasks.orders`): two wishes to find with two questions, or
three with three. The model is first trained (`train-actor --algorithm sft`) on dialogues of the scripted agent of mixed
quality, in shops that no split has. All methods start from this model, and train adapters. They are compared as in
`sweet.study`: the same offline dialogues, the same sampled replies, the same unseen tasks in shops that no training
had, at temperature 1 and greedy. Finished steps in --out are not repeated: the same command resumes, also with more
seeds or methods.

The machine needs the repository with its dependencies (the folders sweet, benchmarks and tests are enough), peft, and
the model's folder in Hugging Face layout. Nothing is downloaded. Dialogues are sampled by vllm if it is installed, else
by the embedded engine; on a GPU both use bfloat16, as does training, over float32 weights.

The results go to --out/TASKS.json, and those of `full` are added to the ones in benchmarks/results, so that seeds can
be done one after the other, on several machines (--first-seed). A seed takes some hours of one core. `tiny` checks that
everything works, and says nothing about the methods: a model with hardly any warm-up learns from a handful of pairs,
and may not have solved any task to learn from.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args

from sweet.cli import console
from sweet.cli.loops import show_study
from sweet.cli.reporter import ConsoleReporter
from sweet.device import Device
from sweet.errors import SweetError, TooManyFailures
from sweet.files import write_whole
from sweet.hf import resolve_device
from sweet.pipeline.steps import StepCache
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.record import Flat, Record
from sweet.study.outcomes import combined
from sweet.study.results import StudyResults, read_results
from sweet.study.settings import METHODS, Method, Options, StudyConfig
from sweet.study.study import RESULTS, run_study
from sweet.tasks.orders.generator import ORDERS
from sweet.tasks.shops import Dataset
from sweet.training.config import TrainActorConfig

RESULTS_FOLDER = Path(__file__).parent / "results"
"""The folder for the results of a full study."""

COMPARED = (
    "zero-shot",
    "unfiltered",
    "rft",
    "multi-turn-dpo",
    "grpo",
    "sweet",
    "sweet-plus",
    "sweet-lookahead",
    "oracle",
)

WARM_UP: Options = {"lr": 3e-4, "epochs": 1, "batch": 8}
ADAPTER: Options = {"lora": 16}
RATES: Mapping[str, Options] = {
    "critic": {"lr": 3e-4, "epochs": 1},
    "sft": {"lr": 5e-4, "epochs": 1, "batch": 8},
    "rft": {"lr": 5e-4, "epochs": 3, "batch": 8},
    "grpo": {"lr": 3e-4},
    "preferences": {"lr": 5e-4, "epochs": 3},
}
"""The settings in which the trainings differ from those of the packaged agent, a model 140 times smaller."""


@dataclass(frozen=True)
class Size:
    """The size of the experiment.

    Attributes:
        dialogues: the number of scripted dialogues of the warm-up.
        study: sizes of the study.
        training: additional options of every training.
    """

    dialogues: int
    study: Mapping[str, Any]
    training: Options = field(default_factory=dict)


SIZES = {
    "tiny": Size(
        dialogues=8,
        study={"seeds": 1, "train_tasks": 3, "samples": 4, "eval_tasks": 2, "candidates": 4, "fraction": 0.1},
        training={"epochs": 1, "batch": 4, "limit": 2},
    ),
    "full": Size(
        dialogues=768,
        study={"seeds": 3, "train_tasks": 64, "samples": 6, "eval_tasks": 96, "candidates": 8, "fraction": 0.16},
    ),
}


def for_larger(method: Method, training: Options) -> Method:
    """Return the method with adapters and the learning rates of a larger model, and with these options in all its
    trainings."""
    if method.learns == "nothing":
        return method
    actor = method.actor | ADAPTER | RATES.get(method.learns, RATES["preferences"]) | training
    critic = method.critic | ADAPTER | RATES["critic"] | training if method.judge == "critic" else {}
    if method.online:
        actor.pop("limit", None)
    return method.model_copy(update={"actor": actor, "critic": critic})


def warmed_up(model: str, folder: Path, tasks: Dataset, size: Size, device: Device, reporter: Reporter) -> Path:
    """Return the model after the warm-up, which runs unless it is finished. `folder` is the warm-up's run.

    The result is a link, because the name of an actor in another run refers to that run's actor of the same name.
    """
    cache = StepCache(Run.open_or_create(folder, tasks.kind), reporter)
    dialogues = cache.do(
        RolloutConfig(
            task=tasks.kind,
            tasks=f"{tasks.name}-cloning",
            agent="scripted",
            num_tasks=size.dialogues,
            max_turns=tasks.turns,
        )
    )
    options = {**WARM_UP, **size.training, "model": model, "from_": dialogues.id, "device": device}
    actor = cache.file(cache.do(TrainActorConfig(algorithm="sft", **options)))
    link = folder.absolute().with_name(f"{folder.name}-model")
    link.unlink(missing_ok=True)
    link.symlink_to(actor, target_is_directory=True)
    return link


def study(options: argparse.Namespace, reporter: Reporter) -> StageResult[SmolMetrics]:
    """Warm the model up, run the study, and write its results.

    Raises:
        TooManyFailures: a step failed; the error has the result of the others.
    """
    size, tasks = SIZES[options.size], ORDERS[options.tasks]
    folder = options.out / f"study-{tasks.name}"
    warm_up = options.out / f"warm-up-{tasks.name}-{size.dialogues}"
    agent = warmed_up(options.model, warm_up, tasks, size, options.device, reporter)
    sizes = {**size.study, "tasks": tasks.name, "agent": str(agent), "device": options.device}
    if options.seeds is not None:
        sizes["seeds"] = options.seeds
    config = StudyConfig(**sizes, seed=options.first_seed, methods=options.methods, figures=False, jobs=options.jobs)
    methods = {name: for_larger(METHODS[name], size.training) for name in config.methods}
    try:
        run_study(folder, config, reporter, methods=methods)
    except TooManyFailures as error:
        error.result = write_results(options, folder / RESULTS)
        raise
    return write_results(options, folder / RESULTS)


class SmolMetrics(Record):
    study: Annotated[StudyResults, Flat()]
    """The results of the study."""
    results: str
    """The file with the results."""


def write_results(options: argparse.Namespace, file: Path) -> StageResult[SmolMetrics]:
    """Write the study's results with the model, the warm-up and the device."""
    size, found = SIZES[options.size], read_results(file)
    results = found.model_copy(
        update={
            "model": Path(options.model).name,
            "size": options.size,
            "settings": found.settings
            | {
                "agent": f"{Path(options.model).name}, warmed up",
                "warm_up": {"dialogues": size.dialogues, **WARM_UP, **size.training},
            },
            "versions": found.versions | {"device": _device_name(options.device)},
        }
    )
    text = (results.model_dump_json(indent=1) + "\n").encode()
    ours = options.out / f"{options.tasks}.json"
    write_whole(ours, text)
    if options.size == "full":
        recorded = RESULTS_FOLDER / f"{options.tasks}-{resolve_device(options.device).type}.json"
        every = combined(read_results(recorded), results) if recorded.exists() else results
        write_whole(recorded, (every.model_dump_json(indent=1) + "\n").encode())
    return StageResult("smollm2", options.out, SmolMetrics(study=results, results=str(ours)))


def _device_name(device: Device) -> str:
    import torch

    found = resolve_device(device)
    return torch.cuda.get_device_name(found) if found.type == "cuda" else "cpu"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of the model")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs and the results")
    parser.add_argument("--tasks", choices=("orders", "orders-long"), default="orders")
    parser.add_argument("--device", choices=get_args(Device), default="auto")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, help="seeds of data, training and sampling, instead of the size's")
    parser.add_argument("--jobs", type=int, default=1, help="seeds that run at the same time")
    parser.add_argument("--methods", default=",".join(COMPARED), help="methods to compare, separated by commas")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args(arguments)
    try:
        result = study(options, ConsoleReporter())
    except SweetError as error:
        if isinstance(error, TooManyFailures) and error.result is not None:
            console.print_result(error.result, as_json=options.json, draw=show_study)
        console.show_error(error)
        return error.exit_code
    console.print_result(result, as_json=options.json, draw=show_study)
    return 0


if __name__ == "__main__":
    sys.exit(main())
