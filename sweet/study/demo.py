"""Run the demo: `sweet train` with the packaged recipe, agent and tasks."""

from __future__ import annotations

from sweet.pipeline.config import LoopConfig
from sweet.pipeline.metrics import DemoMetrics
from sweet.pipeline.stage import run_train
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.study.settings import DemoConfig
from sweet.tasks.micro.family import MICRO


def training(config: DemoConfig) -> LoopConfig:
    """Return the options of `sweet train` that are this demo."""
    return LoopConfig(
        recipe="micro",
        task="code",
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
    """Run the whole pipeline on the packaged agent and tasks, as `sweet train` does with the packaged recipe `micro`.

    With more than one round, all are played and the last actor is shown: a demo shows how success develops, and does
    not choose among actors.
    """
    result = run_train(run, training(config), reporter)
    loop_metrics = result.metrics
    fields = {name: getattr(loop_metrics, name) for name in loop_metrics.model_fields_set}
    metrics = DemoMetrics(**fields, success_before=loop_metrics.before, success_after=loop_metrics.after)
    return StageResult("demo", run.path, metrics, result.artifacts)
