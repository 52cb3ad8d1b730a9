"""`--push` of the trainings: the trained model goes to the model hub when the training has ended, by `sweet data push`.
Of `sweet train` it is the actor that was kept, and the repository may also be named in the recipe.

What can fail is checked before hours of training: the name, the token, and whether it may write there. If the hub takes
the model in spite of that not, the model is kept in the run, and the error says the one command that pushes it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from sweet.errors import NotPushed, SweetError
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult

Training = Callable[[Run, Any, Reporter], StageResult]
"""A training, whose configuration is a `sweet.training.config.PushedConfig`."""

LOOP = "train"
TRAININGS = ("train-actor", "train-critic", "train-online", LOOP)


def pushing(training: Training) -> Training:
    """Return a training that also pushes its model, if its options say so.

    It raises, besides the errors of the training:
        UsageError: the name is no repository, or the user may not write there; before the training.
        ServerError: the hub cannot be reached; before the training.
        NotPushed: the model could not be pushed; it is kept.
    """

    def work(run: Run, config: Any, reporter: Reporter) -> StageResult:
        name = _repository(run, config)
        if name is None:
            return training(run, config, reporter)
        from sweet.publishing.hub import check_writable

        check_writable(name, "model")
        result = training(run, config, reporter)
        model = _trained(result)
        if model is None:
            reporter.warn(f"No actor is better than the agent, so nothing is pushed to {name}.")
        else:
            _push(result, model, name, reporter)
        return result

    return work


def _repository(run: Run, config: Any) -> str | None:
    """Return the repository that the options name, or the recipe of `sweet train`."""
    from sweet.pipeline.config import LoopConfig
    from sweet.pipeline.recipe import resolve

    return resolve(config, run.path).train.push if isinstance(config, LoopConfig) else config.push


def _trained(result: StageResult) -> Artifact | None:
    """Return the model that a training made; None where `sweet train` keeps the agent that it began with."""
    if result.stage == LOOP:
        return next((one for one in result.artifacts if one.id == result.metrics.best), None)
    return next(one for one in result.artifacts if one.kind in ("actor", "critic"))


def _push(result: StageResult, model: Artifact, name: str, reporter: Reporter) -> None:
    """Push a model."""
    from sweet.publishing.config import PushConfig
    from sweet.publishing.stage import run_push

    try:
        pushed = run_push(Run.open(result.run), name, PushConfig.model_validate({model.kind: model.id}), reporter)
    except (SweetError, OSError) as error:
        what = error.what if isinstance(error, SweetError) else str(error)
        failed = NotPushed(f"{model.id} is trained and kept: {what}", where=name, fix=push_command(result, name, model))
        failed.result = result
        raise failed from error
    reporter.say(f"Pushed {model.id}: {pushed.metrics.url}")


def push_command(result: StageResult, name: str, model: Artifact) -> str:
    """Return the command line that pushes a model."""
    return shlex.join(["sweet", "data", "push", str(result.run), name, f"--{model.kind}", model.id])
