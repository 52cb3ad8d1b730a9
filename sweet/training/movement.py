"""Whether a training can move the weights of a model, by arithmetic before its first step.

AdamW moves a weight in all steps by no more than about the sum of their rates. With LoRA the product alpha B A / rank
moves: B by that sum at most, and A begins uniform up to 1 / sqrt(width), so the product by at most
alpha / (2 sqrt(width)) times the sum. This is compared with the median absolute value of the stored matrices: with a
thousandth of it, and where the result is stored in 16 bits with half of the distance to the next number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

from sweet.learn.trainee import Trainee
from sweet.llm.pretrained import config_path, model_folder, stored_type
from sweet.training.hyperparameters import usual_rate

NOTICEABLE = 1e-3
"""Share of a typical weight that a training must be able to move."""


def typical_weight(folder: Path) -> float | None:
    """Return the median absolute value in a sample of the matrices in a folder; None without safetensors."""
    import torch
    from safetensors import safe_open

    samples: list[torch.Tensor] = []
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            names = [name for name in sorted(weights.keys()) if len(weights.get_slice(name).get_shape()) == 2]
            sampled_names = names[:: max(1, len(names) // 12)]
            samples += [weights.get_slice(name)[:32].flatten().float().abs() for name in sampled_names]
    return float(torch.cat(samples).median()) if samples else None


def warn_if_unmoved(trainee: Trainee, learner: str, rates: Iterable[float], warn: Callable[[str], None]) -> None:
    """Warn of a training with these rates of its steps that cannot move the weights noticeably."""
    import torch

    steps, start, dtype = list(rates), trainee.start, stored_type(trainee.start.base)
    folder, min_share = model_folder(config_path(start.base)), NOTICEABLE
    weight = None if folder is None else typical_weight(folder)
    if not steps or not weight:
        return
    movement = sum(steps)
    if start.lora is not None:
        movement *= start.lora.alpha / (2 * math.sqrt(trainee.model.config.get_text_config().hidden_size))
    if dtype is not None and trainee.output != "adapter":
        min_share = max(min_share, torch.finfo(dtype).eps / 4)
    if movement < min_share * weight:
        default_rate = usual_rate(learner, trainee.parameters, lora=start.lora is not None)
        warn(
            f"This training cannot change the model: a rate of at most {max(steps):g} in {len(steps):,} steps moves a "
            f"weight by at most {movement:.2g}, and a typical one is {weight:.2g}. A larger --lr, more epochs or more "
            f"data move them; the default rate for this model is {default_rate:g}."
        )
