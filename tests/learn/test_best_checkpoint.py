"""The weights of the best epoch are kept, also if the training is interrupted; on a tie the later ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import UsageError
from sweet.learn.components import Example
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.losses import Reference
from sweet.learn.metrics import Record
from sweet.learn.weights import best_files
from tests.learn.builders import build_model
from tests.learn.test_loop import CRITIC, make_data


class Scripted(Loop):
    """Held-out accuracies by epoch from a list; records the weights at each."""

    accuracies: Sequence[float] = ()
    seen: list[dict[str, torch.Tensor]]

    def evaluate(self, examples: Sequence[Example], reference: Reference | None) -> float:
        weights = self.engine.weights()
        assert weights is not None
        self.seen.append({name: tensor.clone() for name, tensor in weights.items()})
        return self.accuracies[self._epoch]


class _StoppedError(Exception):
    pass


def make(tokenizer: Any, path: Path | None, accuracies: Sequence[float], **more: Any) -> Scripted:
    pool, examples = make_data(tokenizer, 8)
    epochs = len(accuracies)
    settings = LoopSettings(lr=2e-3, epochs=epochs, batch=3, keep_best=True, save_every=more.pop("save_every", None))
    model, train, apart = build_model(len(tokenizer)), examples[:6], examples[6:]
    loop = Scripted(model, pool.sequences, train, CRITIC, settings, "d", apart, path, **more)
    loop.accuracies, loop.seen = accuracies, []
    return loop


def same(one: dict[str, torch.Tensor] | None, other: dict[str, torch.Tensor]) -> bool:
    return one is not None and all(torch.equal(one[name], other[name]) for name in other) and one.keys() == other.keys()


@pytest.mark.parametrize(
    ("accuracies", "best"), [((0.5, 1.0, 0.75), 1), ((1.0, 0.5, 1.0), 2), ((0.5, 0.5, 0.25), 1), ((0.9, 0.8, 0.7), 0)]
)
def test_the_best_epoch_is_kept_and_the_later_on_a_tie(
    tokenizer: Any, tmp_path: Path, accuracies: Sequence[float], best: int
) -> None:
    loop = make(tokenizer, tmp_path / "c.pt", accuracies)
    summary = loop.run()
    assert (summary["best_step"], summary["heldout_accuracy"]) == (2 * best + 2, accuracies[best])
    assert same(loop.final_weights(), loop.seen[best])
    assert [path.name for path in best_files(tmp_path / "c.pt")] == [f"c.pt.best-{2 * best + 2}"]


@pytest.fixture(scope="module")
def whole(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A training that is not interrupted, with its summary."""
    loop = make(tokenizer, tmp_path_factory.mktemp("whole") / "c.pt", ACCURACIES)
    return loop, loop.run()


ACCURACIES = (0.5, 1.0, 0.75)


@pytest.mark.parametrize("stopped_at", [3, 4, 5, 6])
@pytest.mark.parametrize("save_every", [None, 3])
def test_the_best_weights_survive_an_interruption(
    tokenizer: Any, tmp_path: Path, whole: Any, stopped_at: int, save_every: int | None
) -> None:
    accuracies, (loop, expected) = ACCURACIES, whole

    def stop(record: Record) -> None:
        if record["step"] == stopped_at and "loss" in record:
            raise _StoppedError

    path = tmp_path / "c.pt"
    with pytest.raises(_StoppedError):
        make(tokenizer, path, accuracies, save_every=save_every, on_step=stop).run()
    again = make(tokenizer, path, accuracies, save_every=save_every)
    found = again.run(resume=True)
    for summary in (found, expected):
        assert (summary["best_step"], summary["heldout_accuracy"]) == (4, 1.0)
    assert same(again.final_weights(), loop.seen[1])


def test_resuming_uses_the_best_weights_that_the_checkpoint_records(tokenizer: Any, tmp_path: Path) -> None:
    """Interrupted after better weights were written and before the checkpoint that records them."""
    path = tmp_path / "c.pt"

    def stop(record: Record) -> None:
        if record["step"] == 5:
            raise _StoppedError

    with pytest.raises(_StoppedError):
        make(tokenizer, path, (0.5, 1.0, 0.1), save_every=3, on_step=stop).run()
    assert {file.name for file in best_files(path)} == {"c.pt.best-2", "c.pt.best-4"}
    again = make(tokenizer, path, (0.5, 0.4, 0.1), save_every=3)
    assert again.run(resume=True)["best_step"] == 2
    assert not same(again.final_weights(), again.engine.weights() or {})
    assert {file.name for file in best_files(path)} == {"c.pt.best-2"}


def test_missing_weights_are_reported(tokenizer: Any, tmp_path: Path) -> None:
    loop = make(tokenizer, tmp_path / "c.pt", (1.0, 0.5))
    loop.run()
    best_files(tmp_path / "c.pt")[0].write_bytes(b"torn")
    with pytest.raises(UsageError, match="best weights cannot be read"):
        loop.final_weights()


def test_keep_best_requires_a_checkpoint_and_held_out_examples(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="requires a checkpoint"):
        make(tokenizer, None, (1.0,))
