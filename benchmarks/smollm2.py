"""The study of `sweet demo --study` with a real language model: SmolLM2-135M-Instruct after a short warm-up.

    python -m benchmarks.smollm2 --model DIR --out DIR [--device auto|cpu|cuda] [--size tiny|short|full] [--seeds N]
                                 [--methods zero-shot,rft,…] [--json]

The tasks are `micro-long`: five rules to find with nine questions, in dialogues of ten turns. The model has never seen
such dialogues, so it is first trained (`train-actor --method sft`) on scripted dialogues of mixed quality, on tasks
that no split has. All methods start from this model. They are compared as in `sweet.study`: the same offline dialogues,
the same sampled replies, the same unseen tasks, at temperature 1 and greedy. Finished steps in --out are not repeated:
the same command resumes.

The machine needs the repository with its dependencies (the folders sweet, benchmarks and tests are enough) and the
model's folder in Hugging Face layout: config.json, model.safetensors (538 MB in float32, 269 MB in bfloat16),
tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json. Nothing is downloaded. Dialogues are
sampled by vllm if it is installed, else by the embedded engine; on a GPU both use bfloat16, as does training, over
float32 weights.

`full` requires a GPU. Its results go to --out/smollm2.json and, with every method, to benchmarks/results/smollm2.json.
`short` requires one too: a seed in steps of a few minutes, for `benchmarks.gpu`.
`tiny` checks on any machine that everything works, and says nothing about the methods: a model with hardly any warm-up
learns from a handful of pairs, and may not have solved any task to learn from.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args

from docs.tools.micro_dialogues import scripted_trajectories
from sweet.cli import console
from sweet.cli.loops import show_study
from sweet.cli.reporter import ConsoleReporter
from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.datasets.layout import published_line, published_row
from sweet.device import Device
from sweet.errors import SweetError, TooManyFailures, UsageError
from sweet.files import replacing, write_whole
from sweet.hf import resolve_device
from sweet.pipeline.steps import StepCache
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.record import Flat, Record
from sweet.study.results import StudyResults, read_results
from sweet.study.settings import METHODS, Method, Options, StudyConfig
from sweet.study.study import RESULTS, run_study
from sweet.tasks.micro.family import LONG
from sweet.training.config import TrainActorConfig

COMMITTED_RESULTS = Path(__file__).parent / "results" / "smollm2.json"
"""The file for the results of a full run on a GPU."""

COMPARED = ("zero-shot", "rft", "multi-turn-dpo", "sweet", "no-info", "oracle", "random")

TOLD_SHARE = 0.3
"""Share of the scripted dialogues with the reference in the request, which teach the model to read it."""

WARM_UP: Options = {"lr": 1e-4, "epochs": 1, "batch": 32}
CRITIC: Options = {"lr": 2e-5}
RFT: Options = {"lr": 5e-5}
PREFERENCES: Options = {"lr": 1e-5}
"""Learning rates for a model 140 times as large as the micro agent; everything else is as in its study."""


@dataclass(frozen=True)
class Size:
    """The size of the experiment.

    Attributes:
        dialogues: the number of scripted dialogues of the warm-up.
        study: sizes of the study.
        warm_up, training: additional options of the warm-up and of every other training.
    """

    dialogues: int
    study: Mapping[str, Any]
    warm_up: Options = field(default_factory=dict)
    training: Options = field(default_factory=dict)


SIZES = {
    "tiny": Size(
        dialogues=8,
        study={"seeds": 1, "train_tasks": 3, "samples": 4, "eval_tasks": 2, "candidates": 4, "fraction": 0.1},
        warm_up={"batch": 4},
        training={"epochs": 1, "limit": 2},
    ),
    "short": Size(
        dialogues=8_000,
        study={"seeds": 1, "train_tasks": 400, "samples": 6, "eval_tasks": 250, "candidates": 16, "fraction": 0.03},
    ),
    "full": Size(
        dialogues=20_000,
        study={"seeds": 3, "train_tasks": 2000, "samples": 6, "eval_tasks": 500, "candidates": 16, "fraction": 0.03},
    ),
}
"""One in 25 of the scripted agent's dialogues succeeds, and a model that imitates it is hardly better: `full` plays
enough dialogues for about 500 successes, and ranks a smaller share of their turns."""


def for_larger(method: Method, training: Options) -> Method:
    """Return the method with the learning rates of a larger model, and with these options in all its trainings."""
    actor = method.actor | (RFT if method.learns == "rft" else PREFERENCES) | training
    critic = method.critic | CRITIC | training
    return method.model_copy(
        update={
            "actor": {} if method.learns == "nothing" else actor,
            "critic": critic if method.judge == "critic" else {},
        }
    )


def warmed_up(model: str, folder: Path, size: Size, device: Device, reporter: Reporter) -> Path:
    """Return the model after the warm-up, which runs unless it is finished. `folder` is the warm-up's run.

    The result is a link, because the name of an actor in another run refers to that run's actor of the same name.
    """
    run = Run.open_or_create(folder, "code")
    dialogues = _scripted(run, size.dialogues, reporter)
    options = {**WARM_UP, **size.warm_up, "model": model, "from_": dialogues.id, "device": device}
    cache = StepCache(run, reporter)
    actor = cache.file(cache.do(TrainActorConfig(method="sft", **options)))
    link = folder.absolute().with_name(f"{folder.name}-model")
    link.unlink(missing_ok=True)
    link.symlink_to(actor, target_is_directory=True)
    return link


def _scripted(run: Run, count: int, reporter: Reporter) -> Artifact:
    """Return the scripted dialogues as rollouts of the run, imported once."""
    file = run.path.with_name(f"scripted-{LONG.name}-{count}.jsonl")
    for artifact in run.manifest().of_kind("rollouts", "done"):
        if artifact.meta["tasks"] == str(file):
            return artifact
    with replacing(file) as out:
        for trajectory in scripted_trajectories(count, seed=0, told_share=TOLD_SHARE, family=LONG):
            out.write(published_line(published_row(trajectory, None)))
    return run_data_import(file, run.path, DataImportConfig(), reporter).artifacts[0]


def study(options: argparse.Namespace, reporter: Reporter) -> StageResult[SmolMetrics]:
    """Warm the model up, run the study, and write its results.

    Raises:
        TooManyFailures: a step failed; the error has the result of the others.
    """
    size, folder = SIZES[options.size], options.out / "study"
    agent = warmed_up(options.model, options.out / f"warm-up-{size.dialogues}", size, options.device, reporter)
    common = {"tasks": LONG.name, "agent": str(agent), "device": options.device, "methods": options.methods}
    sizes = {**size.study, **common}
    if options.seeds is not None:
        sizes["seeds"] = options.seeds
    config = StudyConfig(**sizes, figures=False, jobs=1)
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
                "warm_up": {"dialogues": size.dialogues, "told_share": TOLD_SHARE, **WARM_UP, **size.warm_up},
            },
            "versions": found.versions | {"device": _device_name(options.device)},
        }
    )
    text = (results.model_dump_json(indent=1) + "\n").encode()
    ours = options.out / COMMITTED_RESULTS.name
    write_whole(ours, text)
    if options.size == "full" and {row.method for row in results.methods} >= set(COMPARED):
        write_whole(COMMITTED_RESULTS, text)
    return StageResult("smollm2", options.out, SmolMetrics(study=results, results=str(ours)))


def _device_name(device: Device) -> str:
    import torch

    found = resolve_device(device)
    return torch.cuda.get_device_name(found) if found.type == "cuda" else "cpu"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of the model")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs and the results")
    parser.add_argument("--device", choices=get_args(Device), default="auto")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--seeds", type=int, help="seeds of data, training and sampling, instead of the size's")
    parser.add_argument("--methods", default=",".join(COMPARED), help="methods to compare, separated by commas")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args(arguments)
    try:
        if options.size != "tiny" and resolve_device(options.device).type != "cuda":
            what = f"The {options.size} size requires a GPU, and torch finds none."
            raise UsageError(what, where=f"--size {options.size}", fix="--size tiny checks the script on a CPU")
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
