"""What `sweet train` would do: the plan of `--dry-run`, what changed settings would repeat, and what is checked first.

Both walk the loop with steps that do nothing. The walk passes evaluations that are not finished, which no other step
needs, and ends at the first other step that is not: the inputs of those after it do not exist yet. Of these, rollouts
are planned as the starting agent's, and for the other stages the plan has the most that they can have to do.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sweet.credit.registry import credit_rule
from sweet.datasets.checking import DataCheckConfig, run_data_check
from sweet.errors import InputError, UsageError
from sweet.pipeline.algorithm import ONLINE
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.loop import Loop, step_name
from sweet.pipeline.metrics import LoopPlan, PlannedStep
from sweet.pipeline.recipe import Recipe, read_run, resolve
from sweet.pipeline.steps import Step, StepCache, StepMissing
from sweet.preferences.config import PairConfig
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from sweet.runs.stages import STAGES
from sweet.runs.tokens import TokensByRole
from sweet.stages.base import Reporter, Silent, StageConfig
from sweet.tasks.splits import TEST, TRAIN, VALIDATION, load_split
from sweet.units import count

UNPLAYED = 2**31 - 1
"""A seed that no round has."""


_NOT_PLAYED = cast(Step, SimpleNamespace(id="-", metrics={}, seconds=0.0, artifact=None))
"""Stands for the step of an evaluation that is not finished."""


class Walk(StepCache):
    """Finds finished steps and remembers the first that is missing.

    Args:
        run: None where there is none yet: nothing is finished.
    """

    def __init__(self, run: Run | None) -> None:
        self.finished: list[str] = []
        self.missing: StageConfig | None = None
        self.exists = run is not None
        if run is not None:
            super().__init__(run, Silent())

    def do(self, config: StageConfig, title: str = "", *, matching: Sequence[str] = ()) -> Step:
        found = self.find(config, matching) if self.exists else None
        if found is None:
            self.missing = self.missing or config
            if title.endswith((TEST, VALIDATION)):
                return _NOT_PLAYED
            raise StepMissing
        self.finished.append(title)
        return found

    def tokens(self, step: Step | None = None) -> TokensByRole:
        return {}  # what the steps have cost is no part of a plan


def walk(run: Run | None, recipe: Recipe) -> Walk:
    """Walk the loop up to the first step that is not finished."""
    found = Walk(run)
    with suppress(StepMissing):
        Loop(recipe, found, Silent()).play()
    return found


def outline(recipe: Recipe, selects: bool) -> list[str]:
    """Return the titles of all steps in their order, if training does not end early.

    Args:
        selects: whether validation tasks are played.
    """
    splits = (TEST, *([VALIDATION] if selects else []))
    evaluation = [f"{stage} {split}" for split in splits for stage in ("rollout", "eval")]
    titles = [step_name(0, title) for title in evaluation]
    algorithm = recipe.algorithm
    for number in range(1, recipe.train.rounds + 1):
        learning = algorithm.steps(number, recipe.train.retrain_critic)
        titles += [step_name(number, title) for title in [*learning, *evaluation]]
    return titles


def changes(before: Recipe, now: Recipe) -> list[str]:
    """Return the settings that differ, with both values; not those of stages that only one of the recipes has."""
    old, new = before.outcome(), now.outcome()
    return [f"{name} was {old[name]!r} and is {new[name]!r}" for name in new if name in old and old[name] != new[name]]


def repeated(run: Run, before: Recipe, kept: Sequence[str], planned: Sequence[str]) -> list[str]:
    """Return the finished steps of a recipe that another would do again.

    Args:
        kept, planned: the titles of the other's finished steps, and of all its steps.
    """
    again = set(planned) - set(kept)
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
    walked = walk(run, recipe)
    again = repeated(run, before, walked.finished, outline(recipe, Loop(recipe, walked, Silent()).selects))
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
        UsageError: an option of the rule is wrong, the kind of task cannot be trained online, or the model cannot be
            trained.
    """
    config = loop.online()
    credit_rule(config.algorithm, config.rule_option, "algorithm")
    if not loop.algorithm.asks_critic and StepCache(run, Silent()).find(config) is None:
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


