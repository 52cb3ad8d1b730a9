"""The actor's training by OpenRLHF's own command: our pairs in its file, our hyperparameters in its arguments.

OpenRLHF's DPO takes one prompt for both sides, sums log-probabilities over the reply and adds the mean likelihood of
the chosen one: the actor's step-level objective, and so the only training here that it can do. Prompts are written with
the chat template applied and replies with the token that ends a turn, so that it is handed the very texts that the
other engines encode; what it does with them, their order included, is its own.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet import supervisor
from sweet.errors import SweetError
from sweet.learn.launcher import ORPHAN_TIMEOUT
from sweet.learn.tokens import ChatEncoder, ReplyText
from sweet.llm.vllm import last_lines
from sweet.tasks.base import Message

DATA = "pairs.jsonl"
OUTPUT, CHECKPOINTS = "model", "checkpoints"
_MODULE = "openrlhf.cli.train_dpo"


@dataclass(frozen=True)
class DpoJob:
    """One call of OpenRLHF's DPO command, in the folder that holds its data and gets its model.

    Attributes:
        model: to start from, and the reference: an absolute directory or a hub id.
        batch: pairs an optimizer step, over all devices; micro_batch: pairs a device at once.
        max_length: tokens of prompt and reply; OpenRLHF leaves out what is longer.
        offload: none, optimizer (its states in the host's memory), or all (the reference's weights too).
    """

    model: str
    lr: float
    beta: float
    nll: float
    epochs: int
    batch: int
    max_length: int
    seed: int
    micro_batch: int = 1
    devices: int | None = None
    hostfile: Path | None = None
    zero: int = 3
    offload: str = "none"
    save_every: int | None = None
    resume: bool = False


def rows(
    encoder: ChatEncoder, pairs: Sequence[tuple[Sequence[Message], ReplyText, ReplyText]]
) -> Iterator[dict[str, str]]:
    """What OpenRLHF reads of each (observation, chosen reply, rejected reply)."""
    for observation, *sides in pairs:
        prompt, (chosen, rejected) = encoder.texts(observation, sides)
        yield {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def arguments(job: DpoJob) -> list[str]:
    """What follows the command's name. Paths are relative: OpenRLHF cuts those of its data at commas and at signs."""
    options: dict[str, Any] = {
        "model.model_name_or_path": job.model,
        "ref.model_name_or_path": job.model,
        "data.dataset": DATA,
        "data.prompt_key": "prompt",
        "data.chosen_key": "chosen",
        "data.rejected_key": "rejected",
        "data.max_len": job.max_length,
        "train.batch_size": job.batch,
        "train.micro_batch_size": job.micro_batch,
        "train.max_epochs": job.epochs,
        "train.seed": job.seed,
        "adam.lr": job.lr,
        "model.beta": job.beta,
        "model.nll_loss_coef": job.nll,
        "lr_scheduler": "cosine_with_min_lr",
        "lr_warmup_ratio": 0.03,
        "min_lr_ratio": 0.1,
        "max_norm": 1.0,
        "ds.zero_stage": job.zero,
        "ds.param_dtype": "bf16",
        "ckpt.output_dir": OUTPUT,
        "ckpt.path": CHECKPOINTS,
    }
    if job.save_every is not None:
        options["ckpt.save_steps"] = job.save_every
    arguments_ = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    arguments_ += ["--adam.betas", "0.9", "0.95", "--model.gradient_checkpointing_enable"]
    if job.offload != "none":
        arguments_.append("--ds.adam_offload")
    if job.offload == "all":
        arguments_.append("--ref.offload")
    if job.resume:
        arguments_.append("--ckpt.load_enable")
    return arguments_


def command(python: str, job: DpoJob) -> list[str]:
    """The whole command: DeepSpeed's launcher, and OpenRLHF's module beneath it."""
    start = [python, "-m", "deepspeed.launcher.runner"]
    if job.hostfile is not None:
        start.append(f"--hostfile={job.hostfile.absolute()}")
    if job.devices is not None:
        start.append(f"--num_gpus={job.devices}")
    return [*start, "--module", _MODULE, *arguments(job)]


def train(python: str, job: DpoJob, folder: Path, log: Path) -> Path:
    """Run it in `folder`, which holds `DATA`; the folder of the trained model.

    Raises:
        SweetError: it failed, or left no model; with the last lines of its log.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            supervisor.supervised(command(python, job), ORPHAN_TIMEOUT),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        status = process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # the keeper then waits for nobody
            process.wait()
    output_folder = folder / OUTPUT
    if status != 0 or not (output_folder / "config.json").is_file():
        why = f"ended with status {status}" if status else f"left no model in {output_folder}"
        raise SweetError("\n".join([f"OpenRLHF {why}. The last lines of its log:", *last_lines(log)]), where=log)
    return output_folder


def steps(pairs: int, batch: int, epochs: int) -> int:
    """Of a training on so many pairs: what does not fill a step is left out of each epoch."""
    return epochs * (pairs // batch)


def write_rows(path: Path, options: Iterator[dict[str, str]]) -> int:
    """Write them, one JSON object a line; how many."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in options]
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)
