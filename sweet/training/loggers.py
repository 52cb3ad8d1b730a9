"""`--log-to`: the metrics of a training in TensorBoard or Weights & Biases, in addition to the run's JSONL.

A log is named after the artifact that is trained, so a resumed training continues the same log. A missing or refused
log is an error before the training starts; one that fails later is reported once and closed, because the metrics are in
the run anyway. Only metrics and the configuration without keys are sent; never dialogues, code or console output.

    tensorboard   `logs/tensorboard/<artifact>` of the run: `tensorboard --logdir RUN/logs/tensorboard`
    wandb         project `sweet`; configured by wandb's own variables (WANDB_MODE=offline, WANDB_PROJECT, …)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol

from sweet.errors import UsageError, first_line
from sweet.hints import option
from sweet.installation import install_command
from sweet.regular import check_tree, make_folder
from sweet.runs.environment import recordable
from sweet.runs.run import Run
from sweet.stages.base import Reporter, digest_of

LogTarget = Literal["tensorboard", "wandb"]

PROJECT = "sweet"
INSTALL: dict[LogTarget, str] = {
    "tensorboard": install_command("log"),
    "wandb": "pip install wandb",
}
LOGIN: dict[LogTarget, str] = {
    "tensorboard": "a run on a disk that can be written",
    "wandb": "wandb login, or WANDB_MODE=offline",
}


class Log(Protocol):
    """One destination of metrics. Its methods may raise any exception."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


def check_logs(targets: Sequence[LogTarget]) -> None:
    """Raise UsageError where the package of a log is not installed."""
    for target in targets:
        if find_spec(target) is None:
            raise UsageError(f"{target} is not installed.", where=option("log_to", target), fix=INSTALL[target])


class MetricLogs:
    """The logs of one training, open until they are closed.

    Args:
        artifact: id of what is trained.
        config: sent with the metrics, without keys.

    Raises:
        UsageError: a log cannot be opened.
    """

    def __init__(
        self, targets: Sequence[LogTarget], run: Run, artifact: str, config: Mapping[str, Any], reporter: Reporter
    ) -> None:
        self._reporter = reporter
        self._open: dict[LogTarget, Log] = {}
        for target in dict.fromkeys(targets):
            try:
                self._open[target] = OPENERS[target](run, artifact, recordable(config))
            except Exception as error:  # any exception of the library
                self.close()
                raise UsageError(
                    f"The log cannot be opened: {first_line(error)}", where=option("log_to", target), fix=LOGIN[target]
                ) from error

    def write(self, record: Mapping[str, Any]) -> None:
        """Log the numbers of a row of the metrics file, at its step."""
        metrics = flat(record)
        for target, log in list(self._open.items()):
            self._try(target, partial(log.write, int(record["step"]), metrics))

    def close(self) -> None:
        for target, log in list(self._open.items()):
            self._try(target, log.close)
        self._open.clear()

    def _try(self, target: LogTarget, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # any exception of the library: a log never ends a training
            log = self._open.pop(target, None)
            if log is not None:
                with contextlib.suppress(Exception):
                    log.close()
            self._reporter.warn(f"Logging to {target} stopped ({first_line(error)}); the run has all metrics.")


def flat(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a row except its step. Those of a list are counted from 1 (`advantage_chosen/2`)."""
    numbers: dict[str, float] = {}
    for name, value in record.items():
        items = enumerate(value, 1) if isinstance(value, list) else [(0, value)]
        for number, item in items:
            if isinstance(item, int | float) and not isinstance(item, bool) and name != "step":
                numbers[f"{name}/{number}" if number else name] = item
    return numbers


class _TensorBoard:
    """A resumed training repeats steps, so the first step that is written removes the later ones (`purge_step`)."""

    def __init__(self, run: Run, artifact: str, _config: Mapping[str, Any]) -> None:
        self._folder = run.path / "logs" / "tensorboard" / artifact
        make_folder(self._folder)
        check_tree(self._folder)
        self._make = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer: Any = None

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._writer is None:
            self._writer = self._make(str(self._folder), purge_step=step, flush_secs=10)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Wandb:
    def __init__(self, run: Run, artifact: str, config: Mapping[str, Any]) -> None:
        wandb = import_module("wandb")
        created = run.artifact(artifact).created.isoformat()
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=f"{run.name}/{artifact}",
            id=digest_of([artifact, created]),  # the same for every attempt at this artifact, and for no other
            resume="allow",
            dir=str(run.path / "logs"),
            config=dict(config),
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )
        # Its own count of steps cannot go back, as a resumed training does to its checkpoint.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({"step": step, **metrics})

    def close(self) -> None:
        self._run.finish()


OPENERS: dict[LogTarget, Callable[[Run, str, Mapping[str, Any]], Log]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
}
