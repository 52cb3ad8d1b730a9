"""Learns on several ranks: a learner whose methods are calls of child processes.

The command keeps the loop, the sampler, the human, the scorer and the manifest, and is no rank: it waits for ranks in a
way that can be interrupted, also if one of them dies in the middle of an exchange. Each rank is a `sweet.online.rank`,
started as those of the other trainings (`sweet.learn.distributed`), and runs a `sweet.online.learner.Learner` on the
same dialogues; only what they compute is divided among them.

    command ── supervisor ── launcher ── rank 0, 1, …

The ranks start while the first dialogues are played.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

from torch import Tensor

from sweet.learn.distributed import launch_command, launch_environment
from sweet.learn.failure import error_of
from sweet.learn.launcher import start, stop
from sweet.learn.metrics import Record
from sweet.llm.address import bind
from sweet.online.devices import Devices
from sweet.online.mailbox import POLL_INTERVAL, Answer, Call, RankJob, weights_path
from sweet.stages.base import Reporter
from sweet.tasks.trajectory import Trajectory, dump

PROGRAM = "sweet.online.rank"
MAILBOX = "mail-"
"""Beginning of the name of the folder of one start of the ranks."""


class Ranks:
    """The ranks of a training (`sweet.online.learner.Learns`); a context, at whose end they are gone.

    Args:
        folder: for what they exchange; created if missing.
        log: a file for the output of launcher and ranks.
        reporter: gets what they say.
    """

    rank = 0

    def __init__(self, job: RankJob, devices: Devices, folder: Path, log: Path, reporter: Reporter) -> None:
        self.updates = 0
        self._log, self._reporter, self._calls = log, reporter, 0
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{MAILBOX}*"):
            shutil.rmtree(old, ignore_errors=True)
        self._folder = Path(mkdtemp(prefix=MAILBOX, dir=folder)).absolute()
        job.write(self._folder)
        with bind("127.0.0.1", 0) as socket:
            port = socket.getsockname()[1]
        command = launch_command(devices.layout, self._folder, port, PROGRAM)
        environment = launch_environment(devices.layout, dict(os.environ)) | devices.variables
        with log.open("ab") as out:
            self._process = start(command, environment, out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close_on_error(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave an inner context: close it if there was an error, so that no thread waits for the ranks."""
        if kind is not None:
            self.close()

    def close(self) -> None:
        """End the ranks. A call that another thread is waiting for fails."""
        stop(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def check(self) -> None:
        """See `Learns.check`.

        Raises:
            SweetError: its own error, or the last lines of the log.
        """
        if (status := self._process.poll()) is not None:
            raise error_of(self._folder, self._log, status)

    def learn(self, step: int, dialogues: Sequence[Trajectory], rewards: Mapping[str, float]) -> Record:
        """See `Learner.learn`."""
        rows = [dump(one) for one in dialogues]
        return self._call("learn", step=step, dialogues=rows, rewards=dict(rewards)) or {}

    def sampled_weights(self) -> dict[str, Tensor]:
        """See `Learner.sampled_weights`."""
        return self._weights("sampled_weights")

    def weights(self) -> dict[str, Tensor]:
        """See `Learner.weights`."""
        return self._weights("weights")

    def save(self, path: Path, state: dict[str, Any]) -> None:
        """See `Learner.save`."""
        self._call("save", path=str(path.absolute()), state=state)

    def load(self, path: Path, digest: str) -> dict[str, Any]:
        """See `Learner.load`."""
        return self._call("load", path=str(path.absolute()), digest=digest) or {}

    def _weights(self, method: str) -> dict[str, Tensor]:
        from safetensors.torch import load_file

        self._call(method)
        path = weights_path(self._folder)
        weights: dict[str, Tensor] = load_file(path)
        path.unlink()
        return weights

    def _call(self, method: str, **arguments: Any) -> Record | None:
        """Have all ranks call a method of their learners, and return the result of rank 0.

        Raises:
            SweetError: see `check`.
        """
        number = self._calls
        self._calls += 1
        Call(method, arguments).write(self._folder, number)
        while (answer := Answer.take(self._folder, number)) is None:
            self.check()
            time.sleep(POLL_INTERVAL)
        for text in answer.said:
            self._reporter.say(text)
        for text in answer.warned:
            self._reporter.warn(text)
        self.updates = answer.updates
        return answer.result
