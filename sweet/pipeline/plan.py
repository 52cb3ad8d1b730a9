"""What `sweet train` would do: the plan of `--dry-run`, what changed settings would repeat, and what is checked first.

All of them walk the loop with steps that do nothing. The walk passes evaluations that are not finished, which no other
step needs; after the first other step that is not finished no step is: the inputs of those after it do not exist yet.
Of these, rollouts are planned as the starting agent's, and for the other stages the plan has the most that they can
have to do.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sweet.datasets.checking import DataCheckConfig, run_data_check
from sweet.errors import InputError, UsageError
from sweet.hints import changed, option_key
from sweet.learn.engine import parameter_count
from sweet.llm.pretrained import is_here, meta_model
from sweet.llm.vllm import option_value
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.loop import Loop
from sweet.pipeline.metrics import LoopPlan, PlannedStep
from sweet.pipeline.phases import phase_of
from sweet.pipeline.recipe import MANAGED, Recipe, base_of, read_run, resolve
from sweet.pipeline.servers import Servers
from sweet.pipeline.steps import Step, StepCache
from sweet.preferences.config import LabelConfig
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.sides import rendering_of
from sweet.runs.run import Run
from sweet.runs.stages import STAGES
from sweet.runs.tokens import TokensByRole
from sweet.scoring.config import EvalConfig
from sweet.stages.base import Reporter, Silent, StageConfig
from sweet.tasks.base import ProtocolName
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TEST, TRAIN, VALIDATION, load_split
from sweet.training import hyperparameters
from sweet.training.config import TrainingConfig
from sweet.units import count

UNPLAYED = 2**31 - 1
"""A seed that no round has."""

_MISSING = cast(Step, SimpleNamespace(id="-", metrics={}, seconds=0.0, artifact=None))
"""Stands for a step that is not finished."""


class Walk(StepCache):
    """Finds finished steps, and remembers the configurations of all.

    Args:
        run: None where there is none yet: nothing is finished.

    Attributes:
        steps: title, configuration and whether it is finished, in their order.
    """

    def __init__(self, run: Run | None) -> None:
        self.steps: list[tuple[str, StageConfig, bool]] = []
        self._finds = run is not None
        if run is not None:
            super().__init__(run, Silent())

    def do(self, config: StageConfig, title: str = "", *, matching: Sequence[str] = ()) -> Step:
        step = self.find(config, matching) if self._finds else None
        self.steps.append((title, config, step is not None))
        if step is None and not title.endswith((TEST, VALIDATION)):
            self._finds = False
        return step or _MISSING

    def file(self, step: Step) -> Path:
        return Path(step.id)  # where an actor is, is no part of a plan

    def tokens(self, step: Step | None = None) -> TokensByRole:
        return {}  # nor what the steps have cost

    @property
    def titles(self) -> list[str]:
        return [title for title, _, _ in self.steps]

    @property
    def finished(self) -> list[str]:
        """The titles of the finished steps."""
        return [title for title, _, is_finished in self.steps if is_finished]


def walk(run: Run | None, recipe: Recipe, reporter: Reporter | None = None) -> Walk:
    """Walk the loop to its end; it ends early only where the rates are known by which it does."""
    walked = Walk(run)
    Loop(recipe, walked, reporter or Silent()).play()
    return walked


def changes(before: Recipe, now: Recipe) -> list[str]:
    """Return the settings that differ, with both values; not those of stages that only one of the recipes has."""
    old, new = before.outcome(), now.outcome()
    return [changed(name, old[name], new[name]) for name in new if name in old and old[name] != new[name]]


def check_phases(servers: Servers, recipe: Recipe) -> None:
    """Check, before the first server is started, that there are GPUs for those of every stage, that the agent's has
    room for a reply, and that pages can be rendered as the recipe says.

    Raises:
        UsageError: there are too few GPUs for a stage, the context is too short, or the photograph of pages is missing.
    """
    agent = servers.tables.get("agent")
    context = option_value([] if agent is None else agent.options, "--max-model-len") or ""
    for _, config, _ in walk(None, recipe).steps:
        if isinstance(config, RolloutConfig | RankConfig) and context.isdecimal() and int(context) < config.max_tokens:
            raise UsageError(
                f"The context of the agent's server has {context} tokens, and a reply up to {config.max_tokens:,}.",
                where="[servers.agent] options, --max-model-len",
                fix="a longer one, or a smaller max-tokens in [rollout] and [rank]",
            )
        if isinstance(config, RolloutConfig):
            rendering_of(task_kind(config.task), config, Silent())
        if isinstance(config, RankConfig):  # the dialogues whose agent replies are not played yet
            config = config.model_copy(update={"agent": config.agent or recipe.train.agent})
        phase = phase_of(servers.run, config, servers.tables)
        if phase is not None:
            servers.place(phase.models, phase.computes)


def repeated(run: Run, before: Recipe, walked: Walk) -> list[str]:
    """Return the finished steps of a recipe that another, which was walked, would do again."""
    again = set(walked.titles) - set(walked.finished)
    return [title for title in walk(run, before).finished if title in again]


def check_changes(run: Run, recipe: Recipe) -> None:
    """Check that a recipe repeats nothing that is finished by the run's own recipe.

    Raises:
        UsageError: it does; names the changes and the steps, unless `redo` is given.
    """
    before = read_run(run.path)
    changed = [] if before is None or recipe.train.redo else changes(before, recipe)
    if before is None or not changed:
        return
    again = repeated(run, before, walk(run, recipe))
    if again:
        raise UsageError(
            f"The settings differ from those of the run: {'; '.join(changed)}. "
            f"These finished steps would be done again: {', '.join(again)}.",
            where=run.path,
            fix=f"name another run, or do them again: sweet train {run.path} --redo (what was made stays)",
        )


def check_online_training(run: Run, loop: Loop) -> None:
    """Check the options of an online training before a dialogue is paid for.

    Raises:
        UsageError: the kind of task cannot be trained online, or the model cannot be trained.
    """
    config = loop.online()
    if not loop.algorithm.rule.asks_critic and StepCache(run, Silent()).find(config) is None:
        plan_of(run, config)


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
    report = run_data_check(loop.source, config, reporter).metrics
    unusable = [finding for finding in report.findings if finding.unusable]
    every = f"sweet data check {shlex.quote(loop.source)} --task {loop.config.task} lists them"
    if unusable and not loop.recipe.of("rollout").get("skip_invalid"):
        first = unusable[0]
        raise InputError(
            f"{report.unusable:,} of {count(report.tasks, 'task')} cannot be scored; {first.task}: {first.what}.",
            path=Path(loop.source),
            line=first.line,
            fix=f"{first.fix} ({every}), or --set rollout.skip-invalid=true",
        )
    counts = Counter(finding.problem for finding in report.findings)
    if counts:
        problems = ", ".join(f"{count} {problem}" for problem, count in counts.items())
        reporter.warn(f"Of {count(report.tasks, 'task')}: {problems}; {every}.")


def plan_of(run: Run | None, config: StageConfig) -> dict[str, Any]:
    """Return what `--dry-run` of a stage itself plans."""
    stage = next(stage for stage in STAGES if stage.config is type(config))
    planned: dict[str, Any] = stage.plan(run, config, Silent()).as_json()
    return planned


def plan_train(run: Run | None, config: LoopConfig, reporter: Reporter) -> LoopPlan:
    """Return the plan of `run_train`; `run` is None where there is no run yet."""
    recipe = resolve(config, None if run is None else run.path)
    base, source = base_of(config, None if run is None else run.path)
    before = None if run is None else read_run(run.path)
    changed = changes(before or base, recipe)
    walked = walk(run, recipe, reporter)
    configs = [stage for _, stage, _ in walked.steps]
    steps: list[PlannedStep] = []

    @cache
    def starting_agents(split: str) -> dict[str, Any]:
        """Return the plan of the starting agent's rollout on a split, which is the first one. With a seed of its own it
        is not one of those that are played already."""
        first = next(rollout for rollout in configs if isinstance(rollout, RolloutConfig) and rollout.split == split)
        return plan_of(run, first.model_copy(update={"agent": recipe.train.agent, "seed": UNPLAYED}))

    for number, (title, stage, is_finished) in enumerate(walked.steps, start=1):
        if is_finished:
            steps.append(PlannedStep(step=title, status="done"))
        elif not any(step.status == "next" for step in steps):
            steps.append(PlannedStep(step=title, status="next", work=plan_of(run, stage)))
        else:
            work = _expected(run, configs[:number], starting_agents)
            steps.append(PlannedStep(step=title, status="to do", work=work))
    done = len(walked.finished)
    again = repeated(run, before, walked) if run is not None and before is not None and changed else []
    missing, used = len(steps) - done, configuration(recipe, walked)
    return LoopPlan(
        steps=steps, done=done, missing=missing, repeated=again, recipe=source, changed=changed, config=used
    )


def table_of(step: str) -> str:
    """Return the table of a recipe that has the options of a step."""
    stage, _, split = step.partition(": ")[2].partition(" ")
    return "evaluation" if stage == "rollout" and split != TRAIN else stage


def configuration(recipe: Recipe, walked: Walk) -> dict[str, Any]:
    """Return the settings that decide the outcome, as `table.option`, as the first step of each table uses them."""
    configs: dict[str, StageConfig] = {"train": recipe.train}
    for title, config, _ in walked.steps:
        configs.setdefault(table_of(title), config)
    return {
        f"{table}.{option_key(name)}": value
        for table, config in configs.items()
        for name, value in (config.outcome_settings() | _by_size(config, recipe.train.task)).items()
        if name not in MANAGED[table]
    }


def _by_size(config: StageConfig, task: str) -> dict[str, Any]:
    """Return the hyperparameters of a training, which depend on the size of its model; empty of another stage, and
    where the model is not on this machine."""
    name = getattr(config, "model", None) or getattr(config, "agent", None)
    if not isinstance(config, TrainingConfig) or not is_here(str(name)):
        return {}
    learner = str(getattr(config, "algorithm", "critic"))
    if getattr(config, "variant", None) == "regression":
        learner = "regression"
    parameters = parameter_count(meta_model(str(name)).parameters())
    protocol: ProtocolName = getattr(config, "protocol", "paper")
    return vars(hyperparameters.resolve(config, learner, parameters, protocol, task_kind(task).dialogue_epochs))


def _expected(
    run: Run | None, configs: Sequence[StageConfig], starting_agents: Callable[[str], dict[str, Any]]
) -> dict[str, Any] | None:
    """Return what the last of these steps has to do, whose inputs do not exist: the most that it can be where that is
    not known.

    Args:
        starting_agents: returns the plan of the starting agent's rollout on a split.
    """
    config = configs[-1]
    if isinstance(config, TrainOnlineConfig):
        if config.critic is None:
            return plan_of(run, config)
        steps = config.most_steps  # the critic that it asks is not trained yet
        return {} if steps is None else {"dialogues": steps * config.tasks_per_step * config.group}
    played = next((earlier for earlier in reversed(configs) if isinstance(earlier, RolloutConfig)), None)
    if played is None:
        return None
    plan = starting_agents(played.split)
    if isinstance(config, RolloutConfig):
        return plan
    dialogues = int(plan.get("dialogues") or 0)
    if isinstance(config, EvalConfig | LabelConfig):
        return {"dialogues": dialogues}
    if not isinstance(config, RankConfig):
        return None
    every = dialogues * played.max_turns
    turns = min(math.ceil(every * config.fraction), config.limit or every)
    return {"turns_at_most": turns, "replies_at_most": turns * config.candidates}
