"""The pipeline itself on the device: `sweet demo`, a seed of the study of `micro`, and the study of SmolLM2.

What is finished of a run is found again by the next call, so these parts may take longer than a stage's limit. Each
method of a study is a part, and `success` is its share of solved test tasks. For `micro`, `committed_success` is that
of the same seed in benchmarks/results/micro.json, which was computed on a CPU: other rounding samples other replies, so
the two are equal only up to the noise of a seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import smollm2
from benchmarks.gpu.results import Figures, Part, Settings, Skipped
from benchmarks.micro import OUT as COMMITTED
from sweet.errors import TooManyFailures
from sweet.learn.trainee import save_model
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.study.demo import run_demo
from sweet.study.results import StudyResults, read_results
from sweet.study.settings import METHODS, DemoConfig, StudyConfig
from sweet.study.study import run_study
from sweet.tasks.orders.generator import ORDERS
from sweet.tasks.registry import task_kind
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer

TINY_DEMO: Mapping[str, Any] = {"train_tasks": 8, "samples": 4, "eval_tasks": 4, "candidates": 2, "fraction": 0.05}
TINY_STUDY: Mapping[str, Any] = {"train_tasks": 4, "samples": 2, "eval_tasks": 4, "candidates": 2, "fraction": 0.1}
TINY_METHODS = ("zero-shot", "untrained")
SMOL_METHODS = ("zero-shot", "rft", "multi-turn-dpo", "sweet", "sweet-lookahead")
ORDER_TASKS = task_kind("orders")


def demo(settings: Settings) -> Sequence[Part]:
    sizes = TINY_DEMO if settings.tiny else {}
    return [Part("demo", partial(_demo, settings.work / "demo", sizes), resumes=True)]


def _demo(folder: Path, sizes: Mapping[str, Any]) -> Figures:
    run = Run.open_or_create(folder / "run", "code")
    metrics = run_demo(run, DemoConfig.model_validate(sizes), Silent()).metrics
    found: Figures = metrics.as_json()
    return {name: found[name] for name in ("before", "after", "seconds", "steps")}


def micro(settings: Settings) -> Sequence[Part]:
    names = TINY_METHODS if settings.tiny else tuple(METHODS)
    sizes = TINY_STUDY if settings.tiny else {}
    folder = settings.work / "micro"
    return [Part(name, partial(_micro, folder / "study", name, sizes), resumes=True) for name in names]


def _micro(folder: Path, method: str, sizes: Mapping[str, Any]) -> Figures:
    folder.parent.mkdir(parents=True, exist_ok=True)
    config = StudyConfig.model_validate({**sizes, "seeds": 1, "methods": (method,), "figures": False, "jobs": 1})
    found = run_study(folder, config, Silent()).metrics.study
    committed = {} if sizes else {row.method: row for row in read_results(COMMITTED).methods}
    on_cpu = committed[method].success_by_seed[0] if method in committed else None
    return _of_method(found, method) | {"committed_success": on_cpu}


def _of_method(found: StudyResults, method: str) -> Figures:
    [row] = [row for row in found.methods if row.method == method]
    rates = {name: getattr(row, name).mean for name in ("success", "tests_passed", "greedy_success")}
    return rates | {"generated_tokens": row.generated_tokens, "seconds": row.seconds}


def smollm(settings: Settings) -> Sequence[Part]:
    folder = settings.work / "smollm2"
    methods = SMOL_METHODS[:2] if settings.tiny else SMOL_METHODS
    return [
        Part("warm-up", partial(_warm_up, settings, folder), resumes=True),
        *(Part(name, partial(_smollm, settings, folder, name), resumes=True) for name in methods),
    ]


def _model(settings: Settings, folder: Path) -> str:
    """Return the folder of the model; for `--tiny`, where none is given, of a random one.

    Raises:
        Skipped: none is given.
    """
    if settings.model is not None:
        return str(settings.model)
    if not settings.tiny:
        raise Skipped("no model is given: --model DIR")
    path = folder / "random-llama"
    return str(path if (path / "config.json").exists() else random_model(path))


def random_model(path: Path) -> Path:
    """Save a random Llama of a few thousand weights with a tokenizer for orders; return the folder."""
    said = [
        text for task in ORDER_TASKS.load("orders", "train")[:50] for text in (task.hidden, task.problem_description)
    ]
    tokenizer = build_tokenizer(None).train_new_from_iterator([ORDER_TASKS.agent_system(), *said], 900)
    tokenizer.chat_template = TEMPLATES["chatml"]
    save_model(build_model(len(tokenizer)), tokenizer, path)
    return path


def _warm_up(settings: Settings, folder: Path) -> Figures:
    size = smollm2.SIZES["tiny" if settings.tiny else "full"]
    model = _model(settings, folder)
    run = folder / f"warm-up-orders-{size.dialogues}"
    smollm2.warmed_up(model, run, ORDERS["orders"], size, "auto", Silent())
    trainings = [attempt for attempt in Run.open(run).manifest().attempts if attempt.stage == "train-actor"]
    metrics = trainings[-1].metrics
    names = ("examples", "loss", "seconds", "tokens_per_second", "mfu_computed")
    return {"dialogues": size.dialogues, **{name: metrics.get(name) for name in names}}


def _smollm(settings: Settings, folder: Path, method: str) -> Figures:
    given = argparse.Namespace(
        model=_model(settings, folder),
        out=folder,
        tasks="orders",
        size="tiny" if settings.tiny else "full",
        device="auto",
        methods=method,
        first_seed=0,
        seeds=1,
        jobs=1,
    )
    try:
        return _of_method(smollm2.study(given, Silent()).metrics.study, method)
    except TooManyFailures as error:
        if settings.tiny:  # a random model solves no task
            raise Skipped(f"the random model gives nothing to learn from: {error.what.splitlines()[-1]}") from error
        raise
