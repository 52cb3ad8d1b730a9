"""TRL's GRPOTrainer on given dialogues: it gets their tokens where it would generate, and computes advantages and loss.

A dialogue is a prompt and a completion, in which a mask marks the agent's own tokens.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.learn.sequences import TokenSequence


@dataclass(frozen=True)
class Row:
    """One dialogue of a task as TRL reads it.

    Attributes:
        mask: 1 at the agent's own tokens of the completion, 0 elsewhere.
    """

    task: str
    prompt: list[int]
    completion: list[int]
    mask: list[int]
    reward: float

    @classmethod
    def of(cls, task: str, sequence: TokenSequence, reward: float) -> Row:
        """Return the row of a dialogue that is one sequence."""
        cut = sequence.spans[0].start
        own = {place for span in sequence.spans for place in range(span.start, span.stop)}
        end = sequence.spans[-1].stop
        mask = [int(place in own) for place in range(cut, end)]
        return cls(task, list(sequence.ids[:cut]), list(sequence.ids[cut:end]), mask, reward)


def make_trainer(model: Any, tokenizer: Any, rows: Sequence[Row], folder: Path, **settings: Any) -> Any:
    """Return a trainer that plays the dialogues of these rows, which must be equally many for each task.

    Args:
        settings: of `trl.GRPOConfig`, over those that make it comparable: no divergence to a reference, no decay.
    """
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # the function for rollouts is experimental
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tasks: dict[str, list[Row]] = {}
    for row in rows:
        tasks.setdefault(row.task, []).append(row)
    [generations] = {len(of_task) for of_task in tasks.values()}

    def play(prompts: list[str], _trainer: Any) -> dict[str, Any]:
        played: dict[str, int] = {}
        found: list[Row] = []
        for task in prompts:
            place = played.get(task, 0)
            found.append(tasks[task][place % generations])
            played[task] = place + 1
        return {
            "prompt_ids": [row.prompt for row in found],
            "completion_ids": [row.completion for row in found],
            "env_mask": [row.mask for row in found],
            "logprobs": None,
            "worth": [row.reward for row in found],
        }

    def reward(worth: list[float], **_more: Any) -> list[float]:
        return worth

    common = {
        "output_dir": str(folder),
        "num_generations": generations,
        "max_completion_length": max(len(row.completion) for row in rows),
        "per_device_train_batch_size": len(rows),
        "beta": 0.0,
        "adam_beta2": 0.95,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "lr_scheduler_type": "constant",
        "bf16": False,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "remove_unused_columns": False,
    }
    return GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=GRPOConfig(**(common | settings)),
        train_dataset=Dataset.from_list([{"prompt": task} for task in tasks]),
        processing_class=tokenizer,
        rollout_func=play,
    )
