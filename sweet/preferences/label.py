"""`sweet label`: preferences between whole dialogues, from their scores.

The kind of task says how its rewards are read (sweet.tasks.scores.RewardRule). Where a task can be solved (code), the
first of its best dialogues is chosen over every dialogue with a lower reward, and only where it solves the task: a
preference between two failures says little about what to do. Where a reward is a degree (the likeness of a page),
every two dialogues of a task whose rewards differ enough make a preference, the higher one chosen. The training-time
information is not copied here; whoever trains on a preference takes it from the dialogue's task.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sweet.errors import SweetError
from sweet.hints import Hint, option, stage
from sweet.preferences.config import LabelConfig
from sweet.preferences.metrics import LabelMetrics, LabelWork
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.meta import PreferencesMeta, RolloutsMeta, ScoresMeta
from sweet.stages.plans import Plan, plan_rows
from sweet.stages.rows import Preference
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import RewardRule, Score
from sweet.tasks.trajectory import FAULTS, Trajectory

_ROUNDING = 1e-9
"""0.9 - 0.8 is a little less than 0.1 in binary."""


def newest_to_learn(run: Run, kind: Kind, named: str | None, *, needed_by: str) -> Artifact:
    """The scores or rollouts that are named, else the newest of dialogues on other tasks than the test split's: what
    was only evaluated is not learned from unasked. Where there are no others, the newest.

    Raises:
        UsageError: there are none.
    """
    if named is None:
        for artifact in reversed(run.manifest().of_kind(kind, "done")):
            if RolloutsMeta.of(run.input_of(artifact, "rollouts")).split != "test":
                named = artifact.id
                break
    return run.find(kind, named, needed_by=needed_by)


def run_label(run: Run, config: LabelConfig, reporter: Reporter) -> StageResult[LabelMetrics]:
    """Write the preferences of the run's scores.

    Raises:
        SweetError: no task has two dialogues of which one is to be preferred.
    """
    rule = _rule(run, config)
    scores = newest_to_learn(run, "scores", config.from_, needed_by="label")
    rollouts = run.input_of(scores, "rollouts")
    reporter.say(f"Labelling the dialogues of {rollouts.id} by {scores.id}.")
    with run.attempt("label", config, inputs=[scores, rollouts]) as attempt:
        rewards, usable, scored = _rewarded(run, scores, rollouts)
        found = list(preferences(usable, rewards, rule))
        if not found:
            raise _nothing(usable, rewards, rule)
        meta = PreferencesMeta(rollouts=rollouts.id, margin=rule.margin, scorer=ScoresMeta.of(scores).scorer)
        draft = attempt.start_artifact("preferences", meta=meta.as_json())
        with JsonlWriter(draft.path) as writer:
            for preference in found:
                writer.write(preference)
        metrics = LabelMetrics(
            pairs=len(found),
            tasks=len({t.task_id for t in usable}),
            tasks_with_pairs=len({preference.task_id for preference in found}),
            trajectories=len(usable),
            left_out=scored - len(usable),
        )
        attempt.metrics.update(metrics.as_json())
        artifact = attempt.finish_artifact(draft, rows=len(found))
    return StageResult("label", run.path, metrics, [artifact])


def plan_label(run: Run, config: LabelConfig, reporter: Reporter) -> Plan[LabelWork]:
    """Return the plan of `run_label`: the preferences are made, and not written."""
    scores = newest_to_learn(run, "scores", config.from_, needed_by="label")
    reporter.say(f"Looking at the dialogues of {scores.id}.")
    rewards, usable, scored = _rewarded(run, scores, run.input_of(scores, "rollouts"))
    pairs = sum(1 for _ in preferences(usable, rewards, _rule(run, config)))
    tasks = len({dialogue.task_id for dialogue in usable})
    work = LabelWork(dialogues=scored, left_out=scored - len(usable), tasks=tasks, pairs=pairs)
    return plan_rows(
        run,
        "label",
        config.rates,
        work,
        unit="dialogue",
        metric="trajectories",
        count=len(usable),
        rows=pairs,
    )


def _rule(run: Run, config: LabelConfig) -> RewardRule:
    rule = task_kind(run.manifest().task).rewards
    return rule if config.margin is None else replace(rule, margin=config.margin)


def _rewarded(run: Run, scores: Artifact, rollouts: Artifact) -> tuple[dict[str, float], list[Usable], int]:
    """The rewards by dialogue, the dialogues to learn from, and how many have a reward."""
    rewards = {row.id: row.reward for row in read_jsonl(run.file(scores), Score) if row.reward is not None}
    usable: list[Usable] = []
    scored = 0
    for trajectory in read_jsonl(run.file(rollouts), Trajectory):
        scored += trajectory.id in rewards
        usable += usable_dialogues([trajectory], rewards)
    return rewards, usable, scored


class Usable(NamedTuple):
    """A dialogue that something can be learned from, without what was said: thousands do not fit into memory."""

    id: str
    task_id: str
    sample: int


def usable_dialogues(trajectories: Iterable[Trajectory], rewards: Mapping[str, float]) -> list[Usable]:
    """Those that are rewarded and `learnable`."""
    return [Usable(t.id, t.task_id, t.sample) for t in trajectories if t.id in rewards and learnable(t)]


def learnable(trajectory: Trajectory) -> bool:
    """Whether a dialogue has a turn of the agent and was not ended by a fault."""
    return trajectory.outcome not in FAULTS and bool(trajectory.agent_turns)


def preferences(dialogues: Iterable[Usable], rewards: Mapping[str, float], rule: RewardRule) -> Iterator[Preference]:
    """The preferences of each task, tasks in the order of their ids.

    Dialogues are taken by sample number and then in the order of the file, so that the order in which concurrent
    dialogues happened to end decides nothing.
    """
    tasks: dict[str, list[Usable]] = {}
    for dialogue in sorted(dialogues, key=lambda t: t.sample):
        tasks.setdefault(dialogue.task_id, []).append(dialogue)
    for task_id in sorted(tasks):
        for one, other in _couples(tasks[task_id], rewards, rule):
            high, low = (one, other) if rewards[one.id] >= rewards[other.id] else (other, one)
            top, bottom = rewards[high.id], rewards[low.id]
            if bottom < top and top - bottom >= rule.margin - _ROUNDING:
                yield Preference(
                    task_id=task_id, chosen=high.id, rejected=low.id, chosen_reward=top, rejected_reward=bottom
                )


def _couples(
    dialogues: Sequence[Usable], rewards: Mapping[str, float], rule: RewardRule
) -> Iterable[tuple[Usable, Usable]]:
    """Which dialogues of a task are set against each other: every two, or the first best one that solves it and each
    of the others."""
    if rule.solved is None:
        return itertools.combinations(dialogues, 2)
    best = max(dialogues, key=lambda t: rewards[t.id])
    return ((best, other) for other in dialogues) if rewards[best.id] >= rule.solved else ()


def _nothing(usable: list[Usable], rewards: Mapping[str, float], rule: RewardRule) -> SweetError:
    tasks = {t.task_id for t in usable}
    why = f"{len(usable)} dialogues on {len(tasks)} tasks"
    if rule.solved is None:
        what = "no task has two dialogues whose rewards differ enough"
    else:
        what = "no task has a dialogue that solves it and a worse one"
        why += f", {sum(rewards[t.id] >= rule.solved for t in usable)} of them solve theirs"
    margin = (", ", option("margin", rule.margin)) if rule.margin else ()
    samples = max(4, 2 * max((t.sample for t in usable), default=0) + 2)
    return SweetError(
        Hint(f"There is nothing to prefer: {what} ({why}", *margin, ")."),
        fix=Hint(
            stage("rollout"),
            " with more dialogues a task (",
            option("samples", samples),
            ") or more tasks, ",
            stage("eval"),
            ", ",
            stage("label"),
        ),
    )
