"""Trains the actor with OpenRLHF's command: writes the pairs to its file format and the hyperparameters to its
arguments.

OpenRLHF's DPO uses one prompt for both sides, sums log-probabilities over the reply and adds the mean likelihood of the
chosen one: the actor's step-level objective, the only training here that it supports. Prompts are written with the chat
template applied and replies with thought and end-of-turn token, so OpenRLHF gets the same texts that the other engines
encode; further processing, such as their order, is up to OpenRLHF. Its version pins conflict with vllm's, so it may be
in an environment of its own (`find_python`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet import supervisor
from sweet.errors import SweetError, UsageError
from sweet.learn.distributed import STOP_TIMEOUT
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Reply
from sweet.llm.vllm import last_lines
from sweet.tasks.base import Message

DATA = "pairs.jsonl"
OUTPUT, CHECKPOINTS = "model", "checkpoints"
_MODULE = "openrlhf.cli.train_dpo"
PYTHON_VARIABLE = "SWEET_OPENRLHF_PYTHON"
"""Environment variable with the path of that environment's Python."""

INSTALL = (
    f"python -m venv openrlhf && openrlhf/bin/pip install openrlhf && export {PYTHON_VARIABLE}=$PWD/openrlhf/bin/python"
)

_VERSION_QUERY = "import importlib.metadata as m; print(m.version('openrlhf'))"
_TIMEOUT = 60.0


@dataclass(frozen=True)
class DpoJob:
    """One call of OpenRLHF's DPO command, in the folder of its data and its model.

    Attributes:
        model: the initial model, also the reference: an absolute directory or a hub id.
        batch: pairs per optimizer step, over all devices; micro_batch: pairs per device at a time.
        max_length: tokens of prompt and reply; OpenRLHF skips longer pairs.
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


@dataclass(frozen=True)
class Comparison:
    """The two replies of a pair, and the prompt that the agent read before them, in ids if known."""

    observation: Sequence[Message]
    chosen: Reply
    rejected: Reply
    prompt: Sequence[int] | None = None


def rows(encoder: ChatEncoder, pairs: Sequence[Comparison]) -> Iterator[dict[str, str]]:
    """The rows that OpenRLHF reads."""
    for pair in pairs:
        prompt, (chosen, rejected) = encoder.texts(pair.observation, [pair.chosen, pair.rejected], pair.prompt)
        yield {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def arguments(job: DpoJob) -> list[str]:
    """The arguments of the command. Paths are relative, because OpenRLHF splits data paths at commas and at signs."""
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
    """The whole command line: DeepSpeed's launcher with OpenRLHF's module."""
    start = [python, "-m", "deepspeed.launcher.runner"]
    if job.hostfile is not None:
        start.append(f"--hostfile={job.hostfile.absolute()}")
    if job.devices is not None:
        start.append(f"--num_gpus={job.devices}")
    return [*start, "--module", _MODULE, *arguments(job)]


def train(python: str, job: DpoJob, folder: Path, log: Path) -> Path:
    """Run the command in `folder`, which contains `DATA`, and return the folder of the trained model.

    Raises:
        SweetError: it failed or wrote no model; with the last lines of its log.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            supervisor.supervised(command(python, job), STOP_TIMEOUT),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        status = process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # the supervisor then kills everything at once
            process.wait()
    output_folder = folder / OUTPUT
    if status != 0 or not (output_folder / "config.json").is_file():
        why = f"ended with status {status}" if status else f"wrote no model to {output_folder}"
        raise SweetError("\n".join([f"OpenRLHF {why}. The last lines of its log:", *last_lines(log)]), where=log)
    return output_folder


def steps(pairs: int, batch: int, epochs: int) -> int:
    """The number of steps of a training on `pairs` pairs: an incomplete batch at the end of an epoch is skipped."""
    return epochs * (pairs // batch)


def write_rows(path: Path, pairs: Iterator[dict[str, str]]) -> int:
    """Write the rows as JSON lines and return their number."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in pairs]
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def find_python() -> tuple[str, str]:
    """The Python that has OpenRLHF, and OpenRLHF's version.

    Raises:
        UsageError: neither this environment nor the one that SWEET_OPENRLHF_PYTHON names has it.
    """
    configured = os.environ.get(PYTHON_VARIABLE)
    # It is run in another directory later. A bare name is looked up in PATH; a link must not be resolved (virtual env).
    resolved = str(Path(configured).expanduser().absolute()) if configured and os.sep in configured else configured
    python = resolved or sys.executable
    where = f"{PYTHON_VARIABLE}={configured}" if configured else python
    fix = f"{configured} -m pip install openrlhf, or unset {PYTHON_VARIABLE}" if configured else INSTALL
    try:
        result = subprocess.run(
            [python, "-I", "-c", _VERSION_QUERY],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{python} cannot be run: {error}", where=where, fix=fix) from error
    if result.returncode != 0:
        last = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
        raise UsageError(f"OpenRLHF is not installed for {python}: {last[0]}", where=where, fix=fix)
    return python, result.stdout.strip()