def plan_of(run: Run | None, config: StageConfig) -> dict[str, Any]:
    """Return what `--dry-run` of a stage itself plans."""
    stage = next(stage for stage in STAGES if stage.config is type(config))
    planned: dict[str, Any] = stage.plan(run, config, Silent()).as_json()
    return planned


def plan_train(run: Run | None, config: LoopConfig, reporter: Reporter) -> LoopPlan:
    """Return the plan of `run_train`; `run` is None where there is no run yet."""
    recipe = resolve(config, None if run is None else run.path)
    before = None if run is None else read_run(run.path)
    changed = [] if before is None else changes(before, recipe)
    walked = walk(run, recipe)
    loop = Loop(recipe, walked, reporter)
    planned = outline(recipe, loop.selects)
    titles = planned if walked.missing is not None else walked.finished  # it may have ended early
    done = set(walked.finished)
    plans = _Plans(run, recipe, loop)
    steps: list[PlannedStep] = []
    for title in titles:
        if title in done:
            steps.append(PlannedStep(step=title, status="done"))
            continue
        following = not any(step.status == "next" for step in steps)
        work = plan_of(run, walked.missing) if following and walked.missing is not None else plans.expected(title)
        steps.append(PlannedStep(step=title, status="next" if following else "to do", work=work))
    again: list[str] = []
    if run is not None and before is not None and changed:
        again = repeated(run, before, walked.finished, planned)
    return LoopPlan(
        steps=steps,
        done=len(done),
        missing=len(titles) - len(done),
        changed=changed,
        repeated=again,
    )


class _Plans:
    """The plans of single steps, each made once."""

    def __init__(self, run: Run | None, recipe: Recipe, loop: Loop) -> None:
        self.run, self.loop, self.agent = run, loop, recipe.train.agent
        self.max_turns = RolloutConfig.model_validate(recipe.of("rollout")).max_turns
        self.rank = RankConfig.model_validate(recipe.of("rank"))
        self.pairs = PairConfig.model_validate(recipe.of("pair")).pairs
        self._rollouts: dict[str, dict[str, Any]] = {}

    def expected(self, title: str) -> dict[str, Any] | None:
        """Return the plan of a step whose inputs do not exist; the most that it can be where that is not known."""
        stage, _, split = title.partition(": ")[2].partition(" ")
        if stage == "rollout":
            return self._rollout(split)
        if stage == ONLINE:
            return self._online()
        dialogues = int(self._rollout(split or TRAIN).get("dialogues") or 0)
        if stage == "eval":
            return {"dialogues": dialogues}
        every = dialogues * self.max_turns
        turns = min(math.ceil(every * self.rank.fraction), self.rank.limit or every)
        most: dict[str, dict[str, Any]] = {
            "label": {"dialogues": dialogues},
            "rank": {"turns_at_most": turns, "replies_at_most": turns * self.rank.candidates},
            "pair": {"pairs_at_most": turns * self.pairs},
            "train-actor": {"pairs_at_most_per_round": turns * self.pairs},
        }
        return most.get(stage)

    def _online(self) -> dict[str, Any]:
        """Return the plan of an online training; only its dialogues if it asks a critic, which is not trained yet."""
        config = self.loop.online()
        if not self.loop.algorithm.asks_critic:
            return plan_of(self.run, config)
        steps = config.most_steps
        return {} if steps is None else {"dialogues": steps * config.tasks_per_step * config.group}

    def _rollout(self, split: str) -> dict[str, Any]:
        if split not in self._rollouts:
            # With a seed of its own it is not one of those that are played already.
            played = self.loop.rollout(split, self.agent, 1).model_copy(update={"seed": UNPLAYED})
            self._rollouts[split] = plan_of(self.run, played)
        return self._rollouts[split]
