"""The steps of an online training: play, score, learn, give the weights to the sampler, and look at what happened.

Step s learns from dialogues that the weights of step s-1 played. With staleness K those of up to K further steps are
under way meanwhile; the sampler takes new weights between two replies, so a dialogue may have turns of several
versions. Each token's probability is recorded when it is sampled, and the credit rule corrects for what changed since.

A crash loses nothing. Dialogues and scores are written as they are known. A checkpoint has the weights, the optimizer,
the random state and the records of all steps; after it, a step whose dialogues are recorded learns from these, so the
training goes through the same weights as before.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sweet import collector
from sweet.credit.base import Batch, missing_rewards
from sweet.errors import Interrupted
from sweet.judges.control import CREDIT, CreditScorer
from sweet.learn.interrupts import SAVE_SECONDS, STOPPING
from sweet.learn.metrics import Record, rounded
from sweet.learn.weights import BestCheckpoint
from sweet.llm.updates import Policy
from sweet.online.config import SAVE_EVERY
from sweet.online.dialogues import PlayedStep, StepPlayer, assignments_of_step, branched
from sweet.online.learner import Learner
from sweet.online.prepare import Prepared
from sweet.online.ranks import Ranks
from sweet.online.safeguards import WINDOW, collapse, moving_reward, step_figures
from sweet.rollouts.dialogue import Assignment
from sweet.runs.jsonl import JsonlWriter
from sweet.stages.base import Progress, seed_after
from sweet.stages.leaks import model_plays
from sweet.stages.prices import Budget
from sweet.tasks.scores import Score, TrajectoryScorer, with_dialogue, with_turn_rewards
from sweet.tasks.trajectory import Trajectory

T = TypeVar("T")

SHOWN = {"reward": "reward", "success": "success", "leak_rate": "leaks", "kl_start": "KL", "validation": "validation"}
"""Metrics that the progress bar shows, and their names there."""

PART = 10**9
"""What is added to the seed of dialogues that replace others, so that they have other tasks and ids."""

CHECK_SECONDS = 0.5
"""Between two looks at the processes of the other ranks."""

_USAGE = ("prompt_tokens", "completion_tokens", "human_prompt_tokens", "human_completion_tokens")


@dataclass
class Progressed:
    """What a training has done so far; stored in its checkpoints.

    Attributes:
        steps: the records of all steps.
        sums: tokens, dialogues, failures and seconds, over all steps.
        seconds: of earlier attempts, until the checkpoint.
        collapse: what showed a collapse, once one was seen.
    """

    steps: list[Record] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    collapse: str | None = None

    @property
    def step(self) -> int:
        return len(self.steps)

    def add(self, **amounts: float) -> None:
        for name, value in amounts.items():
            self.sums[name] = self.sums.get(name, 0) + value

    def count(self, name: str) -> int:
        return round(self.sums.get(name, 0))


@dataclass(repr=False)  # asyncio makes the text of what a task returns, and this would be that of all dialogues
class OnlineLoop:
    """One online training.

    Attributes:
        player: plays the dialogues to learn from.
        scorer: of the dialogues. scored: the scores that are recorded already, by id. scores: records them.
        checkpoint: the file. digest: identifies the training.
        on_row: called with the metrics of each step.
    """

    ready: Prepared
    player: StepPlayer
    scorer: TrajectoryScorer
    scores: JsonlWriter
    learner: Learner | Ranks
    policy: Policy
    checkpoint: Path
    digest: str
    bar: Progress
    on_row: Callable[[Record], None]
    scored: dict[str, Score] = field(default_factory=dict)
    done: Progressed = field(default_factory=Progressed)

    def __post_init__(self) -> None:
        self.config, self.kind, self.humans = self.ready.config, self.ready.dialogues.kind, self.ready.dialogues.humans
        self.live = self.player.live
        # A validation is played to its end.
        self.validator = replace(self.player, writer=None, steps=None, budget=Budget())
        self.best = BestCheckpoint(self.learner, self.checkpoint)
        self._began = self._saved = time.monotonic()
        self._saved_step = 0
        self._scoring = asyncio.Lock()

    def load(self) -> None:
        """Go on from the checkpoint, if there is one."""
        if not self.checkpoint.exists():
            return
        state = self.learner.load(self.checkpoint, self.digest)
        self.done = Progressed(state["steps"], state["sums"], state["seconds"], state["collapse"])
        self.best.restore(state["best"])
        self._saved_step = self.done.step
        for _ in range(self.done.step):
            self.bar.advance()

    async def run(self) -> str:
        """Train to the end; return what ended it.

        Raises:
            Interrupted: the limit of the cost is reached; what was learned is in the checkpoint, and what was played is
                recorded. As after a cancellation, which first lets the scoring and learning of a step end.
        """
        self._began = self._saved = time.monotonic()
        if self.done.step:
            await self._update_policy(self.done.step)
        pending: deque[asyncio.Task[PlayedStep]] = deque()
        ticking = asyncio.create_task(self._tick())
        try:
            while (ended := self._ended()) is None:
                step = self.done.step + 1
                while len(pending) <= self.config.staleness and not self._is_last(step + len(pending) - 1):
                    pending.append(asyncio.create_task(self._play(step + len(pending))))
                waited = time.monotonic()
                try:
                    played = await _unless_failed(pending[0], ticking)
                except Interrupted:  # at the limit of the cost; later steps record what they have under way, too
                    await asyncio.gather(*pending, return_exceptions=True)
                    raise
                pending.popleft()
                await _to_its_end(self._step(played, time.monotonic() - waited), self.live.say)
            return ended
        except (Interrupted, asyncio.CancelledError):
            if self.done.step > self._saved_step:
                self._save()
            raise
        finally:
            ticking.cancel()
            for task in pending:
                task.cancel()
            await asyncio.gather(ticking, *pending, return_exceptions=True)

    @property
    def seconds(self) -> float:
        """Seconds of the training so far, those of earlier attempts included."""
        return self.done.seconds + time.monotonic() - self._began

    @property
    def _by_validation(self) -> bool:
        """Whether validation tasks choose the weights that are kept."""
        return self.config.validate_every > 0 and self.config.keep == "best"

    def _is_last(self, step: int) -> bool:
        return self.config.most_steps is not None and step >= self.config.most_steps

    def _ended(self) -> str | None:
        config = self.config
        if config.stop_on_collapse and self.done.collapse is not None:
            return "collapse"
        if self._is_last(self.done.step):
            return "steps"
        if config.generated_tokens is not None and self.done.count("completion_tokens") >= config.generated_tokens:
            return "tokens"
        return "seconds" if config.seconds is not None and self.seconds >= config.seconds else None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.learner.check()

    # One step -----------------------------------------------------------------------------------------------------

    async def _play(self, step: int) -> PlayedStep:
        """Play the dialogues of a step, and others for its groups of equal rewards as often as the rule asks."""
        size, group = self.config.tasks_per_step, self.config.group
        assign = partial(assignments_of_step, self.ready.dialogues.tasks, step, size, group, humans=self.humans)
        assigned = assign(seed=self.config.seed)
        played, group_count = await self._play_with_branches(step, assigned), len({a.task.id for a in assigned})
        for part in range(1, 1 + getattr(self.ready.rule, "resample", 0)):
            rewards = await _to_its_end(self._rewards(played.dialogues), self.live.say)
            batch = Batch({d.id: d for d in played.dialogues}, self.kind.rewards, rewards=rewards)
            if (missing := group_count - len(batch.groups()) + len(batch.equal_groups())) <= 0:
                break
            replacements = assign(seed=seed_after(self.config.seed, part * PART))[: missing * group]
            played += await self._play_with_branches(step, replacements)
        return played

    async def _play_with_branches(self, step: int, assigned: Sequence[Assignment]) -> PlayedStep:
        """Play dialogues, those that the rule wants as branches of others after these."""
        size = 1 + getattr(self.ready.rule, "branches", 0)
        roots: list[Assignment] = []
        branches: list[Assignment] = []
        for assignment in assigned:
            (branches if assignment.sample % self.config.group % size else roots).append(assignment)
        played = await self.player.play(step, roots)
        if not branches:
            return played
        dialogues = {dialogue.id: dialogue for dialogue in played.dialogues}
        grown = [branched(branch, dialogues, size, self.config.group) for branch in branches]
        return played + await self.player.play(step, grown)

    async def _rewards(self, dialogues: Sequence[Trajectory]) -> dict[str, float]:
        """Return the rewards of the dialogues that have one, by id."""
        async with self._scoring:
            scores = await asyncio.to_thread(self._score, dialogues)
        return {score.id: score.reward for score in scores if score.reward is not None}

    async def _step(self, played: PlayedStep, play_seconds: float) -> None:
        step, dialogues = played.step, played.dialogues
        rewards = await self._rewards(dialogues)
        started = time.monotonic()
        rewarded = [with_turn_rewards(dialogue, self.scored[dialogue.id]) for dialogue in dialogues]
        if step == 1 and (missing := missing_rewards(self.ready.rule, rewarded)):
            self.live.warn(missing)
        sessions = [d for d in dialogues if d.session is None]  # of a program, whose branches count once
        await asyncio.to_thread(collector.give_back)  # what playing and learning free is in pieces of other sizes
        learned = await asyncio.to_thread(self.learner.learn, step, rewarded, rewards)
        trained_at = time.monotonic()
        await self._update_policy(step)
        await asyncio.to_thread(collector.give_back)
        updated_at = time.monotonic()
        for dialogue in dialogues:
            self.scored.pop(dialogue.id)
        self.done.add(
            episodes=len(sessions),
            failed=played.failed,
            play_seconds=play_seconds,
            train_seconds=trained_at - started,
            update_seconds=updated_at - trained_at,
            **{name: sum(getattr(dialogue.usage, name) for dialogue in dialogues) for name in _USAGE},
        )
        plays = any(model_plays(human.name) for human in self.humans.humans)
        solved, pages = self.kind.rewards.solved, self.kind.visual
        staleness = [step - 1 - version for version in played.versions]
        record: Record = {
            "step": step,
            "tokens": self.done.count("completion_tokens"),
            "seconds": self.seconds,
            "validation_seconds": self.done.sums.get("validation_seconds", 0.0),
            **step_figures(sessions, rewards, solved, model_plays=plays, pages=pages),
            "failed": played.failed,
            "behind": sum(staleness) / len(staleness) if staleness else None,
            **learned,
            "play_seconds": play_seconds,
            "train_seconds": trained_at - started,
            "update_seconds": updated_at - trained_at,
        }
        if self.config.validate_every and step % self.config.validate_every == 0 and self.ready.validation:
            started = time.monotonic()
            record["validation"] = await self._validate(step)
            self.done.add(validation_seconds=time.monotonic() - started)
            if self._by_validation:
                self.best.update(step, record["validation"])
        self._finish_step(rounded(record))

    async def _update_policy(self, version: int) -> None:
        """Give the sampler the weights of now."""
        weights = await asyncio.to_thread(self.learner.sampled_weights)
        assert weights is not None, "the loop has what rank 0 has"
        await self.policy.update(weights, version)

    def _score(self, dialogues: Sequence[Trajectory]) -> list[Score]:
        """Score the dialogues whose scores are not recorded, and return the scores of all, in their order."""
        unscored = [dialogue for dialogue in dialogues if dialogue.id not in self.scored]
        for trajectory, score in self.scorer.score(iter(unscored)):
            if CREDIT in self.ready.rule.turn_rewards:
                credit = CreditScorer(self.kind, self.ready.rules.max_turns).turn_rewards(trajectory)
                trajectory = trajectory.with_rewards(credit)
            score = with_dialogue(score, trajectory)
            self.scores.write(score.model_dump(mode="json"))
            self.scored[score.id] = score
        return [self.scored[dialogue.id] for dialogue in dialogues]

    async def _validate(self, step: int) -> float:
        """Play the validation tasks with the weights of a step; return the mean worth of the dialogues."""
        assigned = [
            Assignment(task, 0, self.config.seed, self.humans.name_of(place, 0))
            for place, task in enumerate(self.ready.validation)
        ]
        played = await self.validator.play(step, assigned)
        self.done.add(validation_tokens=sum(dialogue.usage.completion_tokens for dialogue in played.dialogues))
        async with self._scoring:
            scored = await asyncio.to_thread(lambda: list(self.scorer.score(iter(played.dialogues))))
        worth = [self.kind.rewards.worth(score.reward) for _, score in scored if score.reward is not None]
        return sum(worth) / len(worth) if worth else 0.0

    def _finish_step(self, record: Record) -> None:
        self.done.steps.append(record)
        step = self.done.step
        if self.done.collapse is None and (problem := collapse(self.done.steps)) is not None:
            self.done.collapse = f"step {step}: {problem}"
            self.live.warn(f"This looks like a collapse. {self.done.collapse}.")
        by_reward = self.config.stop_on_collapse and not self._by_validation
        if by_reward and step % WINDOW == 0 and (reward := moving_reward(self.done.steps)) is not None:
            self.best.update(step, reward)
        self.on_row(record)
        self.bar.advance()
        figures = {label: record[name] for name, label in SHOWN.items() if record.get(name) is not None}
        self.bar.note(**figures, **self.player.budget.shown())
        due = time.monotonic() >= self._saved + SAVE_SECONDS
        if due or step % (self.config.save_every or SAVE_EVERY) == 0 or self._ended() is not None:
            self._save()

    def _save(self) -> None:
        done = self.done
        state = {
            "digest": self.digest,
            "step": done.step,
            "steps": done.steps,
            "sums": done.sums,
            "seconds": self.seconds,
            "collapse": done.collapse,
            "best": self.best.state(),
        }
        # Steps of the checkpoint are not played again, so their rows must be on the disk before it is.
        for writer in (self.player.writer, self.scores):
            if writer is not None:
                writer.sync()
        self.learner.save(self.checkpoint, state)
        self.best.remove_outdated()
        self._saved, self._saved_step = time.monotonic(), done.step

    # The result ---------------------------------------------------------------------------------------------------

    def kept(self) -> tuple[int, Mapping[str, Any]]:
        """Return the step whose weights are the actor, and these weights: those that did best on validation tasks,
        after a collapse those before it, else the last."""
        keeps_best = self._by_validation or (self.config.stop_on_collapse and self.done.collapse is not None)
        if not keeps_best or self.best.step is None or self.best.step == self.done.step:
            step, weights = self.done.step, self.learner.weights()
        else:
            step, weights = self.best.step, self.best.weights()
        assert weights is not None, "the loop has what rank 0 has"
        return step, weights


async def _unless_failed(task: asyncio.Task[T], watching: asyncio.Task[None]) -> T:
    """Wait for a task; raise the error of the other one, which otherwise does not end, as soon as it has one."""
    await asyncio.wait({task, watching}, return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        await watching
    return await task


async def _to_its_end(work: Coroutine[Any, Any, T], say: Callable[[str], None]) -> T:
    """Do work that a cancellation must not leave half done; it is raised at the end. A second one cancels the work."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        say(STOPPING)
        await task
        raise
