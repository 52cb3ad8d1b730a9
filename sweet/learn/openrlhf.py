"""OpenRLHF's DPO command: the Python that has it, the file of pairs that it reads, and its process.

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
from collections.abc import Sequence
from pathlib import Path

from sweet import supervisor
from sweet.errors import SweetError, UsageError
from sweet.learn.distributed import STOP_TIMEOUT
from sweet.learn.rows import Pair
from sweet.learn.tokens import ChatEncoder
from sweet.llm.vllm import last_lines

DATA, OUTPUT, CHECKPOINTS = "pairs.jsonl", "model", "checkpoints"
"""The names of the pairs, of the model and of OpenRLHF's checkpoints in the folder that the command runs in."""
PYTHON_VARIABLE = "SWEET_OPENRLHF_PYTHON"
"""Environment variable with the path of the Python that has OpenRLHF."""

_INSTALL = f"install it in an environment of its own (docs/installing.md), and export {PYTHON_VARIABLE}=ITS/bin/python"
_VERSION_QUERY = "import importlib.metadata as m; print(m.version('openrlhf'))"
_TIMEOUT = 60.0


def find_python() -> tuple[str, str]:
    """The Python that has OpenRLHF, and OpenRLHF's version.

    Raises:
        UsageError: neither this environment nor the one that SWEET_OPENRLHF_PYTHON names has it.
    """
    configured = os.environ.get(PYTHON_VARIABLE)
    python = configured or sys.executable
    if os.sep in python:  # It is run in another directory later; a link must not be resolved (virtual environments).
        python = str(Path(python).expanduser().absolute())
    try:
        query = [python, "-I", "-c", _VERSION_QUERY]
        result = subprocess.run(query, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=True)
        return python, result.stdout.strip()
    except subprocess.CalledProcessError as error:
        [why] = error.stderr.strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        what = f"OpenRLHF is not installed for {python}: {why}"
    except (OSError, subprocess.TimeoutExpired) as error:
        what = f"{python} cannot be run: {error}"
    where = f"{PYTHON_VARIABLE}={configured}" if configured else python
    fix = f"{_INSTALL}, or unset {PYTHON_VARIABLE}" if configured else _INSTALL
    raise UsageError(what, where=where, fix=fix)


def row(encoder: ChatEncoder, pair: Pair) -> dict[str, str]:
    """The row that OpenRLHF reads for a pair."""
    replies = [side.reply for side in pair.sides.values()]
    prompt, sides = encoder.texts(pair.observation, replies, pair.prompt_token_ids, pair.tools or ())
    return {"prompt": prompt, **dict(zip(pair.sides, sides, strict=True))}


def write_pairs(folder: Path, encoder: ChatEncoder, pairs: Sequence[Pair]) -> None:
    """Write the file of pairs that the command reads in `folder`."""
    lines = [json.dumps(row(encoder, pair), ensure_ascii=False) + "\n" for pair in pairs]
    (folder / DATA).write_text("".join(lines), encoding="utf-8")


def steps(pairs: int, batch: int, epochs: int) -> int:
    """The number of steps of a training on `pairs` pairs: an incomplete batch at the end of an epoch is skipped."""
    return epochs * (pairs // batch)


def train(command: Sequence[str], folder: Path, log: Path) -> Path:
    """Run the command in `folder`, which contains the pairs, and return the folder of the trained model.

    Raises:
        SweetError: it failed or wrote no model; with the last lines of its log.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            supervisor.supervised(command, STOP_TIMEOUT),
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
    model = folder / OUTPUT
    if status != 0 or not (model / "config.json").is_file():
        why = f"ended with status {status}" if status else f"wrote no model to {model}"
        raise SweetError("\n".join([f"OpenRLHF {why}. The last lines of its log:", *last_lines(log)]), where=log)
    return model
