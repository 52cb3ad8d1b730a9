"""What `sweet train-online` would do, for `--dry-run`."""

from __future__ import annotations

from sweet.online.config import TrainOnlineConfig
from sweet.online.metrics import OnlineWork
from sweet.online.prepare import prepare
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.stages.plans import Plan, earlier_work, times


def plan_train_online(run: Run | None, config: TrainOnlineConfig, reporter: Reporter) -> Plan[OnlineWork]:
    """Return the work that `run_train_online` would do at most."""
    ready = prepare(run, config, reporter, weights=False)
    trainee = ready.model.trainee
    each = config.tasks_per_step * config.group
    steps = config.most_steps
    earlier, assumed = earlier_work(run, "train-online"), []
    a_dialogue = None if earlier is None else earlier.amount_of_each("completion_tokens", "episodes")
    if earlier is not None and a_dialogue is not None:
        assumed = [f"A dialogue has as many tokens as in the training of {earlier.artifact.id}."]
    tokens = times(None if steps is None else steps * each, a_dialogue)
    budget = config.generated_tokens
    written = min(tokens, budget) if tokens is not None and budget is not None else budget or tokens
    work = OnlineWork(
        base=ready.model.base,
        algorithm=config.algorithm,
        parameters=trainee.parameters,
        trainable=trainee.trained,
        tasks=len(ready.dialogues.tasks),
        dialogues_per_step=each,
        steps=steps,
        dialogues=None if steps is None else steps * each,
        tokens_written=written,
        devices=1 if ready.devices is None else ready.devices.number,
        zero=None if ready.devices is None else ready.devices.zero.stage,
    )
    return Plan(work=work, assumed=assumed)
