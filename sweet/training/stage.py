"""`sweet train-critic` and `sweet train-actor`, and their `--dry-run`.

    config                       the options
    prepare                      from the options to a `Training`: sources (which artifacts are learned from), model
                                 (where it starts), layout (where it runs), examples, hyperparameters
    stage                        one call: its artifact
    engines, openrlhf            run a training, in this process, by ranks or by a service, or by OpenRLHF's command
    remote                       what a service can train
    plan                         what a training would take

The artifact's folder holds the checkpoint until the training is done, and then only the model. On one device the
training happens in this process. With DeepSpeed it happens in child processes, which hold the weights, so this process
has only the shapes of the model.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from sweet.errors import Interrupted
from sweet.hints import option
from sweet.learn.interrupts import Interrupts
from sweet.learn.metrics import Record
from sweet.runs.run import Run
from sweet.stages.artifacts import write_prompt
from sweet.stages.base import Reporter, StageResult
from sweet.stages.frame import Frame
from sweet.stages.meta import TrainedMeta
from sweet.stages.plans import Plan
from sweet.stages.prices import Budget
from sweet.tasks.registry import task_kind
from sweet.training.basis import Training
from sweet.training.checkpoints import Checkpoints, adapter_meta, training_digest
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.engines import train_by_engine
from sweet.training.loggers import MetricLogs
from sweet.training.metrics import TrainMetrics, TrainWork
from sweet.training.openrlhf import train_by_openrlhf
from sweet.training.plan import plan_training
from sweet.training.prepare import prepare_actor, prepare_critic
from sweet.training.remote import ENGINE, by_service


def run_train_critic(run: Run, config: TrainCriticConfig, reporter: Reporter) -> StageResult[TrainMetrics]:
    """Train a critic on the run's preferences or scores, into a folder in Hugging Face layout."""
    return train(run, *prepare_critic(run, config, reporter), reporter)


def plan_train_critic(run: Run, config: TrainCriticConfig, reporter: Reporter) -> Plan[TrainWork]:
    """Return the work that `run_train_critic` would do (`sweet.training.plan`)."""
    training, _ = prepare_critic(run, config, reporter, weights=False)
    return plan_training(training, reporter)


def run_train_actor(run: Run, config: TrainActorConfig, reporter: Reporter) -> StageResult[TrainMetrics]:
    """Train an actor by the credit rule of the options, into a folder that `rollout --agent` accepts."""
    if config.engine == "openrlhf":
        return train_by_openrlhf(run, config, reporter)
    return train(run, *prepare_actor(run, config, reporter), reporter)


def plan_train_actor(run: Run, config: TrainActorConfig, reporter: Reporter) -> Plan[TrainWork]:
    """Return the work that `run_train_actor` would do (`sweet.training.plan`)."""
    training, _ = prepare_actor(run, config, reporter, weights=False)
    return plan_training(training, reporter)


def train(run: Run, training: Training, meta: TrainedMeta, reporter: Reporter) -> StageResult[TrainMetrics]:
    """Train inside an attempt and finish the artifact.

    Args:
        meta: of the artifact, as far as critics and actors differ.

    Raises:
        UsageError: too many examples are too long, or the checkpoint is of another engine.
        SweetError: there is nothing to train on, or the training failed.
    """
    config, model, used = training.config, training.model, training.hyperparameters
    training.check(reporter)
    if dropped := training.pool.dropped:
        reporter.warn(f"{dropped} early turns were omitted to fit --max-length {model.max_length}.")
    settings = {"base": model.base, **vars(used), "beta": training.beta, **adapter_meta(model)}
    service = [ENGINE] if by_service(config) else []
    if service:
        settings["lora_alpha"] = None  # it is the service's
    meta = meta.model_copy(update=settings)
    with Frame(config.stage, run, config, reporter, inputs=training.inputs) as frame:
        draft, budget = frame.artifact(config.makes, meta), frame.budget if service else Budget()
        checkpoints = Checkpoints(draft.path, training.layout is not None)
        checkpoints.check(one=option("engine", "torch"), several=option("engine", "deepspeed"))
        metrics, interrupts = frame.made_before(TrainMetrics, [draft]), Interrupts(frame.say)
        if metrics is None:
            if budget.is_spent():
                raise budget.stopped("No step is begun.")
            logged = config.model_dump(mode="json") | meta.as_json()
            digest = training_digest(config, model, used, *(artifact.sha256 for artifact in training.inputs), *service)
            with closing(MetricLogs(config.log_to, run, draft.id, logged, frame)) as logs:

                def on_row(row: Record) -> None:
                    frame.log.write(row)
                    logs.write(row)
                    interrupts.asked |= budget.is_spent()

                resumed = config.resume and draft.resumed
                examples, figures = checkpoints.examples(training.examples, training.figures, digest, resume=resumed)
                training = replace(training, examples=examples, figures=figures)
                ranks_log = frame.attempt.log_path.with_suffix(".ranks.log")
                try:
                    summary = train_by_engine(checkpoints, training, digest, ranks_log, on_row, interrupts, frame)
                except Interrupted as error:
                    if not budget.is_spent():
                        raise
                    raise budget.stopped(error.what) from error
            if config.makes == "actor":
                write_prompt(draft.path, task_kind(run.manifest().task), meta.agent_system)
            metrics = _metrics(training, summary, frame.cost_of(draft) if service else None)
            frame.made(metrics, [draft])
        checkpoints.remove()
        by_user = interrupts.asked and not budget.is_spent()  # of a limit the next stage says more
        return frame.result(metrics, frame.finish(draft, metrics), stopped=by_user)


def _metrics(training: Training, summary: Record, cost: float | None) -> TrainMetrics:
    return TrainMetrics(
        cost=cost,
        **training.figures,
        **summary,
        **vars(training.hyperparameters),
        shuffle=training.shuffle,
        parameters=training.model.trainee.parameters,
        trained_parameters=training.model.trainee.trained,
        examples=len(training.examples),
        heldout=len(training.heldout),
        dropped_turns=training.pool.dropped,
        left_out=training.left_out,
    )
