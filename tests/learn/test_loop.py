"""The loop learns, does not depend on its micro-batches, and resumes exactly where it was interrupted."""

from __future__ import annotations

import math
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import Interrupted, SweetError, UsageError
from sweet.learn.components import Example, Objective
from sweet.learn.engine import Engine, peak_flops
from sweet.learn.interrupts import STOPPING, Interrupts
from sweet.learn.logprobs import Scorer
from sweet.learn.loop import Loop, LoopSettings, learning_rate
from sweet.learn.losses import losses
from sweet.learn.metrics import MicroBatchSums, Record, max_turns
from sweet.learn.objectives import nll, preference_loss, side_scores
from sweet.learn.sequences import WHOLE, Pool
from sweet.learn.tokens import ChatEncoder
from sweet.learn.trainee import save_model
from sweet.learn.tree import Work
from tests.learn.builders import SYSTEM, assert_trained_alike, build_model, build_trajectory

CRITIC = Objective(beta=0.1, nll=0.01)
SETTINGS = LoopSettings(lr=2e-3, epochs=3, batch=4, seed=1)


def make_data(tokenizer: Any, count: int = 10) -> tuple[Pool, list[Example]]:
    """Preferences for dialogues that answer with a 5 over those that answer with a 7."""
    encoder, pool, examples = ChatEncoder(tokenizer), Pool(), []
    for number in range(count):
        sides = []
        for name in (f"5 + {number}", f"7 + {number}"):
            encoded = encoder.dialogue(build_trajectory(name, turns=2 + number % 2), SYSTEM, hidden="C")
            sides.append(pool.put(name, encoded.sequences, encoded.dropped))
        examples.append(Example(f"pair {number}", *sides))
    return pool, examples


