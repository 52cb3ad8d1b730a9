"""`--log-to`: the figures of a training in TensorBoard, Weights & Biases or Trackio, beside the run's own JSONL.

A log is named after the artifact that is being trained, so a resumed training goes on with the same one. What is
missing or refused is an error before the training begins; a log that fails later is warned of once and left, because
the figures are in the run anyway. Only figures and the configuration are handed over: no code, no console, no texts.

    tensorboard   `logs/tensorboard/<artifact>` of the run: `tensorboard --logdir RUN/logs/tensorboard`
    wandb         project `sweet`; where and as whom say wandb's own variables (WANDB_MODE=offline, WANDB_PROJECT, …)
    trackio       project `sweet`, on this machine; TRACKIO_DIR says where
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from sweet.errors import UsageError, first_line
from sweet.hints import option
from sweet.installation import install_command
from sweet.runs.run import Run
from sweet.stages.base import Reporter, digest_of

LogTarget = Literal["tensorboard", "wandb", "trackio"]

PROJECT = "sweet"
INSTALL: dict[LogTarget, str] = {
    "tensorboard": install_command("log"),
    "wandb": "pip install wandb",
    "trackio": "pip install trackio",
}
LOGIN: dict[LogTarget, str] = {
    "tensorboard": "a run on a disk that can be written",
    "wandb": "wandb login, or WANDB_MODE=offline",
    "trackio": "TRACKIO_DIR on a disk that can be written",
}


class Log(Protocol):
    """One place that figures go to. Any of it may raise anything."""

    def write(self, step: int, figures: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Naming:
    """What a log is called.

    Attributes:
        run, artifact: the run's folder, and what is trained in it.
        id: the same for every attempt at this artifact, another for any other artifact of any run.
        config: told with the figures.
    """

    run: Path
    artifact: str
    id: str
    config: Mapping[str, Any]

    @property
    def title(self) -> str:
        return f"{self.run.resolve().name}/{self.artifact}"


def naming(run: Run, artifact: str, config: Mapping[str, Any]) -> Naming:
    created = run.artifact(artifact).created.isoformat()
    return Naming(run.path, artifact, digest_of([artifact, created]), config)


def check_logs(targets: Sequence[LogTarget]) -> None:
    """Raise UsageError where what a log needs is not installed."""
    for target in targets:
        if find_spec(target) is None:
            raise UsageError(f"{target} is not installed.", where=option("log_to", target), fix=INSTALL[target])


class FigureLogs:
    """The logs of one training, open while it is a context.

    Raises:
        UsageError: one of them cannot be opened.
    """

    def __init__(self, targets: Sequence[LogTarget], named: Naming, reporter: Reporter) -> None:
        self._reporter = reporter
        self._open: dict[LogTarget, Log] = {}
        for target in dict.fromkeys(targets):
            try:
                self._open[target] = OPENERS[target](named)
            except Exception as error:  # whatever the library raises
                self.close()
                raise UsageError(
                    f"The log cannot be opened: {first_line(error)}", where=option("log_to", target), fix=LOGIN[target]
                ) from error

    def write(self, record: Mapping[str, Any]) -> None:
        """A row of the metrics file: its numbers, at its step."""
        figures = flat(record)
        for target, log in list(self._open.items()):
            self._try(target, partial(log.write, int(record["step"]), figures))

    def close(self) -> None:
        for target, log in list(self._open.items()):
            self._try(target, log.close)
        self._open.clear()

    def _try(self, target: LogTarget, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # whatever the library raises: a log never ends a training
            log = self._open.pop(target, None)
            if log is not None:
                with contextlib.suppress(Exception):
                    log.close()
            self._reporter.warn(f"{target} takes no more figures ({first_line(error)}); the run has all of them.")

    def __enter__(self) -> FigureLogs:
        return self

    def __exit__(self, *_about: object) -> None:
        self.close()


def flat(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row but its step: of a list one each, counted from 1 (`advantage_chosen/2`)."""
    found: dict[str, float] = {}
    for name, value in record.items():
        items = enumerate(value, 1) if isinstance(value, list) else [(0, value)]
        for number, item in items:
            if isinstance(item, int | float) and not isinstance(item, bool) and name != "step":
                found[f"{name}/{number}" if number else name] = item
    return found


class _TensorBoard:
    """Rows of steps that a resumed training does again replace the former ones: the first step it writes says from
    where on (`purge_step`)."""

    def __init__(self, named: Naming) -> None:
        self._folder = named.run / "logs" / "tensorboard" / named.artifact
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer: Any = None

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        if self._writer is None:
            self._writer = self._make(str(self._folder), purge_step=step, flush_secs=10)
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Wandb:
    def __init__(self, named: Naming) -> None:
        wandb = import_module("wandb")
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=named.title,
            id=named.id,
            resume="allow",
            dir=str(named.run / "logs"),
            config=dict(named.config),
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )
        # Its own count of steps cannot go back, as a resumed training does to its checkpoint.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log({"step": step, **figures})

    def close(self) -> None:
        self._run.finish()


class _Trackio:
    def __init__(self, named: Naming) -> None:
        self._trackio = self._quietly(lambda: import_module("trackio"))
        # It knows a run by its name alone.
        name = f"{named.title}-{named.id}".replace("/", "-")
        self._run: Any = self._quietly(
            lambda: self._trackio.init(
                project=PROJECT,
                name=name,
                resume="allow",
                config=dict(named.config),
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        )

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        self._quietly(lambda: self._run.log(dict(figures), step=step))

    def close(self) -> None:
        self._quietly(self._trackio.finish)

    @staticmethod
    def _quietly(work: Callable[[], Any]) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):  # it tells its news where a command's result goes
            return work()


OPENERS: dict[LogTarget, Callable[[Naming], Log]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
    "trackio": _Trackio,
}
