"""`sweet train-online`, and its `--dry-run`.

    config        the options
    prepare       from the options to what a training needs: tasks, humans, rule, critic, model
    stage         one call: artifacts, both sides, the loop, the actor; and its plan
    loop          the steps, checkpoints, and which weights are kept
    dialogues     the dialogues of a step
    learner       what a step teaches: the credit rule with the models that it may ask, and the optimizer
    ranks         learns on several devices, by calls of `rank`, their program
    policy        the sampler, which takes new weights
    safeguards    what is watched, and what a collapse is
    metrics       what is recorded

The stage makes three artifacts: the rollouts with every dialogue that was learned from, their scores, and the actor.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack

from pydantic_core import to_jsonable_python

from sweet.errors import UsageError
from sweet.learn.metrics import Record
from sweet.learn.trainee import Trainee, precision_note
from sweet.llm.gpus import in_use
from sweet.online.config import TrainOnlineConfig
from sweet.online.dialogues import StepPlayer, rows_after
from sweet.online.loop import OnlineLoop
from sweet.online.metrics import CurvePoint, OnlineMetrics, OnlineWork
from sweet.online.policy import DEVELOPER_MODE, open_policy
from sweet.online.prepare import Prepared, prepare
from sweet.online.ranks import Ranks
from sweet.online.safeguards import moving_reward
from sweet.render.page import Renderer
from sweet.rollouts.sides import check_vision
from sweet.runs.attempt import Draft
from sweet.runs.jsonl import JsonlWriter, read_jsonl, scan_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.frame import Frame
from sweet.stages.live import PAUSE
from sweet.stages.meta import ScoresMeta
from sweet.stages.plans import Plan, earlier_work, times
from sweet.tasks.scores import Score, TrajectoryScorer
from sweet.training.checkpoints import Checkpoints, training_digest
from sweet.training.loggers import MetricLogs
from sweet.units import count

DURATIONS = ("play_seconds", "train_seconds", "update_seconds", "validation_seconds")
"""The parts of the duration that are reported."""


def run_train_online(run: Run, config: TrainOnlineConfig, reporter: Reporter) -> StageResult[OnlineMetrics]:
    """Train an actor in many small rounds of playing and learning.

    Raises:
        UsageError: the options do not go together.
        SweetError: too many dialogues failed, or a loss is not finite.
        ServerError: a server could not be reached.
    """
    ready = prepare(run, config, reporter)
    with in_use(ready.gpus_of_ranks):
        return _train(run, ready, reporter)


def _train(run: Run, ready: Prepared, reporter: Reporter) -> StageResult[OnlineMetrics]:
    """Train inside an attempt, or return what an earlier one has finished."""
    framed = Frame(
        "train-online",
        run,
        ready.config,
        reporter,
        inputs=ready.inputs,
        models=ready.dialogues.models,
        computed=ready.computed,
        environment={"tasks_digest": ready.dialogues.tasks_digest},
        controls=PAUSE,
    )
    check_vision(ready.dialogues.kind, ready.dialogues.config, framed.serving)
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
        checkpoints = Checkpoints(actor.path, ready.devices is not None)
        one, several = "omit --devices", "--devices as before"
        metrics = None
        if actor.resumed and not checkpoints.exist(one=one, several=several):
            metrics = frame.finished_metrics(OnlineMetrics, (actor, rollouts, scores))
        if metrics is not None:
            rows = run.artifact(rollouts.id).rows, run.artifact(scores.id).rows
        else:
            with ExitStack() as stack:
                training = _Training(frame, ready, (actor, rollouts, scores), checkpoints, renderer, scorer, stack)
                metrics = training.run()
            rows = training.dialogues.rows, training.scores.rows
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


class _Training:
    """One training inside its attempt.

    Args:
        drafts: the actor, the rollouts and the scores.
        renderer: of the pages that humans see; None for tasks without pages.
        stack: what is opened is closed with it.
    """

    def __init__(
        self,
        frame: Frame,
        ready: Prepared,
        drafts: tuple[Draft, Draft, Draft],
        checkpoints: Checkpoints,
        renderer: Renderer | None,
        scorer: TrajectoryScorer,
        stack: ExitStack,
    ) -> None:
        self.frame, self.ready, self.checkpoints = frame, ready, checkpoints
        self.actor, self.rollouts, scores = drafts
        self.renderer, self.scorer = renderer, scorer
        config, live = ready.config, frame.live
        self.dialogues = stack.enter_context(JsonlWriter(self.rollouts.path))
        self.scores = stack.enter_context(JsonlWriter(scores.path))
        logged = config.model_dump(mode="json") | ready.actor_meta.as_json()
        self.logs = stack.enter_context(MetricLogs(config.log_to, frame.run, self.actor.id, logged, live))
        self.played = stack.enter_context(live.progress("dialogues", None))
        # The last one is what `sweet status` shows, with the time that is left.
        self.steps = stack.enter_context(live.progress("steps", config.most_steps))
        log = frame.attempt.log_path.with_suffix(".ranks.log")
        self.learner = ready.open_learner(frame.run, self.rollouts.id, checkpoints.ranks, log, live)
        if isinstance(self.learner, Ranks):
            stack.callback(self.learner.close)

    def run(self) -> OnlineMetrics:
        """Train and write the actor."""
        ready, live = self.ready, self.frame.live
        config, model = ready.config, ready.model
        on = ""
        if (ranks := ready.devices) is not None:
            on = f", on {count(ranks.number, 'device')} with ZeRO {ranks.zero.stage}"
        live.say(
            f"{model.trainee.parameters:,} parameters, {config.algorithm}, {config.tasks_per_step} tasks of "
            f"{config.group} dialogues a step, lr {ready.used.lr:g}{on}."
        )
        loop, ended = asyncio.run(self._train())
        kept, weights = loop.kept()
        trainee = model.trainee
        if isinstance(self.learner, Ranks):
            self.learner.close()
            trainee = Trainee.load(trainee.start, "cpu", tokenizer=model.encoder.tokenizer)
        trainee.load_weights(weights)
        if (note := precision_note(trainee.write(model.encoder, self.actor.path))) is not None:
            live.warn(note)
        self.checkpoints.remove()
        if ended == "collapse":
            live.warn(f"Ended by a collapse: {loop.done.collapse}. The actor has the weights of step {kept}.")
        cost = {} if self.frame.budget is None else {"cost": self.frame.cost_of(self.actor)}
        return _metrics(ready, loop, ended, kept).model_copy(update=cost)

    async def _train(self) -> tuple[OnlineLoop, str]:
        """Open both sides and train; return the loop after its last step, and what ended it."""
        ready, frame = self.ready, self.frame
        config, model, dialogues = ready.config, ready.model, ready.dialogues
        async with AsyncExitStack() as stack:
            if isinstance(self.learner, Ranks):
                stack.push(self.learner.close_on_error)
            folder = frame.run.path / ".policy" / self.actor.id
            opening = open_policy(config, model.base, model.trainee, frame.serving, folder)
            policy = await stack.enter_async_context(opening)
            player = StepPlayer(
                ready=ready,
                agent=policy,
                human=await dialogues.open_simulated_humans(frame.client, frame, stack, frame.run.path, self.renderer),
                writer=self.dialogues,
                log=frame.log,
                live=frame.live,
                bar=self.played,
                budget=frame.budget,
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
            player.recorded = rows_after(scan_jsonl(self.dialogues.path), loop.done.step)
            recorded = read_jsonl(self.scores.path, Score)
            loop.scored = {row.id: row for row in recorded if row.id in player.recorded}
            return loop, await loop.run()

    def _on_row(self, row: Record) -> None:
        self.frame.log.write(row)
        self.logs.write(row)


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
        reward=moving_reward(done.steps),
        validation=validated.get(kept),
        kl_start=done.steps[-1].get("kl_start") if done.steps else None,
        lr=ready.used.lr,
        parameters=trainee.parameters,
        trained_parameters=trainee.trained,
        **{name: round(done.sums.get(name, 0.0), 3) for name in DURATIONS},
        seconds=round(loop.seconds, 3),
        curve=[CurvePoint.read(row) for row in done.steps],
    )


def plan_train_online(run: Run | None, config: TrainOnlineConfig, reporter: Reporter) -> Plan[OnlineWork]:
    """Return the work that `run_train_online` would do at most."""
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
        tasks=len(ready.dialogues.tasks),
        dialogues_per_step=each,
        steps=steps,
        dialogues=None if steps is None else steps * each,
        tokens_written=written,
        devices=1 if ready.devices is None else ready.devices.number,
        zero=None if ready.devices is None else ready.devices.zero.stage,
    )
    if ready.dialogues.kind.visual:
        pages = None
        if steps is not None:
            references = len({task.ground_truth for task in ready.dialogues.tasks})
            pages = steps * each * config.max_turns + min(references, steps * config.tasks_per_step)
        work = work.model_copy(update={"screenshots": pages})
    return Plan(work=work, assumed=assumed)
