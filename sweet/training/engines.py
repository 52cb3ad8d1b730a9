"""A training by our loop: in this process, by ranks (`sweet.learn.job`), or by a service (`sweet.learn.remote`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sweet.learn.engine import Engine
from sweet.learn.interrupts import Interrupts
from sweet.learn.job import Job, train_in_ranks
from sweet.learn.metrics import Record
from sweet.learn.page_encoder import PageEncoder
from sweet.learn.remote import RemoteEngine
from sweet.learn.trainee import precision_note
from sweet.llm.tinker import service_address
from sweet.stages.base import Reporter
from sweet.training.basis import Training
from sweet.training.checkpoints import Checkpoints
from sweet.training.remote import by_service
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


def train_by_engine(
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
                bar.note(**{label: row[name] for name, label in SHOWN.items() if row[name] is not None})

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
    engine: Callable[[Any, float], Engine] = Engine
    if by_service(training.config):
        engine = partial(RemoteEngine, start=model.trainee.start)
        reporter.say(f"The adapter is trained by {service_address()}.")
    loop = job.loop(
        model.trainee.model,
        checkpoints.file,
        on_step=on_step,
        on_reference=interrupts.hold,
        stop=lambda: interrupts.asked,
        make_engine=engine,
    )
    if training.settings.share and not loop.scorer.max_shared_length and not model.sees_pages:
        reporter.say("Sequences are computed one by one: this model's attention does not support prefix trees.")
    if loop.scorer.flex_error is not None:
        reporter.say(f"Attention is computed block by block, not by FlexAttention: {loop.scorer.flex_error}.")
    with interrupts:
        summary = loop.run(resume=job.resume)
    weights = loop.final_weights()
    assert weights is not None
    if isinstance(loop.engine, RemoteEngine):
        loop.engine.write(weights, model.encoder, checkpoints.folder)
        return summary
    model.trainee.load_weights(weights)
    return summary | model.trainee.write(model.encoder, checkpoints.folder)
