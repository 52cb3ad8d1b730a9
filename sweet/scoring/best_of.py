"""Best of N finished dialogues of a task, chosen by the critic or by a language model.

The paper's figure 3a chooses at each turn of a dialogue under way instead: `sweet.rollouts.dialogue`.

The critic scores whole dialogues, with the training-time information in its context: the sum of the advantages of their
turns, or of its regression head's scores (`sweet.learn.critic.Critic.score_dialogues`). A language model gives each a
score of 1 to 9 (`sweet.judges.llm.LLMJudge.score_dialogue`). For each N the result is the expected success of the
dialogue with the highest score of N (its reward, if the kind of task has no success), over all choices of N of the
task's dialogues, so nothing is sampled; next to it the results of a random choice and of one that knows the rewards.
The interval is over tasks.

What a language model is asked may cost something: at the limit of the cost no further dialogue is judged, and the
scores that it gave are kept (`sweet.scoring.best_of`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from sweet.device import Device
from sweet.errors import InputError, SweetError
from sweet.gathering import run_all
from sweet.judges.llm import JudgePrompt, LLMJudge, common_basis
from sweet.judges.llm import Score as DialogueScore
from sweet.llm.connect import open_client
from sweet.runs.attempt import Draft
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.manifest import LOGS, Artifact
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.metrics import BestOfMetrics, BestOfRates
from sweet.scoring.results.statistics import expected_last, powers_of_two
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Reporter, digest_of
from sweet.stages.critics import (
    CriticSettings,
    check_reference,
    check_turn_tokens,
    load_critic,
    used_reference_context,
    used_turn_tokens,
    warn_dropped_turns,
    warn_if_at_chance,
)
from sweet.stages.frame import Frame
from sweet.stages.intervals import clustered_mean
from sweet.stages.prices import Budget
from sweet.stages.record import Rate
from sweet.tasks.base import ReferenceContext, TurnTokens
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory
from sweet.units import count

if TYPE_CHECKING:
    from sweet.learn.critic import Critic

NEEDED_BY = "eval --best-of-by critic"
"""What needs the critic, for errors."""

_BATCH = 64
"""Dialogues that the critic scores in one call."""

_REQUESTS = 64
"""Dialogues about which a language model is asked at the same time."""


@dataclass(frozen=True)
class ScoredDialogue:
    """A dialogue with the judge's score; `solved` is 1 or 0, or its reward if rewards are degrees."""

    score: float
    solved: float


def check_best_of(run: Run, config: EvalConfig, reporter: Reporter) -> None:
    """Check that the critic of --best-of accepts the options, and warn if it is not better than chance."""
    if config.best_of_by == "critic":
        critic = run.find("critic", config.critic, needed_by=NEEDED_BY)
        check_reference(critic, None, config.reference_context)
        check_turn_tokens(critic, None, config.turn_tokens)
        warn_if_at_chance(run, critic, reporter)


def choose_best(
    frame: Frame, rollouts: Artifact, scores: Sequence[Score], config: EvalConfig, draft: Draft
) -> BestOfMetrics:
    """Return the success of the best of N dialogues, by what the options choose.

    Args:
        draft: the scores that are being written, whose earlier attempts have asked the model too.
    """
    if config.best_of_by == "critic":
        return measure_best_of(
            frame.run,
            rollouts,
            scores,
            config.critic,
            config.device,
            frame,
            reference_context=config.reference_context,
            turn_tokens=config.turn_tokens,
        )
    recorded = partial(JudgedDialogues, frame.run, draft.id, config, rows=frame.log)
    found = measure_best_of_by_model(frame.run, rollouts, scores, config, frame, recorded, frame.budget)
    cost = frame.cost_of(draft)
    return found if cost is None else found.model_copy(update={"cost": cost})


