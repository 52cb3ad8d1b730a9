"""`sweet train --log-to`: the results of each round in other logs.

The log of a run is one log with the rounds as steps; trainings have logs of their own. It is open only while a round is
written, as some libraries have one log open at a time. A round all of whose steps were done by an earlier call was
logged by that one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sweet.errors import UsageError
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.loop import PlayedRound
from sweet.pipeline.metrics import LoopRound
from sweet.runs.environment import recordable
from sweet.runs.run import Run
from sweet.stages.base import Reporter, digest_of
from sweet.stages.record import Rate
from sweet.training.loggers import LogName, MetricLogs


def log_name_of_run(run: Run, config: LoopConfig) -> LogName:
    """Return the name of the log of a run's rounds, the same for every call."""
    created = run.manifest().created.isoformat()
    return LogName(run.path, "train", digest_of(["train", created]), recordable(config.model_dump(mode="json")))


def logging_rounds(
    run: Run, config: LoopConfig, reporter: Reporter, began: datetime
) -> Callable[[PlayedRound, LoopRound], None]:
    """Return what logs a round, and warns if it cannot: the run has the results anyway.

    Args:
        began: when this call did.

    Raises:
        UsageError: a log cannot be opened.
    """
    name = log_name_of_run(run, config)
    with MetricLogs(config.log_to, name, reporter):
        pass  # before anything is played

    def log(played: PlayedRound, record: LoopRound) -> None:
        if not config.log_to or all(step.attempt.started < began for step in played.steps.values()):
            return
        try:
            with MetricLogs(config.log_to, name, reporter) as logs:
                logs.write({"step": record.round, **_numbers(record)})
        except UsageError as error:
            reporter.warn(f"Round {record.round} is not logged: {error.what}")

    return log


def _numbers(record: LoopRound) -> dict[str, Any]:
    """Return the metrics of a round as numbers by their names."""
    rates = {name: getattr(record, name) for name in ("test", "validation", "leak_rate")}
    found: dict[str, Any] = {name: rate.value for name, rate in rates.items() if isinstance(rate, Rate)}
    costs = {"cost": record.cost, "cost_per_solved_task": record.cost_per_solved_task}
    return found | record.usage.as_json() | costs
