"""`sweet train-critic` and `sweet train-actor`, and their `--dry-run`.

    config                       the options
    prepare                      from the options to a `Training`: sources (which artifacts are learned from), model
                                 (where it starts), layout (where it runs), examples, hyperparameters
    stage, openrlhf              run a training, by our engines or by OpenRLHF's command
    plan                         what a training would take

The artifact's folder holds the checkpoint until the training is done, and then only the model. On one device the
training happens in this process. With DeepSpeed it happens in child processes, which hold the weights, so this process
has only the shapes of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sweet.hints import option
from sweet.learn.interrupts import Interrupts
from sweet.learn.job import Job, train_in_ranks
from sweet.learn.metrics import Record
from sweet.learn.page_encoder import PageEncoder
from sweet.learn.trainee import precision_note
from sweet.runs.run import Run
from sweet.stages.artifacts import write_prompt
from sweet.stages.base import Reporter, StageResult
from sweet.stages.frame import Frame
from sweet.stages.live import PAUSE
from sweet.stages.meta import TrainedMeta
from sweet.stages.plans import Plan
from sweet.tasks.registry import task_kind
from sweet.training.basis import Training
from sweet.training.checkpoints import Checkpoints, adapter_meta, training_digest
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.loggers import MetricLogs
from sweet.training.metrics import TrainMetrics, TrainWork
from sweet.training.openrlhf import train_by_openrlhf
from sweet.training.plan import plan_training
from sweet.training.prepare import prepare_actor, prepare_critic
from sweet.units import count

SHOWN = {
    "loss": "loss",
    "accuracy": "accuracy",
    "margin": "margin",
    "grad_norm": "gradient",
    "lr": "lr",
    "tokens_per_second": "tokens/s",
}
"""Metrics that the progress bar shows, and their names there."""


def run_train_critic(run: Run, config: TrainCriticConfig, reporter: Reporter) -> StageResult[TrainMetrics]:
    """Train a critic on the run's preferences or scores, into a folder in Hugging Face layout."""
    return train(run, *prepare_critic(run, config, reporter), reporter)


def plan_train_critic(run: Run, config: TrainCriticConfig, reporter: Reporter) -> Plan[TrainWork]:
    """Return the work that `run_train_critic` would do (`sweet.training.plan`)."""
    training, _ = prepare_critic(run, config, reporter, weights=False)
    return plan_training(training, reporter)


def run_train_actor(run: Run, config: TrainActorConfig, reporter: Reporter) -> StageResult[TrainMetrics]:
    """Train an actor by the method of the options, into a folder that `rollout --agent` accepts."""
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
    own = {"base": model.base, **vars(used), "beta": training.beta, **adapter_meta(model)}
    meta = meta.model_copy(update=own)
    controls = PAUSE if training.layout is None else ()
    with Frame(config.stage, run, config, reporter, inputs=training.inputs, controls=controls) as frame:
        draft = frame.artifact(config.makes, meta)
        checkpoints = Checkpoints(draft.path, training.layout is not None)
        torch, deepspeed = (option("engine", name) for name in ("torch", "deepspeed"))
        has_checkpoint = checkpoints.exist(one=torch, several=deepspeed)
        metrics, interrupts = None, Interrupts(frame.say)
        if draft.resumed and not has_checkpoint:
            metrics = frame.finished_metrics(TrainMetrics, [draft])
        if metrics is None:
            logged = config.model_dump(mode="json") | meta.as_json()
            digest = training_digest(config, model, used, *(artifact.sha256 for artifact in training.inputs))
            with MetricLogs(config.log_to, run, draft.id, logged, frame) as logs:

                def on_row(row: Record) -> None:
                    frame.log.write(row)
                    logs.write(row)
                    frame.live.wait_while_paused(unless=lambda: interrupts.asked)

                resumed = config.resume and draft.resumed
                examples, figures = checkpoints.examples(training.examples, training.figures, digest, resume=resumed)
                training = replace(training, examples=examples, figures=figures)
                ranks_log = frame.attempt.log_path.with_suffix(".ranks.log")
                summary = _train_into(checkpoints, training, digest, ranks_log, on_row, interrupts, frame)
            checkpoints.remove()
            if config.makes == "actor":
                write_prompt(draft.path, task_kind(run.manifest().task), meta.agent_system)
            metrics = _metrics(training, summary)
        return frame.result(metrics, frame.finish(draft, metrics), stopped=interrupts.asked)


def _metrics(training: Training, summary: Record) -> TrainMetrics:
    return TrainMetrics(
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


def _train_into(
    checkpoints: Checkpoints,
    training: Training,
    digest: str,
    ranks_log: Path,
    on_row: Callable[[Record], None],
    interrupts: Interrupts,
    reporter: Reporter,
) -> Record:
    """Train, with the checkpoint and then the model in their folder; return the result of `Loop.run`.

    Args:
        on_row: called with each row of metrics.
    """
    model, settings, used = training.model, training.settings, training.hyperparameters
    examples = len(training.examples)
    steps = settings.steps(examples)
    trained = f" ({model.trainee.trained:,} trained)" if model.trainee.start.lora is not None else ""
    reporter.say(
        f"{model.trainee.parameters:,} parameters{trained}, {count(examples, 'example')}, "
        f"{count(steps, 'step')} of {used.batch}, lr {used.lr:g}, nll {used.nll:g}."
    )
    with reporter.progress(training.config.stage, steps) as bar:

        def on_step(row: Record) -> None:
            on_row(row)
            if "loss" in row:
                bar.advance()
                bar.note(**{shown: row[name] for name, shown in SHOWN.items() if row[name] is not None})

        job = make_job(checkpoints.folder, training, digest)
        if training.layout is None:
            summary = _train_here(job, checkpoints, training, on_step, interrupts, reporter)
        else:
            summary = train_in_ranks(job, training.layout, checkpoints.ranks, ranks_log, on_step, interrupts)
    if (note := precision_note(summary)) is not None:
        reporter.warn(note)
    return summary


def make_job(folder: Path, training: Training, digest: str) -> Job:
    """Return the training as it is run, here or by ranks."""
    encoder = training.model.encoder
    return Job(
        start=training.model.trainee.start,
        output=folder,
        device="cuda" if training.model.on_gpu else "cpu",
        zero=training.zero,
        settings=training.settings,
        objective=training.objective,
        digest=digest,
        resume=training.config.resume,
        pool=training.pool.sequences,
        examples=training.examples,
        heldout=training.heldout,
        vision=encoder.vision.model if isinstance(encoder, PageEncoder) else None,
    )


def _train_here(
    job: Job,
    checkpoints: Checkpoints,
    training: Training,
    on_step: Callable[[Record], None],
    interrupts: Interrupts,
    reporter: Reporter,
) -> Record:
    """Train in this process and write the model."""
    model = training.model
    loop = job.loop(
        model.trainee.model,
        checkpoints.file,
        on_step=on_step,
        on_reference=interrupts.hold,
        stop=lambda: interrupts.asked,
    )
    if training.settings.share and not loop.scorer.max_shared_length and not model.sees_pages:
        reporter.say("Sequences are computed one by one: this model's attention does not support prefix trees.")
    if loop.scorer.flex_error is not None:
        reporter.say(f"Attention is computed block by block, not by FlexAttention: {loop.scorer.flex_error}.")
    with interrupts:
        summary = loop.run(resume=job.resume)
    weights = loop.final_weights()
    assert weights is not None
    model.trainee.load_weights(weights)
    return summary | model.trainee.write(model.encoder, checkpoints.folder)