def measure_best_of(
    run: Run,
    rollouts: Artifact,
    scores: Sequence[Score],
    critic_id: str | None,
    device: Device,
    reporter: Reporter,
    *,
    reference_context: ReferenceContext | None = None,
    turn_tokens: TurnTokens | None = None,
) -> BestOfMetrics:
    """Return the success of the best of N = 1, 2, 4, … dialogues of a task.

    Args:
        reference_context: what the critic's reference reads; see `load_critic`.
        turn_tokens: what its means run over; see `CriticSettings`.

    Raises:
        SweetError: no task has two dialogues with a reward, so there is nothing to choose from.
    """
    artifact = run.find("critic", critic_id, needed_by=NEEDED_BY)
    dialogues, rewards = _rewarded(run, rollouts, scores)
    settings = CriticSettings(device=device, turn_tokens=turn_tokens)
    critic = load_critic(run, artifact, reporter, settings, reference_context=reference_context)
    scored: list[float | None] = []
    with reporter.progress("judged", len(dialogues)) as bar:
        for score in _scored(critic, dialogues, agent_system(run, rollouts)):
            scored.append(score)
            bar.advance()
    warn_dropped_turns(critic.reader, reporter)
    left_out = scored.count(None)
    if left_out:
        reporter.warn(f"Too long for {artifact.id}, and so no candidates: {count(left_out, 'dialogue')}.")
    by_number = _by_number(rollouts, dialogues, scored, rewards, "critic")
    read = used_reference_context(artifact, None, reference_context)
    counted = used_turn_tokens(artifact, None, turn_tokens)
    return BestOfMetrics(
        critic=artifact.id, left_out=left_out, n=by_number, reference_context=read, turn_tokens=counted
    )


def measure_best_of_by_model(
    run: Run,
    rollouts: Artifact,
    scores: Sequence[Score],
    config: EvalConfig,
    reporter: Reporter,
    judged: Callable[[JudgePrompt], JudgedDialogues],
    budget: Budget | None = None,
) -> BestOfMetrics:
    """Return the success of the best of N = 1, 2, 4, … dialogues of a task, chosen by `config.judge_model`.

    Args:
        judged: returns the scores that were recorded for a prompt, which are not asked for again.
        budget: what the run may cost; None without prices.

    Raises:
        SweetError: no task has two dialogues with a reward, so there is nothing to choose from.
        ServerError: the model's server cannot be reached.
        Interrupted: the limit of the cost is reached; the scores that the model gave are recorded.
    """
    prompt = JudgePrompt.of(config.judge_prompt, whole=True)
    dialogues, rewards = _rewarded(run, rollouts, scores)
    recorded = judged(prompt)
    if known := sum(dialogue.id in recorded.known for dialogue in dialogues):
        reporter.say(f"Judged already: {count(known, 'dialogue')}; missing: {len(dialogues) - known:,}.")
    asked = asyncio.run(_asked(config, prompt, dialogues, agent_system(run, rollouts), reporter, recorded, budget))
    answers = [answer for answer in asked if answer is not None]
    if budget is not None and len(answers) < len(asked):
        done, missing = count(len(answers), "dialogue"), len(asked) - len(answers)
        raise budget.stopped(f"All answers are scored. Judged: {done}; missing: {missing:,}.")
    by_task: dict[str, list[DialogueScore | str]] = {}
    for dialogue, answer in zip(dialogues, answers, strict=True):
        by_task.setdefault(dialogue.task_id, []).append(answer)
    basis = {task: common_basis(found) for task, found in by_task.items()}
    values = [
        answer.value(basis[dialogue.task_id]) if isinstance(answer, DialogueScore) else None
        for dialogue, answer in zip(dialogues, answers, strict=True)
    ]
    reasons = Counter(answer for answer in answers if isinstance(answer, str))
    for reason, times in reasons.most_common(3):
        reporter.warn(f"Without a score, and so no candidates: {count(times, 'dialogue')}: {reason}")
    return BestOfMetrics(
        judge_model=config.judge_model,
        judge_prompt=prompt.digest,
        informed=prompt.informed,
        left_out=reasons.total(),
        n=_by_number(rollouts, dialogues, values, rewards, "llm"),
    )


async def _asked(
    config: EvalConfig,
    prompt: JudgePrompt,
    dialogues: Sequence[Trajectory],
    system: str,
    reporter: Reporter,
    recorded: JudgedDialogues,
    budget: Budget | None,
) -> list[DialogueScore | str | None]:
    """Return the model's score of each dialogue, or why it has none; None for a dialogue that was not judged, because
    the limit of the cost was reached before."""
    model, urls = str(config.judge_model), config.judge_url
    async with open_client(model, urls, concurrency=_REQUESTS, role="judge", device=config.device) as client:
        judge = LLMJudge(client, prompt, max_tokens=config.judge_tokens)
        free = asyncio.Semaphore(_REQUESTS)

        async def ask(dialogue: Trajectory) -> DialogueScore | str | None:
            answer: DialogueScore | str | None = recorded.known.get(dialogue.id)
            if answer is None:
                messages = dialogue.observation(len(dialogue.dialogue_history), system)
                async with free:
                    if budget is not None and budget.is_spent():
                        return None
                    answer = await judge.score_dialogue(messages, dialogue.task.hidden)
                if isinstance(answer, DialogueScore):
                    recorded.add(dialogue.id, answer)
            if budget is not None:
                bar.note(cost=round(budget.spent(), 4))
            bar.advance()
            return answer

        with reporter.progress("judged", len(dialogues)) as bar:
            return await run_all([ask(dialogue) for dialogue in dialogues])


