"""The moving average of weights by hand, in the model's place, and restored."""

from __future__ import annotations

import pytest
import torch

from sweet.learn.engine import Engine, trainable_weights
from sweet.learn.lora import LoraSettings, add_lora
from sweet.learn.weights import WeightAverage
from tests.learn.builders import build_model


def moved(model: torch.nn.Module, by: float) -> None:
    with torch.no_grad():
        for tensor in trainable_weights(model).values():
            tensor += by


def test_the_average_follows_the_weights_by_its_rate() -> None:
    model = build_model(64)
    norm = model.model.norm.weight
    torch.nn.init.constant_(norm, 1.0)
    average = WeightAverage(Engine(model, 1.0), 0.25)
    for weight, expected in ((2.0, 1.25), (4.0, 1.9375)):  # 1 + 0.25 (2 - 1), 1.25 + 0.25 (4 - 1.25)
        torch.nn.init.constant_(norm, weight)
        average.update()
        with average.in_place():
            assert norm.unique().item() == expected
        assert norm.unique().item() == weight


@pytest.mark.parametrize("adapter", [False, True])
def test_the_average_takes_the_model_s_place_and_gives_it_back(*, adapter: bool) -> None:
    model = build_model(64)
    if adapter:
        add_lora(model, LoraSettings(2, 4, (), 0))
    average = WeightAverage(Engine(model, 1.0), 0.5)
    before = {name: tensor.detach().clone() for name, tensor in trainable_weights(model).items()}
    moved(model, 1.0)
    average.update()
    own = {name: tensor.detach().clone() for name, tensor in trainable_weights(model).items()}
    with average.in_place():
        for name, tensor in trainable_weights(model).items():
            torch.testing.assert_close(tensor, before[name] + 0.5)
    assert all(torch.equal(tensor, own[name]) for name, tensor in trainable_weights(model).items())


def test_a_training_is_the_same_with_an_average_beside_it() -> None:
    """The optimizer still moves the model's own weights after an exchange."""
    rows = torch.tensor([[1, 2, 3]])
    ends = []
    for averaged in (False, True):
        model = build_model(64)
        engine = Engine(model, 1.0)
        average = WeightAverage(engine, 0.1) if averaged else None
        for step in range(3):
            if average is not None:
                with average.in_place(), torch.inference_mode():
                    model(input_ids=rows)
            engine.backward(model(input_ids=rows).logits[0, :, 5 + step].sum())
            engine.step(1e-2)
            if average is not None:
                average.update()
        ends.append(engine.weights() or {})
    start = trainable_weights(build_model(64))
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in start)
    assert not any(torch.equal(ends[0][name], tensor) for name, tensor in start.items())


def test_a_restored_average_is_the_same() -> None:
    model, other = build_model(64), build_model(64, seed=1)
    average, again = (WeightAverage(Engine(one, 1.0), 0.1) for one in (model, other))
    moved(model, 1.0)
    average.update()
    again.load_state(average.state())
    state = average.state()
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.state().items())
    with pytest.raises(ValueError, match="another model"):
        again.load_state(WeightAverage(Engine(build_model(64, width=16), 1.0), 0.1).state())
