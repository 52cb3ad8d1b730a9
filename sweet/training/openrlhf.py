"""`sweet train-actor --engine openrlhf`: the pairs handed to OpenRLHF's command, its model taken back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence

from sweet.errors import SweetError, UsageError
from sweet.hints import Hint, option
from sweet.learn.openrlhf import CHECKPOINTS, DATA, DpoJob, command, rows, steps, train, write_rows
from sweet.learn.openrlhf_python import find_python
from sweet.learn.tokens import ReplyText
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import absolute_name, model_path
from sweet.stages.base import StageResult
from sweet.stages.rows import Pair
from sweet.tasks.base import Message
from sweet.training.layout import ZERO
from sweet.training.trainer import Training

FOLDER = "openrlhf"
"""In the actor's folder while it is trained: the data, OpenRLHF's checkpoints, its model."""
_LONGEST = 16384


def train_by_openrlhf(training: Training, pairs: Sequence[Pair]) -> StageResult:
    """Have OpenRLHF train the actor on step-level pairs.

    Raises:
        UsageError: OpenRLHF is not installed, or cannot train on this.
        SweetError: its command failed.
    """
    config, hyper, run = training.config, training.hyper, training.run
    if not pairs:
        raise SweetError(
            "There is nothing to train on.",
            where=training.inputs[0].id,
            fix=Hint("a larger ", option("limit"), " or run"),
        )
    if len(pairs) < hyper.batch:
        raise UsageError(
            f"OpenRLHF leaves out what does not fill a step, and there are {len(pairs)} pairs.",
            where=option("batch", hyper.batch),
            fix=Hint(option("batch", len(pairs)), ", or more pairs"),
        )
    if find_adapter(training.base) is not None:
        what = f"OpenRLHF starts from whole models, and {training.base} is a LoRA adapter."
        raise UsageError(
            what,
            where=option("engine", "openrlhf"),
            fix=Hint(option("engine", "torch"), ", or deepspeed for several devices"),
        )
    python, version = find_python()
    used = {"lr": hyper.lr, "nll": hyper.nll, "epochs": hyper.epochs, "batch": hyper.batch, "beta": config.beta}
    meta = {"base": training.base, "method": "sweet", "recipe": config.recipe, **used}
    with run.attempt("train-actor", config, inputs=training.inputs, environment={"openrlhf": version}) as attempt:
        draft = attempt.start_artifact("actor", suffix="", meta=meta, resume=config.resume)
        folder = draft.path / FOLDER
        folder.mkdir(exist_ok=True)
        job = DpoJob(
            model=absolute_name(model_path(training.base)),
            lr=hyper.lr,
            beta=config.beta,
            nll=hyper.nll,
            epochs=hyper.epochs,
            batch=hyper.batch,
            max_length=training.max_length or _LONGEST,
            seed=config.seed,
            devices=config.devices,
            hostfile=config.hostfile,
            zero=ZERO if config.zero is None else config.zero,
            offload=config.offload,
            save_every=config.save_every,
            resume=config.resume and (folder / CHECKPOINTS).exists(),
        )
        count = write_rows(folder / DATA, rows(training.encoder, [_sides(pair) for pair in pairs]))
        log = attempt.log_path.with_suffix(".openrlhf.log")
        training.reporter.say(f"OpenRLHF {version} trains on {count} pairs; what it says is in {log}.")
        attempt.environment["command"] = command(python, job)
        began = time.monotonic()
        made = train(python, job, folder, log)
        for entry in made.iterdir():
            entry.replace(draft.path / entry.name)
        shutil.rmtree(folder)
        metrics = {
            "examples": count,
            "steps": steps(count, hyper.batch, hyper.epochs),
            "parameters": training.parameters,
            "seconds": round(time.monotonic() - began, 3),
        }
        attempt.metrics.update(metrics)
        artifact = attempt.finish_artifact(draft, rows=None)
    return StageResult("train-actor", run.path, metrics, [artifact])


def _sides(pair: Pair) -> tuple[Sequence[Message], ReplyText, ReplyText]:
    chosen = ReplyText(pair.chosen, pair.chosen_token_ids, pair.chosen_ended)
    return pair.observation, chosen, ReplyText(pair.rejected, pair.rejected_token_ids, pair.rejected_ended)
