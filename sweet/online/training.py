"""One online training: its artifacts, both sides of its dialogues, the loop, and the actor that it makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import to_jsonable_python

from sweet.errors import UsageError
from sweet.learn.metrics import Record
from sweet.learn.trainee import Trainee
from sweet.llm.gpus import in_use
from sweet.online.config import TrainOnlineConfig
from sweet.online.dialogues import StepPlayer, rows_after
from sweet.online.learner import Learns
from sweet.online.loop import OnlineLoop
from sweet.online.metrics import CurvePoint, OnlineMetrics, OnlineWork
from sweet.online.policy import DEVELOPER_MODE, open_policy
from sweet.online.prepare import Prepared, prepare
from sweet.online.ranks import Ranks
from sweet.render.page import Renderer
from sweet.rollouts.sides import check_vision
from sweet.runs.attempt import Draft
from sweet.runs.jsonl import JsonlWriter, read_jsonl, scan_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Progress, Reporter, StageResult
from sweet.stages.frame import Frame
from sweet.stages.leaks import model_plays
from sweet.stages.live import PAUSE
from sweet.stages.meta import ScoresMeta
from sweet.stages.plans import Plan, earlier_work, times
from sweet.tasks.scores import Score, TrajectoryScorer
from sweet.training.checkpoints import Checkpoints, training_digest
from sweet.training.loggers import MetricLogs, log_name

DURATIONS = ("play_seconds", "train_seconds", "update_seconds", "validation_seconds")
"""The parts of the duration that are reported."""


@dataclass(frozen=True)
class Drafts:
    """The artifacts that a training writes, and the checkpoints of the actor."""

    actor: Draft
    rollouts: Draft
    scores: Draft
    checkpoints: Checkpoints


def train(run: Run, config: TrainOnlineConfig, reporter: Reporter) -> StageResult[OnlineMetrics]:
    """See `sweet.online.stage.run_train_online`."""
    ready = prepare(run, config, reporter)
    with in_use(ready.gpus_of_ranks):
        return _train(run, ready, reporter)


def _train(run: Run, ready: Prepared, reporter: Reporter) -> StageResult[OnlineMetrics]:
    """Train inside an attempt, or return what an earlier one has finished."""
    inputs, environment = [] if ready.critic is None else [ready.critic], ready.environment
    framed = Frame(
        "train-online",
        run,
        ready.config,
        reporter,
        inputs=inputs,
        models=ready.models,
        computed=ready.others,
        environment=environment,
        controls=PAUSE,
    )
    check_vision(ready.kind, ready.playing, framed.serving)
    framed.serving.variables = DEVELOPER_MODE
    with (
        framed as frame,
        ready.open_renderer(run) as renderer,
        ready.open_scorer(run, renderer, reporter) as scorer,
    ):
        actor = frame.artifact("actor", ready.actor_meta)
        rollouts = frame.artifact("rollouts", ready.rollouts_meta, ".jsonl")
        _check_scorer(run, rollouts, scorer.name)
        scoring = to_jsonable_python({**scorer.meta, "scorer": scorer.name}, fallback=str)
        scores = frame.artifact("scores", ScoresMeta(scoring=scoring, rollouts=rollouts.id), ".jsonl")
        drafts = Drafts(actor, rollouts, scores, Checkpoints(actor.path, ready.devices is not None))
        one, several = "omit --devices", "--devices as before"
        metrics = None
        if actor.resumed and not drafts.checkpoints.exist(one=one, several=several):
            metrics = frame.finished_metrics(OnlineMetrics, (actor, rollouts, scores))
        if metrics is not None:
            rows = run.artifact(rollouts.id).rows, run.artifact(scores.id).rows
        else:
            training = _Training(frame, ready, drafts, renderer, scorer)
            metrics, rows = training.run()
        played = frame.finish(rollouts, metrics, rows=rows[0])
        scored = frame.finish(scores, metrics, rows=rows[1], made_from=[played])
        trained = frame.finish(actor, metrics, made_from=[scored, played])
        return frame.result(metrics, trained, scored, played)


def _check_scorer(run: Run, rollouts: Draft, scorer: str) -> None:
    """Raise UsageError if an earlier attempt has scored these dialogues by another scorer, whose rewards do not compare
    with those of now."""
    manifest = run.manifest()
    made = [a for a in manifest.of_kind("scores") if ScoresMeta.of(a).rollouts == rollouts.id]
    own = [a for a in made if (maker := manifest.attempt(a.attempt)) is not None and maker.stage == "train-online"]
    before = {ScoresMeta.of(a).scorer for a in own}
    if before and scorer not in before:
        raise UsageError(
            f"The training was scored by {', '.join(map(str, before))} so far, and would be scored by {scorer} now.",
            where=rollouts.path,
            fix="begin another training without --resume, and name its scorer",
        )


@dataclass(frozen=True)
class _Training:
    """One training inside its attempt.

    Attributes:
        renderer: of the pages that humans see; None for tasks without pages.
    """

    frame: Frame
    ready: Prepared
    drafts: Drafts
    renderer: Renderer | None
    scorer: TrajectoryScorer

    def run(self) -> tuple[OnlineMetrics, tuple[int, int]]:
        """Train and write the actor; return the metrics, and the numbers of dialogues and scores."""
        ready, drafts, live = self.ready, self.drafts, self.frame.live
        config, model, used = ready.config, ready.model, ready.used
        live.say(
            f"{model.trainee.parameters:,} parameters, {config.algorithm}, {config.tasks_per_step} tasks of "
            f"{config.group} dialogues a step, lr {used.lr:g}{f', on {ready.devices}' if ready.devices else ''}."
        )
        name = log_name(self.frame.run, drafts.actor.id, config.model_dump(mode="json") | ready.actor_meta.as_json())
        with ExitStack() as stack:
            dialogues = stack.enter_context(JsonlWriter(drafts.rollouts.path))
            scores = stack.enter_context(JsonlWriter(drafts.scores.path))
            log = self.frame.log
            logs = stack.enter_context(MetricLogs(config.log_to, name, live))
            played = stack.enter_context(live.progress("dialogues", None))
            # The last one is what `sweet status` shows, with the time that is left.
            bar = stack.enter_context(live.progress("steps", config.most_steps))

            def on_row(row: Record) -> None:
                log.write(row)
                logs.write(row)

            writers = _Writers(dialogues, scores, log, bar, played, on_row)
            learner = self._learner(stack)
            loop, ended = asyncio.run(self._train(writers, learner))
            rows = dialogues.rows, scores.rows
            kept, weights = loop.kept()
        trainee = model.trainee
        if ready.devices is not None:
            trainee = Trainee.load(trainee.start, "cpu", tokenizer=model.encoder.tokenizer)
        trainee.load_weights(weights)
        trainee.write(model.encoder, drafts.actor.path)
        drafts.checkpoints.remove()
        if ended == "collapse":
            live.warn(f"Ended by a collapse: {loop.done.collapse}. The actor has the weights of step {kept}.")
        cost = {} if self.frame.budget is None else {"cost": self.frame.cost_of(drafts.actor)}
        return _metrics(ready, loop, ended, kept).model_copy(update=cost), rows

    def _learner(self, stack: ExitStack) -> Learns:
        """Return what learns: in this process, or in ranks until the stack is closed."""
        ready, rollouts = self.ready, self.drafts.rollouts.id
        if ready.devices is None:
            return ready.learner(rollouts)
        job = ready.rank_job(self.frame.run, rollouts, ready.devices)
        log = self.frame.attempt.log_path.with_suffix(".ranks.log")
        return stack.enter_context(Ranks(job, ready.devices, self.drafts.checkpoints.ranks, log, self.frame.live))

    async def _train(self, writers: _Writers, learner: Learns) -> tuple[OnlineLoop, str]:
        """Open both sides and train; return the loop after its last step, and what ended it."""
        ready, drafts, live = self.ready, self.drafts, self.frame.live
        config, base, trainee = ready.config, ready.model.base, ready.model.trainee
        async with AsyncExitStack() as stack:
            if isinstance(learner, Ranks):
                stack.push(learner.close_on_error)
            folder = self.frame.run.path / ".policy" / drafts.actor.id
            policy = await stack.enter_async_context(open_policy(config, base, trainee, self.frame.serving, folder))
            player = StepPlayer(
                kind=ready.kind,
                rules=ready.rules,
                agent=policy,
                human=await ready.open_humans(self.frame, self.renderer, stack),
                system=ready.system,
                limit=config.concurrency,
                seconds=config.deadline,
                allowed=config.fail_on_error,
                writer=writers.dialogues,
                log=writers.log,
                live=live,
                bar=writers.played,
                budget=self.frame.budget,
            )
            critic = [] if ready.critic is None else [ready.critic.sha256]
            loop = OnlineLoop(
                config=config,
                kind=ready.kind,
                tasks=ready.tasks,
                validation=ready.validation,
                humans=ready.humans,
                model_plays=any(model_plays(human.name) for human in ready.humans.humans),
                player=player,
                validator=replace(player, writer=None, budget=None),  # a validation is played to its end
                scorer=self.scorer,
                scored={},
                scores=writers.scores,
                learner=learner,
                policy=policy,
                checkpoint=drafts.checkpoints.file,
                digest=training_digest(config, ready.model, ready.used, ready.tasks_digest, *critic),
                live=live,
                bar=writers.bar,
                on_row=writers.on_row,
            )
            loop.load()
            player.recorded = rows_after(scan_jsonl(drafts.rollouts.path), loop.done.step)
            recorded = read_jsonl(drafts.scores.path, Score)
            loop.scored = {row.id: row for row in recorded if row.id in player.recorded}
            return loop, await loop.run()


@dataclass(frozen=True)
class _Writers:
    """What a training writes to, and its progress bars.

    Attributes:
        log: of the failed dialogues and the metrics. on_row: called with the metrics of each step.
    """

    dialogues: JsonlWriter
    scores: JsonlWriter
    log: JsonlWriter
    bar: Progress
    played: Progress
    on_row: Callable[[dict[str, Any]], None]


def _metrics(ready: Prepared, loop: OnlineLoop, ended: str, kept: int) -> OnlineMetrics:
    done, trainee = loop.done, ready.model.trainee
    validated = {row["step"]: row["validation"] for row in done.steps if "validation" in row}
    counts = ("episodes", "failed", "completion_tokens", "prompt_tokens", "human_prompt_tokens")
    return OnlineMetrics(
        steps=done.step,
        updates=loop.learner.updates,
        ended=ended,
        collapse=done.collapse,
        kept_step=kept,
        **{name: done.count(name) for name in (*counts, "human_completion_tokens", "validation_tokens")},
        reward=loop.recent_reward(),
        validation=validated.get(kept),
        kl_start=done.steps[-1].get("kl_start") if done.steps else None,
        lr=ready.used.lr,
        parameters=trainee.parameters,
        trained_parameters=trainee.trained,
        **{name: round(done.sums.get(name, 0.0), 3) for name in DURATIONS},
        seconds=round(loop.seconds, 3),
        curve=[CurvePoint.read(row) for row in done.steps],
    )


def plan(run: Run | None, config: TrainOnlineConfig, reporter: Reporter) -> Plan[OnlineWork]:
    """See `sweet.online.stage.plan_train_online`."""
    ready = prepare(run, config, reporter, weights=False)
    trainee = ready.model.trainee
    each = config.tasks_per_step * config.group
    steps = config.most_steps
    earlier, assumed = earlier_work(run, "train-online"), []
    a_dialogue = None if earlier is None else earlier.amount_of_each("completion_tokens", "episodes")
    if earlier is not None and a_dialogue is not None:
        assumed = [f"A dialogue has as many tokens as in the training of {earlier.artifact.id}."]
    tokens = times(None if steps is None else steps * each, a_dialogue)
    budget = config.generated_tokens
    written = min(tokens, budget) if tokens is not None and budget is not None else budget or tokens
    work = OnlineWork(
        base=ready.model.base,
        algorithm=config.algorithm,
        parameters=trainee.parameters,
        trainable=trainee.trained,
        tasks=len(ready.tasks),
        tasks_per_step=config.tasks_per_step,
        dialogues_per_step=each,
        steps=steps,
        dialogues=None if steps is None else steps * each,
        tokens_written=written,
        lr=ready.used.lr,
        staleness=config.staleness,
        devices=1 if ready.devices is None else ready.devices.number,
        zero=None if ready.devices is None else ready.devices.zero.stage,
    )
    if ready.kind.visual:
        pages = None
        if steps is not None:
            references = len({task.ground_truth for task in ready.tasks})
            pages = steps * each * config.max_turns + min(references, steps * config.tasks_per_step)
        work = work.model_copy(update={"screenshots": pages})
    return Plan(work=work, assumed=assumed)
