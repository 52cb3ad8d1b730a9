"""`sweet train-critic` and `sweet train-actor`, and their `--dry-run`.

    config                       the options
    prepare                      from the options to a `Training`: sources (which artifacts are learned from), model
                                 (where it starts), layout (where it runs), examples, hyperparameters
    trainer, openrlhf            run a training, by our engines or by OpenRLHF's command
    plan                         what a training would take

This module and the options are importable without torch.
"""

from __future__ import annotations

from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.plans import Plan
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.metrics import TrainMetrics, TrainWork


def run_train_critic(run: Run, config: TrainCriticConfig, reporter: Reporter) -> StageResult[TrainMetrics]:
    """Train a critic on the run's preferences or scores, into a folder in Hugging Face layout."""
    from sweet.training.prepare import prepare_critic
    from sweet.training.trainer import train

    return train(run, *prepare_critic(run, config, reporter), reporter)


def plan_train_critic(run: Run, config: TrainCriticConfig, reporter: Reporter) -> Plan[TrainWork]:
    """Return the work that `run_train_critic` would do (`sweet.training.plan`)."""
    from sweet.training.plan import plan_training
    from sweet.training.prepare import prepare_critic

    training, _ = prepare_critic(run, config, reporter, weights=False)
    return plan_training(training, reporter)


def run_train_actor(run: Run, config: TrainActorConfig, reporter: Reporter) -> StageResult[TrainMetrics]:
    """Train an actor by the method of the options, into a folder that `rollout --agent` accepts."""
    from sweet.training.openrlhf import train_by_openrlhf
    from sweet.training.prepare import prepare_actor
    from sweet.training.trainer import train

    if config.engine == "openrlhf":
        return train_by_openrlhf(run, config, reporter)
    return train(run, *prepare_actor(run, config, reporter), reporter)


def plan_train_actor(run: Run, config: TrainActorConfig, reporter: Reporter) -> Plan[TrainWork]:
    """Return the work that `run_train_actor` would do (`sweet.training.plan`)."""
    from sweet.training.plan import plan_training
    from sweet.training.prepare import prepare_actor

    training, _ = prepare_actor(run, config, reporter, weights=False)
    return plan_training(training, reporter)