def weights(model: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(
    "objective",
    [
        CRITIC,
        Objective(0.1, 0.3, "none"),
        Objective(0.1, 0.0, "trajectory"),
        Objective(None, 1.0),
        Objective(0.1, 1.0, "none", True),
    ],
)
def test_a_batch_gives_what_its_examples_give_alone(tokenizer: Any, objective: Objective) -> None:
    pool, examples = make_data(tokenizer, 5)
    examples[1] = Example("shares a side", examples[0].chosen, examples[2].rejected)
    start, model = build_model(len(tokenizer)), build_model(len(tokenizer), seed=1)
    scorer = Scorer(model)
    with torch.no_grad():
        reference = [Scorer(start)([sequence]).sums for sequence in pool.sequences]
        together = losses(scorer, objective, pool.sequences, examples, reference)
        for number, example in enumerate(examples):
            policy, base, counts, owner = [], [], [], []
            for side, indices in enumerate((example.chosen, example.rejected)):
                for index in indices:
                    found = scorer([pool.sequences[index]])
                    policy.append(found.sums)
                    counts.append(found.counts)
                    base.append(reference[index])
                    owner += [side] * len(found.sums)
            flat = (torch.cat(policy), torch.cat(base), torch.cat(counts), torch.tensor(owner))
            fluency = nll(flat[0], flat[2], flat[3], 2)[0]
            if objective.whole_nll:
                row = scorer([pool.sequences[example.chosen[0]].with_whole()])
                turns = [span.turn for span in pool.sequences[example.chosen[0]].with_whole().spans]
                at = turns.index(WHOLE)
                fluency = -row.sums[at] / row.counts[at]
            expected = objective.nll * fluency
            if objective.beta is not None:
                score = side_scores(*flat, 2, objective.normalize)
                expected = expected + preference_loss(score[0], score[1], objective.beta)
            torch.testing.assert_close(together.loss[number], expected, rtol=1e-4, atol=1e-4)


def test_a_critic_learns_its_preferences(tokenizer: Any) -> None:
    pool, examples = make_data(tokenizer)
    records: list[Record] = []
    settings = LoopSettings(lr=5e-3, epochs=6, batch=4)
    loop = Loop(
        build_model(len(tokenizer)),
        pool.sequences,
        examples[:8],
        CRITIC,
        settings,
        heldout=examples[8:],
        on_step=records.append,
    )
    summary = loop.run()
    steps = [record for record in records if "loss" in record]
    assert summary["steps"] == len(steps) == 12
    assert steps[0]["margin"] == pytest.approx(0, abs=1e-5)
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert summary["accuracy"] == 1.0
    assert summary["heldout_accuracy"] == 1.0
    assert summary["mfu"] is None
    assert all(math.isfinite(record["grad_norm"]) and record["tokens_per_second"] > 0 for record in steps)


def test_fine_tuning_raises_the_likelihood(tokenizer: Any) -> None:
    pool, examples = make_data(tokenizer, 4)
    alone = [Example(example.name, example.chosen) for example in examples]
    records: list[Record] = []
    loop = Loop(
        build_model(len(tokenizer)), pool.sequences, alone, Objective(None, 1.0), SETTINGS, on_step=records.append
    )
    summary = loop.run()
    assert records[-1]["loss"] < 0.9 * records[0]["loss"]
    assert summary["accuracy"] is None


def test_the_result_does_not_depend_on_micro_batches(tokenizer: Any) -> None:
    pool, examples = make_data(tokenizer)
    ends = []
    for budget in (64, 8192):
        model = build_model(len(tokenizer))
        settings = LoopSettings(lr=1e-3, epochs=1, batch=4, token_budget=budget)
        Loop(model, pool.sequences, examples, CRITIC, settings).run()
        ends.append(weights(model))
    assert_trained_alike(ends[0], ends[1])


class _StoppedError(Exception):
    pass


class Watched(Loop):
    """Records the names of the examples of each step."""

    def _step(self, step: int, examples: list[Example]) -> Work:
        taken.append([example.name for example in examples])
        return super()._step(step, examples)


taken: list[list[str]] = []


def test_groups_stay_together_and_are_shuffled(tokenizer: Any) -> None:
    pool, examples = make_data(tokenizer, 9)
    grouped = [Example(e.name, e.chosen, e.rejected, group=str(number % 3)) for number, e in enumerate(examples)]
    settings = LoopSettings(lr=1e-3, epochs=2, batch=3, together=None)
    taken.clear()
    Watched(build_model(len(tokenizer)), pool.sequences, grouped, CRITIC, settings).run()
    families = [{int(name.split()[1]) % 3 for name in names} for names in taken]
    assert all(len(family) == 1 for family in families)
    epochs = [[name for names in part for name in names] for part in (taken[:3], taken[3:])]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(example.name for example in grouped)
    assert epochs[0] != epochs[1]
    assert any(names != sorted(names) for names in taken)


@pytest.mark.parametrize(("saving", "kept"), [({}, 3), ({"save_every": 2}, 4), ({"save_seconds": 0.0}, 4)])
def test_resumed_equals_uninterrupted(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saving: dict[str, Any], kept: int
) -> None:
    """`kept` is the step whose checkpoint a loop has left that failed after the fifth."""
    monkeypatch.setattr("sweet.learn.loop.SAVE_SHARE", math.inf)
    pool, examples = make_data(tokenizer)
    settings = LoopSettings(lr=2e-3, epochs=3, batch=4, seed=1, **saving)

    def make(model: Any, path: Path, **more: Any) -> Loop:
        return Loop(model, pool.sequences, examples[:9], CRITIC, settings, "d", examples[9:], path, **more)

    straight = build_model(len(tokenizer))
    expected = make(straight, tmp_path / "a.pt").run()

    def stop(record: Record) -> None:
        if record["step"] == 5:
            raise _StoppedError

    with pytest.raises(_StoppedError):
        make(build_model(len(tokenizer)), tmp_path / "b.pt", on_step=stop).run()
    resumed = build_model(len(tokenizer))
    records: list[Record] = []
    found = make(resumed, tmp_path / "b.pt", on_step=records.append).run(resume=True)
    assert records[0]["step"] == kept + 1
    assert torch.equal(weights(straight), weights(resumed))
    assert all(found[name] == expected[name] for name in ("loss", "accuracy", "heldout_accuracy"))


def test_a_signal_lets_the_step_end_and_a_second_one_does_not(tokenizer: Any, tmp_path: Path) -> None:
    pool, examples = make_data(tokenizer)
    settings = LoopSettings(lr=2e-3, epochs=3, batch=4, seed=1)
    said: list[str] = []

    def run(name: str, signals: dict[int, int], **more: Any) -> Any:
        """Train, with signals that arrive while the rows of steps are written."""
        interrupts, model = Interrupts(said.append), build_model(len(tokenizer))

        def on_step(record: Record) -> None:
            for _ in range(signals.get(record["step"], 0)):
                signal.raise_signal(signal.SIGINT)

        loop = Loop(model, pool.sequences, examples, CRITIC, settings, "d", checkpoint=tmp_path / name, on_step=on_step)
        loop.on_reference, loop.stop = interrupts.hold, lambda: interrupts.asked
        with interrupts:
            loop.run(**more)
        return model, interrupts.asked

    usual = signal.getsignal(signal.SIGINT)
    straight, _ = run("a", {})
    with pytest.raises(Interrupted, match=re.escape("Stopped after step 5, which the checkpoint has.")):
        run("b", {5: 1})
    assert signal.getsignal(signal.SIGINT) is usual
    with pytest.raises(KeyboardInterrupt):
        run("b", {7: 2}, resume=True)
    resumed, asked = run("b", {9: 1}, resume=True)  # in the last step there is nothing to stop any more
    assert asked
    assert torch.equal(weights(straight), weights(resumed))
    assert said == [STOPPING] * 3


def test_an_example_with_one_side_has_likelihood_alone_and_neither_accuracy_nor_margin(tokenizer: Any) -> None:
    pool, pairs = make_data(tokenizer, 5)
    alone = [Example(example.name, example.chosen) for example in pairs[2:]]
    objective, settings = Objective(0.5, 1.0, "none"), LoopSettings(lr=2e-3, epochs=2, batch=5)
    records: list[Record] = []
    loop = Loop(
        build_model(len(tokenizer)), pool.sequences, [*pairs[:2], *alone], objective, settings, on_step=records.append
    )
    reference = loop.reference()
    assert reference is not None

    def measured(examples: list[Example], objective: Objective) -> Any:
        with torch.no_grad():
            return losses(loop.scorer, objective, pool.sequences, examples, reference)

    summary = loop.run()
    together = measured([*pairs[:2], *alone], objective)
    apart = measured(pairs[:2], Objective(0.5, 0.0, "none")).loss.mean()
    fluency = measured(pairs, Objective(None, 1.0)).loss.mean()
    torch.testing.assert_close(together.loss.mean(), apart + fluency, rtol=1e-4, atol=1e-5)
    assert summary["accuracy"] == 1.0
    assert records[0]["accuracy"] in (0.0, 0.5, 1.0), "a share of the two pairs"
    last = MicroBatchSums(max_turns(pool.sequences), loop.scorer.device)
    last.add(pool.sequences, [*pairs[:2], *alone], together, Work(1))
    sums, _ = last.fetch()
    margins = (together.chosen - together.rejected)[:2]
    assert sums.means(preference=True)["margin"] == pytest.approx(margins.mean().item(), rel=1e-4)
    nothing = MicroBatchSums(max_turns(pool.sequences), loop.scorer.device)
    nothing.add(pool.sequences, alone, measured(alone, objective), Work(1))
    means = nothing.fetch()[0].means(preference=True)
    assert (means["accuracy"], means["margin"]) == (None, None)


def test_a_checkpoint_of_another_training_is_refused(tokenizer: Any, tmp_path: Path) -> None:
    engine = Engine(build_model(len(tokenizer)), 1.0)
    engine.save(tmp_path / "c.pt", {"digest": "one", "step": 1})
    assert engine.load(tmp_path / "c.pt", "one")["step"] == 1
    with pytest.raises(UsageError, match="other settings"):
        engine.load(tmp_path / "c.pt", "two")
    (tmp_path / "c.pt").write_bytes(b"torn")
    with pytest.raises(UsageError, match="cannot be read"):
        engine.load(tmp_path / "c.pt", "one")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_error_of_a_value_that_is_not_finite_names_step_and_items(tokenizer: Any, value: float) -> None:
    pool, examples = make_data(tokenizer, 4)
    model = build_model(len(tokenizer))
    loop = Loop(model, pool.sequences, examples, CRITIC, SETTINGS)
    with torch.no_grad():
        next(model.parameters())[5] = value
    with pytest.raises(SweetError, match="step 1 is not a finite") as caught:
        loop.run()
    assert "pair" in str(caught.value.where)
    assert caught.value.fix == "a smaller --lr, without --resume", "a training is gone on with at its own rate"


def test_the_learning_rate_warms_up_and_ends_at_a_tenth() -> None:
    settings = LoopSettings(lr=1.0, epochs=1, batch=1)
    rates = [learning_rate(step, 100, settings) for step in range(100)]
    assert rates[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
    assert learning_rate(0, 100, replace(settings, warmup=0.0)) == 1.0
    assert learning_rate(49, 100, replace(settings, warmup=0.5)) == 1.0


def test_weight_decay_is_of_matrices_alone(tokenizer: Any) -> None:
    """AdamW scales each by 1 - rate times decay, beside what the gradient does."""
    pool, examples = make_data(tokenizer, 4)
    ends = []
    for decay in (0.0, 0.5):
        model = build_model(len(tokenizer))
        settings = LoopSettings(lr=0.1, epochs=1, batch=4, warmup=0.0, weight_decay=decay)
        start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        Loop(model, pool.sequences, examples, CRITIC, settings).run()
        ends.append({name: weight.detach() for name, weight in model.named_parameters()})
    for name, plain in ends[0].items():
        expected = plain - 0.1 * 0.5 * start[name] if plain.dim() > 1 else plain
        torch.testing.assert_close(ends[1][name], expected, rtol=1e-4, atol=1e-6)
    assert {plain.dim() for plain in ends[0].values()} == {1, 2}


def test_the_norm_of_the_gradient_is_limited(tokenizer: Any) -> None:
    pool, examples = make_data(tokenizer, 4)
    norms = []
    for clip in (1e9, 1e-9):
        model, records = build_model(len(tokenizer)), list[Record]()
        before = weights(model)
        settings = LoopSettings(lr=0.1, epochs=1, batch=4, warmup=0.0, clip=clip)
        Loop(model, pool.sequences, examples, CRITIC, settings, on_step=records.append).run()
        norms.append((records[0]["grad_norm"], float((weights(model) - before).abs().max())))
    assert norms[0][0] == norms[1][0] > 0, "the norm before clipping is reported"
    assert norms[0][1] > 2 * norms[1][1], "Adam divides by the norm, but for its epsilon"


def test_a_saved_model_is_complete_and_can_be_loaded(tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = build_model(len(tokenizer))
    path = tmp_path / "actor"
    path.mkdir()
    (path / "config.json").write_text("torn")
    save_model(model, tokenizer, path)
    assert {"config.json", "model.safetensors", "tokenizer.json"} < {p.name for p in path.iterdir()}
    assert not any(p.name.startswith(".") for p in path.iterdir())
    again: Any = AutoModelForCausalLM.from_pretrained(path)
    assert torch.equal(weights(again), weights(model))
    assert AutoTokenizer.from_pretrained(path).chat_template == tokenizer.chat_template


def test_no_utilisation_is_reported_for_a_cpu() -> None:
    assert peak_flops(torch.device("cpu")) is None
