"""`sweet demo`: the whole pipeline on a bare machine, by the command `sweet train` (`sweet.pipeline`).

The packaged agent, the packaged tasks and the packaged recipe `micro`: zero-shot evaluation on unseen tasks, dialogues
on training tasks, scores, preferences, critic, candidates, pairs, actor, and the same evaluation of the trained actor.
Everything is written to one run directory, which is kept. With more than one round, all are played and the last actor
is shown: a demo shows how success develops, and does not choose among actors.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sweet.pipeline.config import LoopConfig
from sweet.pipeline.loop import PlayedRound
from sweet.pipeline.metrics import AnyRate, rate_of
from sweet.pipeline.recipe import resolve
from sweet.pipeline.stage import train
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult, about
from sweet.study.metrics import DemoMetrics, RoundMetrics
from sweet.study.settings import Sizes
from sweet.tasks.micro.family import MICRO

SUCCESS, TESTS = "success_rate", "tests_passed"
"""Rates of an evaluation that the demo reports."""


class DemoConfig(Sizes):
    seed: int = Field(default=0, ge=0, json_schema_extra=about("Data"))
    """Seed of sampling and training."""
    eval_tasks: int = Field(default=512, ge=1, json_schema_extra=about("Data"))
    """Unseen tasks of the evaluation before and after."""
    rounds: int = Field(default=1, ge=1, json_schema_extra=about("Method"))
    """Actors trained one after the other: the second also learns from the first one's dialogues, and so on."""
    retrain_critic: bool = Field(default=True, json_schema_extra=about("Method"))
    """Train a critic in each round, on the dialogues of all rounds; otherwise that of the first judges, which overrates
    what later actors learn to say."""


def training(config: DemoConfig) -> LoopConfig:
    """Return the options of `sweet train` that are this demo."""
    return LoopConfig(
        recipe="micro",
        set_=[
            f"rank.candidates={config.candidates}",
            f"rank.fraction={config.fraction}",
            f"eval.sandbox={config.sandbox}",
        ],
        tasks=MICRO.name,
        rounds=config.rounds,
        early_stop=False,
        train_tasks=config.train_tasks,
        samples=config.samples,
        eval_tasks=config.eval_tasks,
        retrain_critic=config.retrain_critic,
        seed=config.seed,
    )


def run_demo(run: Run, config: DemoConfig, reporter: Reporter) -> StageResult[DemoMetrics]:
    """Run the pipeline and return success before and after, the seconds of each step and every artifact."""
    result, loop = train(run, resolve(training(config), run.path), reporter)
    before, *rounds = loop.rounds
    metrics = DemoMetrics(
        tasks=config.eval_tasks,
        success_before=_rate(before, SUCCESS),
        tests_before=_rate(before, TESTS),
        success_after=_rate(rounds[-1], SUCCESS),
        tests_after=_rate(rounds[-1], TESTS),
        rounds=[RoundMetrics(round=one.number, success=_rate(one, SUCCESS), tests=_rate(one, TESTS)) for one in rounds],
        sandbox=str(_scores(before)["sandbox"]),
        seconds=result.metrics.seconds,
        steps=result.metrics.steps,
    )
    return StageResult("demo", run.path, metrics, result.artifacts)


def _scores(played: PlayedRound) -> dict[str, Any]:
    return played.steps["eval test"].metrics


def _rate(played: PlayedRound, name: str) -> AnyRate:
    return rate_of(_scores(played), name)
