"""`sweet train-actor --engine openrlhf`: OpenRLHF's command trains on the pairs, and its model becomes the actor."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweet.credit.hyperparameters import Hyperparameters
from sweet.errors import SweetError, UsageError
from sweet.hints import option
from sweet.learn.openrlhf import (
    CHECKPOINTS,
    DATA,
    Comparison,
    DpoJob,
    command,
    find_python,
    rows,
    steps,
    train,
    write_rows,
)
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import absolute_name, model_path
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.frame import Frame
from sweet.stages.rows import Pair
from sweet.tasks.base import ProtocolName, TurnTokens
from sweet.training.config import TrainConfig
from sweet.training.examples import sides_of
from sweet.training.loggers import LogTarget
from sweet.training.metrics import TrainMetrics
from sweet.training.model import StartingModel
from sweet.training.trainer import StageRecord

FOLDER = "openrlhf"
"""In the actor's folder while it is trained: the data, OpenRLHF's checkpoints, its model."""
MAX_LENGTH = 16384
"""Tokens of a pair at most, where neither the options nor the model has a limit."""


@dataclass(frozen=True)
class OpenRLHFTraining:
    """A training by OpenRLHF that is ready to run.

    Attributes:
        model: of which OpenRLHF loads the weights itself.
        inputs: the artifacts that are read.
    """

    config: TrainConfig
    model: StartingModel
    pairs: Sequence[Pair]
    hyperparameters: Hyperparameters
    inputs: Sequence[Artifact]

    def job(self, *, resume: bool) -> DpoJob:
        """Return the call of OpenRLHF's command."""
        used, config = self.hyperparameters, self.config
        return DpoJob(
            model=absolute_name(model_path(self.model.base)),
            lr=used.lr,
            beta=config.beta,
            nll=used.nll,
            epochs=used.epochs,
            batch=used.batch,
            max_length=self.model.max_length or MAX_LENGTH,
            seed=config.seed,
            devices=config.devices,
            hostfile=config.hostfile,
            zero=config.zero_stage,
            offload=config.offload,
            save_every=config.save_every,
            resume=resume,
        )


def check_openrlhf(
    *,
    lora: bool,
    protocol: ProtocolName,
    log_to: Sequence[LogTarget],
    turn_tokens: TurnTokens = "both",
    rule_options: Sequence[str] = (),
) -> None:
    """Raise UsageError for options that OpenRLHF does not support."""
    if rule_options:
        raise UsageError(
            "OpenRLHF has a loss of its own, which does not know the options of a credit rule.",
            where=f"{option('rule_option', rule_options[0])} --engine openrlhf",
            fix="--engine torch, or deepspeed",
        )
    if turn_tokens != "both":
        raise UsageError(
            "OpenRLHF sums over all tokens of a reply, its thought included.",
            where=f"{option('turn_tokens', turn_tokens)} --engine openrlhf",
            fix="--turn-tokens both, or --engine torch or deepspeed",
        )
    if log_to:
        raise UsageError(
            "OpenRLHF does not report its metrics.",
            where="--log-to",
            fix="--engine torch, or deepspeed",
        )
    if protocol == "upstream":
        what = "OpenRLHF's likelihood term is of the reply alone, and upstream's of the whole dialogue."
        raise UsageError(
            what,
            where="--protocol upstream --engine openrlhf",
            fix="--engine torch, or deepspeed",
        )
    if lora:
        what = "LoRA is not supported with OpenRLHF."
        fix = "--engine torch, or deepspeed for several devices"
        raise UsageError(what, where="--lora --engine openrlhf", fix=fix)


def unsuitable_for_openrlhf(learner: str) -> UsageError:
    """Return the error for data that are no pairs of replies to one prompt."""
    return UsageError(
        f"OpenRLHF's DPO needs one prompt for both sides of a pair, and the data of {learner} have none.",
        where="--engine openrlhf",
        fix="--engine torch, or deepspeed for several devices",
    )


def train_by_openrlhf(
    run: Run, training: OpenRLHFTraining, record: StageRecord, reporter: Reporter
) -> StageResult[TrainMetrics]:
    """Have OpenRLHF train the actor on step-level pairs, inside an attempt.

    Raises:
        UsageError: OpenRLHF is not installed, or cannot train on this.
        SweetError: its command failed.
    """
    compared = _compared(training)
    python, version = find_python()
    used = training.hyperparameters
    meta = record.artifact_meta(training.model.base, used, training.config.beta)
    environment = {"openrlhf": version}
    framed = Frame(record.stage, run, record.config, reporter, inputs=training.inputs, environment=environment)
    with framed as frame:
        draft = frame.artifact(record.kind, meta)
        folder = draft.path / FOLDER
        folder.mkdir(exist_ok=True)
        job = training.job(resume=record.resume and (folder / CHECKPOINTS).exists())
        count = write_rows(folder / DATA, rows(training.model.encoder, compared))
        log = frame.attempt.log_path.with_suffix(".openrlhf.log")
        frame.say(f"OpenRLHF {version} trains on {count} pairs; its output is in {log}.")
        frame.attempt.environment["command"] = command(python, job)
        began = time.monotonic()
        _move_model(train(python, job, folder, log), draft.path)
        shutil.rmtree(folder)
        metrics = TrainMetrics(
            examples=count,
            steps=steps(count, used.batch, used.epochs),
            parameters=training.model.trainee.parameters,
            seconds=round(time.monotonic() - began, 3),
        )
        return frame.result(metrics, frame.finish(draft, metrics))


def _compared(training: OpenRLHFTraining) -> list[Comparison]:
    """Return the pairs as OpenRLHF's data.

    Raises:
        UsageError: OpenRLHF cannot train on them.
        SweetError: there is none.
    """
    count, batch = len(training.pairs), training.hyperparameters.batch
    if not count:
        raise SweetError(
            "There is nothing to train on.",
            where=training.inputs[0].id,
            fix="a larger --limit or run",
        )
    if count < batch:
        raise UsageError(
            f"OpenRLHF omits an incomplete step, and there are only {count} pairs.",
            where=option("batch", batch),
            fix=f"{option('batch', count)}, or more pairs",
        )
    if find_adapter(training.model.base) is not None:
        what = f"OpenRLHF starts from whole models, and {training.model.base} is a LoRA adapter."
        raise UsageError(
            what,
            where="--engine openrlhf",
            fix="--engine torch, or deepspeed for several devices",
        )
    found: list[Comparison] = []
    for pair in training.pairs:
        chosen, rejected = sides_of(pair)
        if rejected is None:
            raise UsageError(
                f"OpenRLHF's DPO compares two replies, and {pair.id} has one.",
                where=training.inputs[0].id,
                fix="--engine torch, or sweet pair with --unpaired omit",
            )
        found.append(Comparison(pair.observation, chosen, rejected, pair.prompt_token_ids))
    return found


def _move_model(source: Path, target: Path) -> None:
    for entry in source.iterdir():
        entry.replace(target / entry.name)
