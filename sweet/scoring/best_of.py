"""Best of N finished dialogues of a task, chosen by the critic.

The paper's figure 3a chooses at each turn of a dialogue under way instead: `sweet.rollouts.dialogue`.

The critic scores whole dialogues, with the training-time information in its context, as its training compared them: by
default the sum of the advantages of their turns, or of its regression head's scores
(`sweet.learn.critic.Critic.score_dialogues`). For each N the result is the
expected success of the dialogue with the highest score of N (its reward, if the kind of task has no success), over all
choices of N of the task's dialogues, so nothing is sampled; next to it the results of a random choice and of one that
knows the rewards. The interval is over tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from sweet.errors import SweetError
from sweet.judges.options import find_critic
from sweet.runs.jsonl import read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.metrics import BestOfMetrics, BestOfRates
from sweet.scoring.results.statistics import expected_last, powers_of_two
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Reporter
from sweet.stages.critics import (
    CriticSettings,
    check_settings,
    load_critic,
    used_reference_context,
    used_turn_tokens,
    warn_dropped_turns,
    warn_if_at_chance,
)
from sweet.stages.intervals import clustered_mean
from sweet.stages.record import Rate
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory
from sweet.units import count

_BATCH = 64
"""Dialogues that the critic scores in one call."""


@dataclass(frozen=True)
class ScoredDialogue:
    """A dialogue with the critic's score; `solved` is 1 or 0, or its reward if rewards are degrees."""

    score: float
    solved: float


def check_best_of(run: Run, config: EvalConfig, reporter: Reporter) -> Artifact | None:
    """Return the critic of --best-of-by, if it is given. Check that it accepts the options, and warn if it is not
    better than chance."""
    if config.best_of_by is None:
        return None
    critic = find_critic(run, config.best_of_by, config.critic, needed_by=f"eval --best-of-by {config.best_of_by}")
    check_settings(critic, settings_of(config))
    warn_if_at_chance(run, critic, reporter)
    return critic


def settings_of(config: EvalConfig) -> CriticSettings:
    """Return how the critic judges."""
    return CriticSettings(config.device, turn_tokens=config.turn_tokens, reference_context=config.reference_context)


def measure_best_of(
    run: Run,
    rollouts: Artifact,
    scores: Sequence[Score],
    artifact: Artifact,
    settings: CriticSettings,
    reporter: Reporter,
) -> BestOfMetrics:
    """Return the success of the best of N = 1, 2, 4, … dialogues of a task, chosen by a critic of the run.

    Raises:
        SweetError: no task has two dialogues with a reward, so there is nothing to choose from.
    """
    rule = task_kind(run.manifest().task).rewards
    rewards = {score.id: rule.worth(score.reward) for score in scores if score.reward is not None}
    dialogues = [t for t in read_jsonl(run.file(rollouts), Trajectory) if t.id in rewards and t.agent_turns]
    critic, system = load_critic(run, artifact, reporter, settings), agent_system(run, rollouts)
    by_task: dict[str, list[ScoredDialogue]] = {}
    left_out = 0
    with reporter.progress("judged", len(dialogues)) as bar:
        for start in range(0, len(dialogues), _BATCH):
            batch = dialogues[start : start + _BATCH]
            for dialogue, score in zip(batch, critic.score_dialogues(batch, system), strict=True):
                if score is None:
                    left_out += 1
                else:
                    by_task.setdefault(dialogue.task_id, []).append(ScoredDialogue(score, rewards[dialogue.id]))
                bar.advance()
    warn_dropped_turns(critic.reader.dropped, critic.reader.max_length, reporter)
    if left_out:
        reporter.warn(f"Too long for {artifact.id}, and so no candidates: {count(left_out, 'dialogue')}.")
    most = max(map(len, by_task.values()), default=0)
    if most < 2:
        raise SweetError(
            "No task has two dialogues, so there is nothing to choose the best of.",
            where=rollouts.id,
            fix="sweet rollout --samples 16",
        )
    return BestOfMetrics(
        critic=artifact.id,
        left_out=left_out,
        n={str(n): at(n, by_task) for n in powers_of_two(most)},
        reference_context=used_reference_context(artifact, settings),
        turn_tokens=used_turn_tokens(artifact, settings),
    )


def at(n: int, by_task: dict[str, list[ScoredDialogue]]) -> BestOfRates:
    """Return the success of the best of `n`, over the tasks that have at least `n` dialogues."""
    tasks = {task: dialogues for task, dialogues in by_task.items() if len(dialogues) >= n}

    def rate(value: Callable[[list[ScoredDialogue]], float]) -> Rate:
        return clustered_mean([value(dialogues) for dialogues in tasks.values()], list(tasks)).rate()

    return BestOfRates(
        tasks=len(tasks),
        critic=rate(lambda dialogues: expected_last(n, by_score(dialogues))),
        random=rate(lambda dialogues: fmean(d.solved for d in dialogues)),
        oracle=rate(lambda dialogues: expected_last(n, sorted(d.solved for d in dialogues))),
    )


def by_score(dialogues: Sequence[ScoredDialogue]) -> list[float]:
    """Return the success of a task's dialogues in the order of their scores, the highest last.

    Any of several dialogues with equal scores may be chosen, so each counts as their mean.
    """
    worth: dict[float, list[float]] = {}
    for dialogue in dialogues:
        worth.setdefault(dialogue.score, []).append(dialogue.solved)
    return [mean for score in sorted(worth) for mean in [fmean(worth[score])] * len(worth[score])]
