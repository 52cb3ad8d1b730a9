"""`sweet train`: a call that does the missing steps of a run's recipe."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweet.datasets.checking import DataCheckConfig, run_data_check
from sweet.errors import InputError
from sweet.pipeline.algorithm import SWEET
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.logs import logging_rounds
from sweet.pipeline.loop import Loop
from sweet.pipeline.metrics import LoopMetrics
from sweet.pipeline.phases import check_phases, serving
from sweet.pipeline.plan import check_changes
from sweet.pipeline.recipe import Recipe, resolve, write_run
from sweet.pipeline.servers import Servers
from sweet.pipeline.steps import StepCache
from sweet.runs.manifest import now
from sweet.runs.run import Run
from sweet.runs.stages import stage_named
from sweet.stages.base import Reporter, Silent, StageConfig, StageResult
from sweet.stages.live import LiveReporter
from sweet.stages.prices import PricedConfig, no_prices
from sweet.stages.rounds import RECIPE
from sweet.tasks.splits import TEST, TRAIN, load_split
from sweet.training.loggers import check_logs
from sweet.units import count


def run_train(run: Run, config: LoopConfig, reporter: Reporter) -> StageResult[LoopMetrics]:
    """Do the steps that are missing and return the results of all rounds.

    Raises:
        UsageError: changed settings would repeat finished steps; or another call is working on this run.
        SweetError: a stage failed.
    """
    recipe = resolve(config, run.path)
    result, _ = train(run, recipe, reporter)
    return result


def train(run: Run, recipe: Recipe, reporter: Reporter) -> tuple[StageResult[LoopMetrics], Loop]:
    """Do the missing steps of a recipe; see `run_train`. Also returns the loop, which has every step."""
    if recipe.train.max_cost is not None and recipe.prices is None:
        raise no_prices()
    check_logs(recipe.train.log_to)
    with run.exclusive("train"):
        check_changes(run, recipe)
        write_run(recipe, run.path)
        with (
            run.attempt("train", recipe.train) as attempt,
            _servers(run, recipe, attempt.log_path, reporter) as servers,
        ):
            live = LiveReporter(reporter, attempt)

            @contextmanager
            def around(stage: StageConfig, title: str) -> Iterator[StageConfig]:
                with live.step(title), serving(servers, _with_options_of_run(stage, recipe, run)) as served:
                    yield served

            on_round = logging_rounds(run, recipe.train, reporter, now())
            loop = Loop(recipe, StepCache(run, reporter, around=around), reporter, on_round)
            if not run.manifest().of_kind("rollouts"):
                name, rounds = loop.algorithm.name, count(recipe.train.rounds, "round")
                learns = rounds if name == SWEET else f"{name}, {rounds}"
                reporter.say(f"A new run: agent {recipe.train.agent}, tasks {loop.source}, {learns}.")
                check_file(loop, reporter)
            if loop.algorithm.online:
                check_online_training(run, loop)
            metrics = loop.play()
            attempt.metrics.update(metrics.as_json())
    return StageResult("train", run.path, metrics, loop.artifacts), loop


def _with_options_of_run(stage: StageConfig, recipe: Recipe, run: Run) -> StageConfig:
    """Return the configuration of a stage with the prices of the recipe and the limit of the run's cost, and with the
    logs of the run unless it has its own."""
    found: dict[str, object] = {}
    if recipe.prices is not None and isinstance(stage, PricedConfig) and stage.asks_models:
        found |= {"prices": run.path / RECIPE, "max_cost": recipe.train.max_cost}
    if "log_to" in type(stage).model_fields.keys() - stage.model_fields_set:
        found["log_to"] = recipe.train.log_to
    return stage.model_copy(update=found)


def check_online_training(run: Run, loop: Loop) -> None:
    """Check the options of an online training before a dialogue is paid for.

    Raises:
        UsageError: an option of the rule is wrong, the rule or the kind of task cannot be trained online, or the model
            cannot be trained.
    """
    from sweet.online.prepare import online_rule

    config = loop.online()
    online_rule(config)
    if not loop.algorithm.asks_critic and StepCache(run, Silent()).find(config) is None:
        online = stage_named("train-online")
        assert online is not None
        online.plan(run, config, Silent())


def check_file(loop: Loop, reporter: Reporter) -> None:
    """Check the tasks of a file as `sweet data check` does, before the first dialogue is paid for.

    Raises:
        UsageError: the file has no tasks to train on, or none to test on.
        InputError: a task cannot be scored, unless the recipe says that rollouts skip it; names the line of the first.
        SweetError: there is no sandbox, or no browser.
    """
    if loop.kind.has_dataset(loop.source) or not Path(loop.source).is_file():
        return
    for split in (TRAIN, TEST):
        load_split(loop.kind, loop.source, split, loop.holdout)
    config = DataCheckConfig(task=loop.config.task, sandbox=loop.recipe.of("eval").get("sandbox", "auto"))
    found = run_data_check(loop.source, config, reporter).metrics
    unusable = [finding for finding in found.findings if finding.unusable]
    every = f"sweet data check {shlex.quote(loop.source)} --task {loop.config.task} lists them"
    if unusable and not loop.recipe.of("rollout").get("skip_invalid"):
        first = unusable[0]
        raise InputError(
            f"{found.unusable:,} of {count(found.tasks, 'task')} cannot be scored; {first.task}: {first.what}.",
            path=Path(loop.source),
            line=first.line,
            fix=f"{first.fix} ({every}), or --set rollout.skip-invalid=true",
        )
    counts = Counter(finding.problem for finding in found.findings)
    if counts:
        problems = ", ".join(f"{count} {problem}" for problem, count in counts.items())
        reporter.warn(f"Of {count(found.tasks, 'task')}: {problems}; {every}.")


def _servers(run: Run, recipe: Recipe, log: Path, reporter: Reporter) -> Servers:
    train = recipe.train
    servers = Servers(run, recipe.servers.by_role(), log, reporter, task=train.task, tasks=train.tasks)
    check_phases(servers, recipe)
    return servers
