"""`sweet label`: preferences between whole dialogues, by their scores.

The kind of task defines how rewards are read (sweet.tasks.scores.RewardRule). If a task can be solved (code), the first
of its best dialogues is chosen over every dialogue with a lower reward, and only if it solves the task: a preference
between two failures is not informative. If a reward is a degree (the similarity of pages), every two dialogues of a
task whose rewards differ enough make a preference. The training-time information is not copied: it is read
from the dialogue's task.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sweet.errors import SweetError
from sweet.learn.rows import Preference
from sweet.preferences.config import LabelConfig
from sweet.runs.jsonl import read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.failures import NOTHING_TO_PREFER
from sweet.stages.frame import Frame
from sweet.stages.meta import PreferencesMeta, ScoresMeta
from sweet.stages.plans import Plan
from sweet.stages.record import Record
from sweet.stages.unseen_tasks import newest_to_learn
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import RewardRule, Score
from sweet.tasks.trajectory import Trajectory
from sweet.units import count

_ROUNDING = 1e-9
"""Tolerance of margins: 0.9 - 0.8 is slightly less than 0.1 in binary."""


class NoPreference(SweetError):
    """No task has two dialogues with a preference."""


class LabelMetrics(Record):
    """The metrics of `sweet label`, and what its plan counts."""

    pairs: int
    """preferences made"""
    tasks: int
    """tasks of the usable dialogues"""
    tasks_with_pairs: int
    """tasks with at least one preference"""
    trajectories: int
    """usable dialogues"""
    left_out: int
    """scored dialogues that are not usable: ended by a fault, without a turn of the agent, or not among the
    rollouts any more"""


def run_label(run: Run, config: LabelConfig, reporter: Reporter) -> StageResult[LabelMetrics]:
    """Write the preferences of the run's scores.

    Raises:
        NoPreference: no task has two dialogues with a preference.
    """
    rule = _rule(run, config)
    scores = newest_to_learn(run, "scores", config.from_, allow_test=config.allow_test, needed_by="label")
    rollouts = run.input_of(scores, "rollouts")
    reporter.say(f"Labelling the dialogues of {rollouts.id} by {scores.id}.")
    with Frame("label", run, config, reporter, inputs=[scores, rollouts]) as frame:
        rewards, usable = _read_rewards(run, scores, rollouts)
        pairs = list(preferences(usable, rewards, rule))
        if not pairs:
            raise _no_preference(usable, rewards, rule)
        meta = PreferencesMeta(rollouts=rollouts.id, margin=rule.margin, scorer=ScoresMeta.of(scores).scorer)
        rows = frame.rows("preferences", meta)
        for preference in pairs:
            rows.write(preference)
        metrics = _metrics(rewards, usable, pairs)
        return frame.result(metrics, frame.finish(rows, metrics))


def plan_label(run: Run, config: LabelConfig, reporter: Reporter) -> Plan[LabelMetrics]:
    """Return the plan of `run_label`: the preferences are made, and not written."""
    scores = newest_to_learn(run, "scores", config.from_, allow_test=config.allow_test, needed_by="label")
    reporter.say(f"Reading the dialogues of {scores.id}.")
    rewards, usable = _read_rewards(run, scores, run.input_of(scores, "rollouts"))
    pairs = list(preferences(usable, rewards, _rule(run, config)))
    return Plan(work=_metrics(rewards, usable, pairs), assumed=[])


def _metrics(rewards: Mapping[str, float], usable: Sequence[Usable], pairs: Sequence[Preference]) -> LabelMetrics:
    return LabelMetrics(
        pairs=len(pairs),
        tasks=len({dialogue.task_id for dialogue in usable}),
        tasks_with_pairs=len({preference.task_id for preference in pairs}),
        trajectories=len(usable),
        left_out=len(rewards) - len(usable),
    )


def _rule(run: Run, config: LabelConfig) -> RewardRule:
    rule = task_kind(run.manifest().task).rewards
    return rule if config.margin is None else replace(rule, margin=config.margin)


def _read_rewards(run: Run, scores: Artifact, rollouts: Artifact) -> tuple[dict[str, float], list[Usable]]:
    """Return the rewards by dialogue, and the dialogues to learn from."""
    rewards = {row.id: row.reward for row in read_jsonl(run.file(scores), Score) if row.reward is not None}
    usable: list[Usable] = []
    for trajectory in read_jsonl(run.file(rollouts), Trajectory):
        usable += usable_dialogues([trajectory], rewards)
    return rewards, usable


class Usable(NamedTuple):
    """A dialogue to learn from, without its turns: those of thousands of dialogues would not fit into memory."""

    id: str
    task_id: str
    sample: int


def usable_dialogues(trajectories: Iterable[Trajectory], rewards: Mapping[str, float]) -> list[Usable]:
    """Return the dialogues that have a reward and are `learnable`."""
    return [Usable(t.id, t.task_id, t.sample) for t in trajectories if t.id in rewards and learnable(t)]


def learnable(trajectory: Trajectory) -> bool:
    """Return whether a dialogue has a turn of the agent and did not end by a fault."""
    return not trajectory.ended_by_fault and bool(trajectory.agent_turns)


def preferences(dialogues: Iterable[Usable], rewards: Mapping[str, float], rule: RewardRule) -> Iterator[Preference]:
    """Yield the preferences of each task, tasks in the order of their ids.

    Dialogues are ordered by sample number and then as in the file, so the order in which concurrent dialogues ended
    does not matter.
    """
    tasks: dict[str, list[Usable]] = {}
    for dialogue in sorted(dialogues, key=lambda t: t.sample):
        tasks.setdefault(dialogue.task_id, []).append(dialogue)
    for task_id in sorted(tasks):
        for first, second in _dialogue_pairs(tasks[task_id], rewards, rule):
            high, low = (first, second) if rewards[first.id] >= rewards[second.id] else (second, first)
            top, bottom = rewards[high.id], rewards[low.id]
            if bottom < top and top - bottom >= rule.margin - _ROUNDING:
                yield Preference(
                    task_id=task_id, chosen=high.id, rejected=low.id, chosen_reward=top, rejected_reward=bottom
                )


def _dialogue_pairs(
    dialogues: Sequence[Usable], rewards: Mapping[str, float], rule: RewardRule
) -> Iterable[tuple[Usable, Usable]]:
    """Return the dialogues of a task to compare: every two, or the first best one that solves it with each other."""
    if rule.solved is None:
        return itertools.combinations(dialogues, 2)
    best = max(dialogues, key=lambda t: rewards[t.id])
    return ((best, other) for other in dialogues) if rewards[best.id] >= rule.solved else ()


def _no_preference(usable: list[Usable], rewards: Mapping[str, float], rule: RewardRule) -> NoPreference:
    tasks = {t.task_id for t in usable}
    why = f"{count(len(usable), 'dialogue')} on {count(len(tasks), 'task')}"
    if rule.solved is None:
        what = "no task has two dialogues whose rewards differ enough"
    else:
        what = "no task has a dialogue that solves it and a worse one"
        why += f", {sum(rewards[t.id] >= rule.solved for t in usable)} of them solve theirs"
    margin = f", --margin {rule.margin:g}" if rule.margin else ""
    samples = max(4, 2 * max((t.sample for t in usable), default=0) + 2)
    return NoPreference(
        f"{NOTHING_TO_PREFER}: {what} ({why}{margin}).",
        fix=f"more dialogues a task (sweet rollout --samples {samples}, not greedy) or more tasks; then eval and label",
    )
