"""`sweet train`: a call that does the missing steps of a run's recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sweet.pipeline.algorithm import SWEET
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.loop import Loop
from sweet.pipeline.metrics import LoopMetrics
from sweet.pipeline.needs import check_needs
from sweet.pipeline.phases import serving
from sweet.pipeline.plan import check_changes, check_file, check_online_training, check_phases
from sweet.pipeline.recipe import Recipe, resolve, write_run
from sweet.pipeline.servers import Servers
from sweet.pipeline.steps import StepCache
from sweet.runs.run import Run
from sweet.runs.stages import RECIPE
from sweet.scoring.results.compare import paired_figures
from sweet.scoring.results.run_result import result_of
from sweet.stages.base import Reporter, StageConfig, StageResult
from sweet.stages.live import LiveReporter
from sweet.stages.prices import PricedConfig, no_prices
from sweet.training.loggers import check_logs
from sweet.units import count


def run_train(run: Run, config: LoopConfig, reporter: Reporter) -> StageResult[LoopMetrics]:
    """Do the steps that are missing and return the results of all rounds.

    Raises:
        UsageError: changed settings would repeat finished steps; or another call is working on this run.
        SweetError: a stage failed.
    """
    recipe = resolve(config, run.path)
    if recipe.train.max_cost is not None and recipe.prices is None:
        raise no_prices()
    check_logs(recipe.train.log_to)
    with run.exclusive("train"):
        check_changes(run, recipe)
        write_run(recipe, run.path)
        with (
            run.attempt("train", recipe.train) as attempt,
            Servers(run, recipe.servers.by_role(), attempt.log_path, reporter, task=recipe.train.task) as servers,
        ):
            check_phases(servers, recipe)
            live = LiveReporter(reporter, attempt)

            @contextmanager
            def around(stage: StageConfig, title: str) -> Iterator[StageConfig]:
                stage = _with_options_of_run(stage, recipe, run)
                with live.step(title, loop.known_rates()), serving(servers, stage) as served:
                    yield served

            loop = Loop(recipe, StepCache(run, reporter, around=around), reporter)
            if not run.manifest().of_kind("rollouts"):
                name, rounds = loop.algorithm.rule.name, count(recipe.train.rounds, "round")
                learns = rounds if name == SWEET else f"{name}, {rounds}"
                reporter.say(f"A new run: agent {recipe.train.agent}, tasks {loop.source}, {learns}.")
                check_file(loop, reporter)
            check_needs(run, recipe, servers)
            if loop.algorithm.online:
                check_online_training(run, loop)

            def record_metrics(metrics: LoopMetrics) -> None:
                attempt.metrics.update(metrics.as_json())
                attempt.record()

            metrics = loop.play(record_metrics)
            manifest = run.manifest()
            if (result := result_of(manifest)) is not None and (paired := paired_figures(run, manifest, result)):
                metrics = metrics.model_copy(update={"paired": paired.get(metrics.metric)})
            attempt.metrics.update(metrics.as_json())
    return StageResult("train", run.path, metrics, loop.artifacts)


def _with_options_of_run(stage: StageConfig, recipe: Recipe, run: Run) -> StageConfig:
    """Return the configuration of a stage with the prices of the recipe and the limit of the run's cost, and with the
    logs of the run unless it has its own or, with OpenRLHF, can have none."""
    overrides: dict[str, object] = {}
    if recipe.prices is not None and isinstance(stage, PricedConfig):
        overrides |= {"prices": run.path / RECIPE, "max_cost": recipe.train.max_cost}
    without_logs = getattr(stage, "engine", None) == "openrlhf"
    if not without_logs and "log_to" in type(stage).model_fields.keys() - stage.model_fields_set:
        overrides["log_to"] = recipe.train.log_to
    return stage.model_copy(update=overrides)
