"""`sweet train-online`, and its `--dry-run`.

    config        the options
    prepare       from the options to what a training needs: tasks, humans, rule, critic, model
    training      one call: artifacts, both sides, the loop, the actor; and its plan
    loop          the steps, checkpoints, and which weights are kept
    dialogues     the dialogues of a step
    learner       what a step teaches: the credit rule with the models that it may ask, and the optimizer
    ranks         learns on several devices, by calls of `rank`, their program
    policy        the sampler, which takes new weights
    safeguards    what is watched, and what a collapse is
    metrics       what is recorded

The stage makes three artifacts: the rollouts with every dialogue that was learned from, their scores, and the actor.
This module and the options are importable without torch.
"""

from __future__ import annotations

from sweet.online.config import TrainOnlineConfig
from sweet.online.metrics import OnlineMetrics, OnlineWork
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.plans import Plan


def run_train_online(run: Run, config: TrainOnlineConfig, reporter: Reporter) -> StageResult[OnlineMetrics]:
    """Train an actor in many small rounds of playing and learning.

    Raises:
        UsageError: the options do not go together.
        SweetError: too many dialogues failed, or a loss is not finite.
        ServerError: a server could not be reached.
    """
    from sweet.online.training import train

    return train(run, config, reporter)


def plan_train_online(run: Run | None, config: TrainOnlineConfig, reporter: Reporter) -> Plan[OnlineWork]:
    """Return the work that `run_train_online` would do at most."""
    from sweet.online.training import plan

    return plan(run, config, reporter)
