"""One rank of an online training, as the launcher starts it: `python -m sweet.online.rank FOLDER`.

It reads the job, loads its part of the model, and does the calls of the command one after the other, together with the
other ranks. Rank 0 answers for all. Errors and the end are those of any rank (`sweet.learn.worker`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from sweet import collector

with collector.paused():
    import torch

    from sweet.learn.distributed import PROGRESS
    from sweet.learn.metrics import Record
    from sweet.learn.trainee import Start, Trainee
    from sweet.learn.worker import main
    from sweet.learn.zero import ZeroEngine, init_ranks, load_in_ranks
    from sweet.online.learner import Learner, policy_to_train
    from sweet.online.ranks import POLL_INTERVAL, RankJob, call_path, weights_path
    from sweet.runs.jsonl import JsonlWriter
    from sweet.runs.run import Run
    from sweet.stages.base import Silent
    from sweet.stages.critics import CriticSettings
    from sweet.tasks.trajectory import Trajectory
    from sweet.training.asked_models import RunCritic


class Noting(Silent):
    """Keeps what is said, for the command to report."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []

    def take(self) -> tuple[list[str], list[str]]:
        """Return what was said and what was warned of since the last call."""
        notes = self.said, self.warned
        self.said, self.warned = [], []
        return notes

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.warned.append(text)


def run(folder: Path) -> None:
    """Do the calls that are left in `folder`. Does not return: the command ends its ranks."""
    job = RankJob.read(folder)
    device = init_ranks(job.device)
    reporter = Noting()
    learner = make_learner(job, device, reporter)
    answers = JsonlWriter(folder / PROGRESS) if learner.rank == 0 else None
    number = 0
    while True:
        path = call_path(folder, number)
        if not path.exists():
            time.sleep(POLL_INTERVAL)
            continue
        method, arguments = json.loads(path.read_bytes())
        result = perform(learner, method, arguments, weights_path(folder))
        notes = learner.engine.all_gather(reporter.take())  # and all ranks have read the call
        if answers is not None:
            said, warned = (list(dict.fromkeys(chain.from_iterable(texts))) for texts in zip(*notes, strict=True))
            answers.write({"result": result, "updates": learner.updates, "said": said, "warned": warned})
        number += 1


def make_learner(job: RankJob, device: torch.device, reporter: Noting) -> Learner:
    """Return this rank's learner."""
    config = job.config

    def load(start: Start, **_: Any) -> Trainee:
        # The command has compared the model with its tokenizer, which partitioned weights are not.
        return load_in_ranks(start, job.device, job.zero, config.max_grad_norm)

    with collector.paused():  # it imports transformers
        model = policy_to_train(config, job.base, load)
    critic = None
    if job.critic is not None:
        opened = Run.open(job.run)
        artifact = opened.find("critic", job.critic, needed_by="train-online")
        critic = RunCritic(opened, artifact, CriticSettings(config.device, config.max_length), reporter)
    return Learner(
        config,
        job.used,
        job.source,
        critic,
        load,
        model,
        lambda network, clip: ZeroEngine(network, clip, job.zero, device),
    )


def perform(learner: Learner, method: str, call_arguments: Mapping[str, Any], weights: Path) -> Record | None:
    """Call a method of the learner with the given arguments; return its result, or write it to the file `weights`.

    Raises:
        ValueError: there is no such method.
    """
    from safetensors.torch import save_file

    if method not in ("learn", "sampled_weights", "weights", "save", "load"):
        raise ValueError(method)
    arguments = dict(call_arguments)
    if method == "learn":
        arguments["dialogues"] = [Trajectory.model_validate(row) for row in call_arguments["dialogues"]]
    if "path" in call_arguments:
        arguments["path"] = Path(call_arguments["path"])
    result = getattr(learner, method)(**arguments)
    if not method.endswith("weights"):
        return None if result is None else dict(result)
    if result is not None:  # on the rank that has them
        save_file(result, weights)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], run))
