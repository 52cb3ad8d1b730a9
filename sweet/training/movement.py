"""Whether a training can move the weights of a model, by arithmetic before its first step.

AdamW moves a weight by about the learning rate in a step, and in all steps by no more than the sum of their rates. With
LoRA the product alpha B A / rank moves: B by that sum at most, and A has initial values that are uniform up to
1 / sqrt(width), so the product moves by at most alpha / (2 sqrt(width)) times the sum. This is compared with the median
absolute value of the stored matrices: with a thousandth of it, and where the result is stored in 16 bits with half of
the distance to the next number, below which nothing is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from sweet.learn.trainee import Trainee
from sweet.llm.pretrained import config_path, model_folder, stored_type

NOTICEABLE = 1e-3
"""Share of a typical weight that a training must be able to move."""
_MATRICES, _ROWS = 12, 32
"""How many matrices of a file, and rows of each, are read."""


def typical_weight(folder: Path) -> float | None:
    """Return the median absolute value in a sample of the matrices that are stored in a folder as safetensors; None
    where there are none."""
    import torch
    from safetensors import safe_open

    found: list[torch.Tensor] = []
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            names = [name for name in sorted(weights.keys()) if len(weights.get_slice(name).get_shape()) == 2]
            chosen = names[:: max(1, len(names) // _MATRICES)]
            found += [weights.get_slice(name)[:_ROWS].flatten().float().abs() for name in chosen]
    return float(torch.cat(found).median()) if found else None


def movement_note(trainee: Trainee, rates: Iterable[float], usual: float) -> str | None:
    """Return what to tell the user of a training that cannot move the weights noticeably; None if it can.

    Args:
        rates: the learning rate of each step.
        usual: the default rate for the model.
    """
    import torch

    steps, start = list(rates), trainee.start
    folder, kind = model_folder(config_path(start.base)), stored_type(start.base)
    weight = None if folder is None else typical_weight(folder)
    if not steps or not weight:
        return None
    moved, least = sum(steps), NOTICEABLE
    if start.lora is not None:
        moved *= start.lora.alpha / (2 * math.sqrt(trainee.model.config.get_text_config().hidden_size))
    if kind is not None and trainee.output != "adapter":
        least = max(least, torch.finfo(kind).eps / 4)
    if moved >= least * weight:
        return None
    return (
        f"This training cannot change the model: a rate of at most {max(steps):g} in {len(steps):,} steps moves a "
        f"weight by at most {moved:.2g}, which is {moved / weight:.2%} of a typical one ({weight:.2g}). A larger --lr, "
        f"more epochs or more data move them; the default rate for this model is {usual:g}."
    )
