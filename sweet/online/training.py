"""One online training inside its attempt: both sides are opened, the loop runs, the actor is written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, closing

from sweet.gathering import run_main
from sweet.learn.metrics import Record
from sweet.learn.remote import RemoteEngine
from sweet.learn.trainee import Trainee, precision_note
from sweet.online.dialogues import StepPlayer
from sweet.online.loop import OnlineLoop
from sweet.online.metrics import CurvePoint, OnlineMetrics
from sweet.online.policy import open_policy
from sweet.online.prepare import Prepared
from sweet.online.ranks import Ranks
from sweet.online.safeguards import moving_reward
from sweet.render.page import Renderer
from sweet.rollouts.steps import StepsFile
from sweet.runs.attempt import Draft
from sweet.runs.jsonl import read_jsonl, scan_jsonl
from sweet.stages.frame import Frame, Rows
from sweet.tasks.scores import Score, TrajectoryScorer
from sweet.training.checkpoints import Checkpoints, training_digest
from sweet.training.loggers import MetricLogs
from sweet.units import count

DURATIONS = ("play_seconds", "train_seconds", "update_seconds", "validation_seconds")
"""The parts of the duration that are reported."""


class OnlineTraining:
    """One training inside its attempt.

    Args:
        actor: the artifact that is made. dialogues, scores: the rows of the other two.
        renderer: of the pages that humans see; None for tasks without pages.
        stack: what is opened is closed with it.
    """

    def __init__(
        self,
        frame: Frame,
        ready: Prepared,
        actor: Draft,
        dialogues: Rows,
        scores: Rows,
        checkpoints: Checkpoints,
        renderer: Renderer | None,
        scorer: TrajectoryScorer,
        stack: ExitStack,
    ) -> None:
        self.frame, self.ready, self.checkpoints = frame, ready, checkpoints
        self.actor, self.dialogues, self.scores = actor, dialogues, scores
        self.renderer, self.scorer = renderer, scorer
        config, live = ready.config, frame.live
        logged = config.model_dump(mode="json") | ready.actor_meta.as_json()
        self.logs = stack.enter_context(closing(MetricLogs(config.log_to, frame.run, self.actor.id, logged, live)))
        self.played = stack.enter_context(live.progress("dialogues", None))
        # The last one is what `sweet status` shows, with the time that is left.
        self.steps = stack.enter_context(live.progress("steps", config.most_steps))
        log = frame.attempt.log_path.with_suffix(".ranks.log")
        self.learner = ready.open_learner(frame.run, dialogues.draft.id, checkpoints.ranks, log, live)
        if isinstance(self.learner, Ranks):
            stack.callback(self.learner.close)

    def run(self) -> OnlineMetrics:
        """Train and write the actor."""
        ready, live = self.ready, self.frame.live
        config, model = ready.config, ready.model
        ranks_text = ""
        if (ranks := ready.devices) is not None:
            ranks_text = f", on {count(ranks.number, 'device')} with ZeRO {ranks.zero.stage}"
        live.say(
            f"{model.trainee.parameters:,} parameters, {config.algorithm}, {config.tasks_per_step} tasks of "
            f"{config.group} dialogues a step, lr {ready.used.lr:g}{ranks_text}."
        )
        loop, ended = run_main(self._train())
        kept_step, weights = loop.kept()
        if self.remote is not None:
            self.remote.write(weights, model.encoder, self.actor.path)
        else:
            trainee = model.trainee
            if isinstance(self.learner, Ranks):
                self.learner.close()
                trainee = Trainee.load(trainee.start, "cpu", tokenizer=model.encoder.tokenizer)
            trainee.load_weights(weights)
            if (note := precision_note(trainee.write(model.encoder, self.actor.path))) is not None:
                live.warn(note)
        if ended == "collapse":
            live.warn(f"Ended by a collapse: {loop.done.collapse}. The actor has the weights of step {kept_step}.")
        failures, cost = self.frame.failures, self.frame.cost_of(self.actor)
        if failures.count:
            live.warn(f"{count(failures.count, 'dialogue')} failed: {failures.summary()}.")
        extra_metrics = {"failures": failures.reasons() or None, "cost": cost}
        return _metrics(ready, loop, ended, kept_step).model_copy(update=extra_metrics)

    @property
    def remote(self) -> RemoteEngine | None:
        """What trains at a service."""
        engine = getattr(self.learner, "engine", None)
        return engine if isinstance(engine, RemoteEngine) else None

    async def _train(self) -> tuple[OnlineLoop, str]:
        """Open both sides and train; return the loop after its last step, and what ended it."""
        ready, frame = self.ready, self.frame
        config, model, dialogues = ready.config, ready.model, ready.dialogues
        async with AsyncExitStack() as stack:
            if isinstance(self.learner, Ranks):
                stack.push(self.learner.close_on_error)
            folder = frame.run.path / ".policy" / self.actor.id
            opening = open_policy(config, model.base, model.trainee, frame.serving, folder, self.remote)
            policy = await stack.enter_async_context(opening)
            humans = await dialogues.open_simulated_humans(frame.client, stack, frame.run.path, self.renderer)
            harness = None
            if dialogues.config.harness is not None:
                from sweet.rollouts.gateway.harness import open_harness

                opened = open_harness(policy, humans, dialogues, ready.rules, frame.run.path)
                harness = await stack.enter_async_context(opened)
            player = StepPlayer(
                config=config,
                kind=dialogues.kind,
                rules=ready.rules,
                deadline=config.deadline,
                agent=policy,
                human=humans,
                harness=harness,
                writer=self.dialogues,
                log=frame.log,
                live=frame.live,
                bar=self.played,
                budget=frame.budget,
                failures=frame.failures,
            )
            inputs = (dialogues.tasks_digest, *(artifact.sha256 for artifact in ready.inputs))
            loop = OnlineLoop(
                ready=ready,
                player=player,
                scorer=self.scorer,
                scores=self.scores,
                learner=self.learner,
                policy=policy,
                checkpoint=self.checkpoints.file,
                digest=training_digest(config, model, ready.used, *inputs),
                bar=self.steps,
                on_row=self._on_row,
            )
            loop.load()
            rows = scan_jsonl(self.dialogues.path)
            player.recorded = {row["id"]: row for row in rows if row.get("step", 0) > loop.done.step}
            finished = {row["id"] for row in scan_jsonl(self.dialogues.path)}
            player.steps = stack.enter_context(StepsFile(self.dialogues.path, finished))
            recorded = read_jsonl(self.scores.path, Score)
            loop.scored = {row.id: row for row in recorded if row.id in player.recorded}
            return loop, await loop.run()

    def _on_row(self, row: Record) -> None:
        self.frame.log.write(row)
        self.logs.write(row)


def _agreement(steps: Sequence[Record]) -> float | None:
    couples = sum(step.get("turn_couples", 0) for step in steps)
    return round(sum(step.get("turns_in_order", 0) for step in steps) / couples, 6) if couples else None


def _metrics(ready: Prepared, loop: OnlineLoop, ended: str, kept_step: int) -> OnlineMetrics:
    done, trainee = loop.done, ready.model.trainee
    validated = {row["step"]: row["validation"] for row in done.steps if "validation" in row}
    counts = ("episodes", "failed", "completion_tokens", "prompt_tokens", "human_prompt_tokens")
    return OnlineMetrics(
        steps=done.step,
        updates=loop.learner.updates,
        ended=ended,
        collapse=done.collapse,
        kept_step=kept_step,
        **{name: done.count(name) for name in (*counts, "human_completion_tokens", "validation_tokens")},
        reward=moving_reward(done.steps),
        validation=validated.get(kept_step),
        agreement=_agreement(done.steps),
        kl_start=done.steps[-1].get("kl_start") if done.steps else None,
        lr=ready.used.lr,
        parameters=trainee.parameters,
        trained_parameters=trainee.trained,
        **{name: round(done.sums.get(name, 0.0), 3) for name in DURATIONS},
        seconds=round(loop.seconds, 3),
        curve=[CurvePoint.read(row) for row in done.steps],
    )
