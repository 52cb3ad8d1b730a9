"""A model that is stored with less precision than it is trained with may lose its update, which is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.learn.trainee import Start, Trainee, precision_note, save_model
from tests.learn.builders import build_model


def written(tokenizer: Any, folder: Path, kind: torch.dtype, update: float) -> dict[str, int]:
    """Return what is counted when a model stored as `kind` is written after each weight grew by this share."""
    save_model(build_model(len(tokenizer)).to(kind), tokenizer, folder / "base")
    trainee = Trainee.load(Start(str(folder / "base")), "cpu")
    with torch.no_grad():
        for parameter in trainee.model.parameters():
            parameter.mul_(1 + update)
    return trainee.write(tokenizer, folder / "trained")


def test_an_update_below_the_precision_of_what_is_stored_is_told(tokenizer: Any, tmp_path: Path) -> None:
    counted = written(tokenizer, tmp_path, torch.bfloat16, 1e-5)
    assert counted["stored_weights"] == 0, "bfloat16 has 8 bits: steps of 1 in 256"
    assert counted["changed_weights"] > 10_000
    note = precision_note(counted)
    assert note is not None
    assert f"{counted['changed_weights']:,} weights" in note


@pytest.mark.parametrize(("kind", "update"), [(torch.bfloat16, 0.02), (torch.float32, 1e-5)])
def test_an_update_that_is_stored_is_not(tokenizer: Any, tmp_path: Path, kind: torch.dtype, update: float) -> None:
    counted = written(tokenizer, tmp_path, kind, update)
    assert precision_note(counted) is None
    assert (kind == torch.float32) == (counted == {})