def _rewarded(run: Run, rollouts: Artifact, scores: Sequence[Score]) -> tuple[list[Trajectory], dict[str, float]]:
    """Return the dialogues that can be chosen, and their rewards by id."""
    rule = task_kind(run.manifest().task).rewards
    rewards = {score.id: rule.worth(score.reward) for score in scores if score.reward is not None}
    return [t for t in read_jsonl(run.file(rollouts), Trajectory) if t.id in rewards and t.agent_turns], rewards


def _by_number(
    rollouts: Artifact,
    dialogues: Sequence[Trajectory],
    scored: Sequence[float | None],
    rewards: Mapping[str, float],
    chosen_by: Literal["critic", "llm"],
) -> dict[str, BestOfRates]:
    by_task: dict[str, list[ScoredDialogue]] = {}
    for dialogue, score in zip(dialogues, scored, strict=True):
        if score is not None:
            by_task.setdefault(dialogue.task_id, []).append(ScoredDialogue(score, rewards[dialogue.id]))
    most = max(map(len, by_task.values()), default=0)
    if most < 2:
        raise SweetError(
            "No task has two dialogues, so there is nothing to choose the best of.",
            where=rollouts.id,
            fix="sweet rollout with --samples 16",
        )
    return {str(n): at(n, by_task, chosen_by) for n in powers_of_two(most)}


def at(n: int, by_task: dict[str, list[ScoredDialogue]], chosen_by: Literal["critic", "llm"] = "critic") -> BestOfRates:
    """Return the success of the best of `n`, over the tasks that have at least `n` dialogues.

    Args:
        chosen_by: what gave the scores.
    """
    tasks = {task: found for task, found in by_task.items() if len(found) >= n}

    def rate(value: Callable[[list[ScoredDialogue]], float]) -> Rate:
        return clustered_mean([value(found) for found in tasks.values()], list(tasks)).rate()

    chosen = rate(lambda found: expected_last(n, by_score(found)))
    others = {
        "tasks": len(tasks),
        "random": rate(lambda found: fmean(d.solved for d in found)),
        "oracle": rate(lambda found: expected_last(n, sorted(d.solved for d in found))),
    }
    return BestOfRates.model_validate({chosen_by: chosen, **others})


def by_score(found: Sequence[ScoredDialogue]) -> list[float]:
    """Return the success of a task's dialogues in the order of their scores, the highest last.

    Any of several dialogues with equal scores may be chosen, so each counts as their mean.
    """
    worth: dict[float, list[float]] = {}
    for dialogue in found:
        worth.setdefault(dialogue.score, []).append(dialogue.solved)
    return [mean for score in sorted(worth) for mean in [fmean(worth[score])] * len(worth[score])]


def _scored(critic: Critic, dialogues: Sequence[Trajectory], system: str) -> Iterator[float | None]:
    for start in range(0, len(dialogues), _BATCH):
        yield from critic.score_dialogues(dialogues[start : start + _BATCH], system)


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    dialogue: str
    judge: str
    digit: int = Field(ge=1, le=9)
    expected: float | None = Field(ge=1, le=9)


class JudgedDialogues:
    """The scores that were recorded for an artifact, and those that come.

    Args:
        artifact: the scores that are being written; the attempts before this one that began them are read.
        rows: the log of the attempt.

    Attributes:
        known: scores by the ids of dialogues.

    Raises:
        InputError: a log is damaged.
    """

    def __init__(self, run: Run, artifact: str, config: EvalConfig, prompt: JudgePrompt, rows: JsonlWriter) -> None:
        self._judge = digest_of([config.judge_model, prompt.text, config.judge_tokens])
        self._rows = rows
        self.known: dict[str, DialogueScore] = {}
        for attempt in run.manifest().attempts:
            log = run.path / LOGS / f"{attempt.id}.jsonl"
            if artifact in attempt.outputs and log != rows.path and log.exists():
                self._read(log)

    def _read(self, log: Path) -> None:
        try:
            for row in read_jsonl(log, _Row):
                if row.judge == self._judge:
                    self.known[row.dialogue] = DialogueScore(row.digit, row.expected)
        except InputError as error:
            error.fix = "delete this file: the model is then asked again about the dialogues in it"
            raise

    def add(self, dialogue: str, score: DialogueScore) -> None:
        """Record a score."""
        self.known[dialogue] = score
        self._rows.write(_Row(dialogue=dialogue, judge=self._judge, digit=score.digit, expected=score.expected))
