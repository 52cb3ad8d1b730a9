"""`sweet train-online`, and its `--dry-run`.

    config        the options
    prepare       from the options to what a training needs: tasks, humans, rule, critic, model
    stage         one call: its artifacts, and what it would do
    training      one training: both sides, the loop, the actor
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

from contextlib import ExitStack

from pydantic_core import to_jsonable_python

from sweet.errors import UsageError
from sweet.gpus import in_use
from sweet.online.config import TrainOnlineConfig
from sweet.online.metrics import OnlineMetrics, OnlineWork
from sweet.online.policy import DEVELOPER_MODE
from sweet.online.prepare import Prepared, prepare
from sweet.online.training import OnlineTraining
from sweet.runs.attempt import Draft
from sweet.runs.run import Run
from sweet.stages.artifacts import write_prompt
from sweet.stages.base import Reporter, StageResult
from sweet.stages.meta import ScoresMeta
from sweet.stages.plans import Plan, earlier_work, times
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory
from sweet.training.checkpoints import Checkpoints


def run_train_online(run: Run, config: TrainOnlineConfig, reporter: Reporter) -> StageResult[OnlineMetrics]:
    """Train an actor in many small rounds of playing and learning.

    Raises:
        UsageError: the options do not go together.
        SweetError: too many dialogues failed, or a loss is not finite.
        ServerError: a server could not be reached.
    """
    ready = prepare(run, config, reporter)
    with in_use(ready.gpus_of_ranks):  # before the servers' GPUs are chosen
        return _train(run, ready, reporter)


def _train(run: Run, ready: Prepared, reporter: Reporter) -> StageResult[OnlineMetrics]:
    """Train inside an attempt, or return what an earlier one has finished."""
    framed = ready.dialogues.frame("train-online", run, ready.config, reporter, ready.inputs, ready.computed)
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
        drafts, checkpoints = (actor, rollouts, scores), Checkpoints(actor.path, ready.devices is not None)
        checkpoints.check(one="omit --devices", several="--devices as before")
        metrics = frame.made_before(OnlineMetrics, drafts)
        dialogue_rows, score_rows = frame.writer(rollouts, Trajectory), frame.writer(scores, Score)
        if metrics is None:
            with ExitStack() as stack:
                training = OnlineTraining(
                    frame, ready, actor, dialogue_rows, score_rows, checkpoints, renderer, scorer, stack
                )
                metrics = training.run()
            write_prompt(actor.path, ready.dialogues.kind)
            frame.made(metrics, drafts)
        checkpoints.remove()
        played = frame.finish(dialogue_rows, metrics)
        scored = frame.finish(score_rows, metrics, made_from=[played])
        trained = frame.finish(actor, metrics, made_from=[scored, played])
        return frame.result(metrics, trained, scored, played)


def _check_scorer(run: Run, rollouts: Draft, scorer: str) -> None:
    """Raise UsageError if an earlier attempt has scored these dialogues by another scorer, whose rewards do not compare
    with those of now."""
    manifest = run.manifest()
    scores = [a for a in manifest.of_kind("scores") if ScoresMeta.of(a).rollouts == rollouts.id]
    attempts = {attempt.id: attempt.stage for attempt in manifest.attempts}
    earlier = {ScoresMeta.of(a).scorer for a in scores if attempts.get(a.attempt) == "train-online"}
    if earlier and scorer not in earlier:
        raise UsageError(
            f"The training was scored by {', '.join(map(str, earlier))} so far, and would be scored by {scorer} now.",
            where=rollouts.path,
            fix="begin another training without --resume, and name its scorer",
        )


def plan_train_online(run: Run | None, config: TrainOnlineConfig, reporter: Reporter) -> Plan[OnlineWork]:
    """Return the work that `run_train_online` would do at most."""
    ready = prepare(run, config, reporter, weights=False)
    trainee = ready.model.trainee
    dialogues_per_step = config.tasks_per_step * config.group
    steps = config.most_steps
    earlier, assumed = earlier_work(run, "train-online"), []
    tokens_per_dialogue = None if earlier is None else earlier.of_a_dialogue("completion_tokens")
    if earlier is not None and tokens_per_dialogue is not None:
        assumed = [f"A dialogue has as many tokens as in the training of {earlier.artifact.id}."]
    tokens = times(None if steps is None else steps * dialogues_per_step, tokens_per_dialogue)
    budget = config.generated_tokens
    tokens_written = min(tokens, budget) if tokens is not None and budget is not None else budget or tokens
    work = OnlineWork(
        base=ready.model.base,
        algorithm=config.algorithm,
        parameters=trainee.parameters,
        trainable=trainee.trained,
        tasks=len(ready.dialogues.tasks),
        dialogues_per_step=dialogues_per_step,
        steps=steps,
        dialogues=None if steps is None else steps * dialogues_per_step,
        tokens_written=tokens_written,
        devices=1 if ready.devices is None else ready.devices.number,
        zero=None if ready.devices is None else ready.devices.zero.stage,
    )
    return Plan(work=work, assumed=assumed)
