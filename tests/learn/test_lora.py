"""An adapter is trained instead of its model, with the model itself as the reference; merging it does not change the
results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from transformers import GenerationConfig

from sweet.errors import UsageError
from sweet.learn import lora
from sweet.learn.engine import Engine, copy_weights, trainable_weights
from sweet.learn.head import load_head
from sweet.learn.job import Job
from sweet.learn.logprobs import scorer_of, span_logprobs
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.lora import BaseScorer, LoraSettings, add_lora, base_alone, check_peft
from sweet.learn.metrics import Record
from sweet.learn.trainee import LoraOutput, Start, Trainee, save_model, write_merged
from sweet.llm.adapter import CONFIG as ADAPTER_CONFIG
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import load_model, load_tokenizer, stored_type
from tests.learn.builders import SPECIAL, TEMPLATES, assert_trained_alike, build_model, build_tokenizer
from tests.learn.test_loop import CRITIC, make_data
from tests.learn.test_recompute import nudge
from tests.training.test_train_ranks import make_job

pytest.importorskip("peft", reason="peft is not installed")

LORA = LoraSettings(4, 8, seed=3)


def scores(model: Any, tokenizer: Any) -> torch.Tensor:
    pool, _ = make_data(tokenizer, 3)
    return torch.cat([sums for sums, _ in span_logprobs(scorer_of(model, share=True), pool.sequences)])


def save_base(folder: Path, tokenizer: Any, kind: torch.dtype = torch.float32) -> str:
    save_model(build_model(len(tokenizer)).to(kind), tokenizer, folder)
    return str(folder)


def test_every_linear_layer_but_the_output_is_adapted(tokenizer: Any) -> None:
    model = build_model(len(tokenizer))
    add_lora(model, LORA)
    adapted = {name.split(".lora_")[0].rpartition(".")[2] for name in trainable_weights(model)}
    assert adapted == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert all(".lora_" in name for name in trainable_weights(model))
    few = build_model(len(tokenizer))
    add_lora(few, LoraSettings(4, 8, ("q_proj", "v_proj")))
    assert len(trainable_weights(few)) == 2 * 2 * 2


def test_initially_and_with_the_adapter_disabled_the_model_is_unchanged(tokenizer: Any) -> None:
    base, model = build_model(len(tokenizer)), build_model(len(tokenizer))
    add_lora(model, LORA)
    expected = scores(base, tokenizer)
    assert torch.equal(scores(model, tokenizer), expected)
    nudge(model)
    assert not torch.allclose(scores(model, tokenizer), expected, atol=1e-2)
    with base_alone(model):
        assert torch.equal(scores(model, tokenizer), expected)
    assert not torch.allclose(scores(model, tokenizer), expected, atol=1e-2)
    assert trainable_weights(model)


def test_a_regression_head_is_trained_completely_with_an_adapter(tokenizer: Any, tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", tokenizer, torch.bfloat16)
    for output in get_args(LoraOutput):
        trainee = Trainee.load(Start(base, LORA, output, head=True), "cpu")
        head = {name for name in trainable_weights(trainee.model) if ".lora_" not in name}
        assert head == {"regression_head.weight", "regression_head.bias"}
        nudge(trainee.model)
        expected = {name: value.clone() for name, value in trainable_weights(trainee.model).items() if name in head}
        trainee.write(tokenizer, tmp_path / output)
        model = load_model(str(tmp_path / output), "cpu")
        load_head(model, tmp_path / output)
        found = dict(model.named_parameters())
        for name, value in expected.items():
            assert torch.equal(found[name], value), "fp32, whatever the model is stored in"


def test_the_adapter_depends_only_on_the_seed_and_global_random_state_is_unchanged(tokenizer: Any) -> None:
    made = []
    for noise, seed in ((1, 3), (2, 3), (1, 4)):
        model = build_model(len(tokenizer))
        torch.manual_seed(noise)
        state = torch.get_rng_state()
        add_lora(model, LoraSettings(4, 8, seed=seed))
        assert torch.equal(torch.get_rng_state(), state)
        made.append(torch.cat([weights.flatten() for weights in trainable_weights(model).values()]))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_merged_model_equals_the_adapted_one_in_the_type_of_the_base(
    tokenizer: Any, tmp_path: Path, kind: torch.dtype
) -> None:
    start = Start(save_base(tmp_path / "base", tokenizer, kind), LORA)
    trainee = Trainee.load(start, "cpu")
    nudge(trainee.model)
    expected = scores(trainee.model, tokenizer)
    layer = trainee.model.model.layers[0].self_attn.q_proj
    product = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    once = (layer.base_layer.weight + 8 / 4 * product).detach().to(kind)
    trainee.write(tokenizer, tmp_path / "merged")
    merged = load_model(str(tmp_path / "merged"), "cpu", "float32")
    assert stored_type(str(tmp_path / "merged")) == kind
    assert not any("lora" in name for name, _ in merged.named_parameters())
    assert torch.equal(merged.model.layers[0].self_attn.q_proj.weight, once.float()), "rounded once"
    exact = kind == torch.float32
    torch.testing.assert_close(scores(merged, tokenizer), expected, rtol=1e-5 if exact else 5e-2, atol=1e-4)


def test_an_adapter_is_saved_in_peft_s_format_and_can_be_loaded(tokenizer: Any, tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", tokenizer)
    trainee = Trainee.load(Start(base, LORA, "adapter"), "cpu")
    nudge(trainee.model)
    expected = scores(trainee.model, tokenizer)
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "config.json").write_text("of a model that was here before")
    trainee.write(tokenizer, folder)
    names = {path.name for path in folder.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= names
    assert not {"config.json", "model.safetensors", ".part"} & names
    adapter_config = json.loads((folder / "adapter_config.json").read_text())
    assert (adapter_config["r"], adapter_config["lora_alpha"], adapter_config["lora_dropout"]) == (4, 8, 0.0)
    adapter = find_adapter(str(folder))
    assert adapter is not None
    assert (adapter.base, adapter.rank, adapter.own_tokenizer) == (base, 4, True)
    loaded = load_model(str(folder), "cpu", tokenizer=load_tokenizer(str(folder)))
    torch.testing.assert_close(scores(loaded, tokenizer), expected, rtol=1e-5, atol=1e-4)


def test_an_adapter_that_is_not_merged_keeps_what_bf16_would_lose(tokenizer: Any, tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", tokenizer, torch.bfloat16)
    trainee = Trainee.load(Start(base, LORA, "adapter"), "cpu")
    nudge(trainee.model)
    with torch.no_grad():  # as small as a training at a usual learning rate makes them
        for name, parameter in trainee.model.named_parameters():
            parameter.mul_(0.01 if "lora_B" in name else 1)
    trainee.write(tokenizer, tmp_path / "adapter")
    path = str(tmp_path / "adapter")
    beneath = scores(load_model(base, "cpu", "float32"), tokenizer)
    learned = scores(load_model(path, "cpu", "float32"), tokenizer) - beneath
    rounded = load_model(path, "cpu", "bfloat16").float()
    beside = load_model(path, "cpu", "bfloat16", merges=False)
    assert {parameter.dtype for name, parameter in beside.named_parameters() if "lora_" in name} == {torch.float32}
    assert next(beside.parameters()).dtype == torch.bfloat16
    beside.float()  # the weights are the same; bf16 in the sums of activations is not what differs

    def error(model: Any) -> float:
        return float((scores(model, tokenizer) - beneath - learned).norm() / learned.norm())

    assert error(beside) < 1e-2
    assert error(rounded) > 20 * error(beside)
    torch.testing.assert_close(scores(BaseScorer(beside), tokenizer), beneath, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("targets", [(), ("q_proj", "v_proj")])
def test_an_adapter_that_is_trained_on_an_adapter_is_one_of_the_model_beneath(
    tokenizer: Any, tmp_path: Path, targets: tuple[str, ...]
) -> None:
    """Also where the two are of other layers, ranks and weights; it equals what is merged."""
    base = save_base(tmp_path / "base", tokenizer)
    first = Trainee.load(Start(base, LORA, "adapter"), "cpu")
    nudge(first.model)
    first.write(tokenizer, tmp_path / "first")
    start = Start(str(tmp_path / "first"), LoraSettings(2, 12, targets, 5), "adapter")
    second = Trainee.load(start, "cpu")
    nudge(second.model)
    expected = scores(second.model, tokenizer)
    second.write(tokenizer, tmp_path / "second")
    adapter = find_adapter(str(tmp_path / "second"))
    assert adapter is not None
    assert (adapter.base, adapter.rank) == (base, 6)
    assert not list((tmp_path / "second").glob("*/")), "no folder of peft's is left"
    loaded = load_model(str(tmp_path / "second"), "cpu")
    torch.testing.assert_close(scores(loaded, tokenizer), expected, rtol=1e-5, atol=1e-4)
    write_merged(str(tmp_path / "second"), tmp_path / "merged")
    assert find_adapter(str(tmp_path / "merged")) is None
    assert torch.equal(scores(load_model(str(tmp_path / "merged"), "cpu"), tokenizer), scores(loaded, tokenizer))


def test_large_models_have_adapters_written_alone(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = save_base(tmp_path / "base", tokenizer)
    assert Trainee.load(Start(base, LORA), "cpu").output == "merged"
    monkeypatch.setattr("sweet.learn.trainee.ADAPTER_THRESHOLD", 1)
    large = Trainee.load(Start(base, LORA), "cpu")
    assert (large.output, Trainee.load(Start(base), "cpu").output) == ("adapter", None)
    assert Trainee.load(Start(base, LORA, "merged"), "cpu").output == "merged"
    large.write(tokenizer, tmp_path / "adapter")
    config = tmp_path / "adapter" / ADAPTER_CONFIG
    config.write_text(json.dumps(json.loads(config.read_text()) | {"bias": "all"}))
    adapter = find_adapter(str(tmp_path / "adapter"))
    assert adapter is not None
    assert not adapter.is_plain


@pytest.mark.parametrize("output", [None, *get_args(LoraOutput)])
def test_what_is_written_says_where_replies_end(tmp_path: Path, output: LoraOutput | None) -> None:
    """That the template ends turns by `<end_of_turn>` is what is learned; vllm and transformers read it there."""
    tokenizer = build_tokenizer(TEMPLATES["gemma"], special=[*SPECIAL, "<|endoftext|>"])
    tokenizer.eos_token = "<|endoftext|>"
    base = save_base(tmp_path / "base", tokenizer)
    Trainee.load(Start(base, LORA if output else None, output), "cpu").write(tokenizer, tmp_path / "trained")
    marks = [tokenizer.convert_tokens_to_ids(mark) for mark in ("<end_of_turn>", "<|endoftext|>")]
    found = GenerationConfig.from_pretrained(tmp_path / "trained").eos_token_id
    assert {*marks} <= {*found}
    if output == "adapter":
        assert json.loads((tmp_path / "trained/generation_config.json").read_text()).keys() <= {
            "eos_token_id",
            "transformers_version",
            "_from_model_config",
        }, "nothing else, which vllm would sample by"


def loop_of(tokenizer: Any, path: Path, share: bool = True, **more: Any) -> Loop:
    pool, examples = make_data(tokenizer)
    model = build_model(len(tokenizer))
    add_lora(model, LORA)
    settings = LoopSettings(lr=2e-2, epochs=3, batch=4, seed=1, share=share)
    return Loop(model, pool.sequences, examples[:9], CRITIC, settings, "d", examples[9:], path, **more)


class _StoppedError(Exception):
    pass


def test_resumed_equals_uninterrupted_and_the_checkpoint_contains_only_the_adapter(
    tokenizer: Any, tmp_path: Path
) -> None:
    whole = loop_of(tokenizer, tmp_path / "a.pt")
    frozen = {name: tensor.clone() for name, tensor in whole.model.named_parameters() if not tensor.requires_grad}
    expected = whole.run()

    def stop(record: Record) -> None:
        if record["step"] == 5:
            raise _StoppedError

    path = tmp_path / "b.pt"
    with pytest.raises(_StoppedError):
        loop_of(tokenizer, path, on_step=stop).run()
    held = torch.load(path, weights_only=True)
    assert held.keys() == {"model", "optimizer", "random", "state"}
    assert held["model"].keys() == trainable_weights(whole.model).keys()
    assert len(held["optimizer"]["state"]) == len(held["model"])
    again = loop_of(tokenizer, path)
    found = again.run(resume=True)
    kept, right = again.final_weights(), whole.final_weights()
    assert kept is not None
    assert right is not None
    assert all(torch.equal(kept[name], right[name]) for name in right)
    assert (found["loss"], found["heldout_accuracy"]) == (expected["loss"], expected["heldout_accuracy"])
    assert all(torch.equal(dict(whole.model.named_parameters())[name], tensor) for name, tensor in frozen.items())
    assert expected["accuracy"] == 1.0, "it learns"


def test_the_reference_is_the_base_whatever_the_adapter_contains(tokenizer: Any, tmp_path: Path) -> None:
    loop = loop_of(tokenizer, tmp_path / "c.pt")
    nudge(loop.model)
    reference = loop.reference()
    assert reference is not None
    base = scorer_of(build_model(len(tokenizer)), share=True)
    for sums, (alone, _) in zip(reference, span_logprobs(base, loop.pool), strict=True):
        torch.testing.assert_close(sums, alone)


def test_trees_and_plain_sequences_train_the_same_adapter(tokenizer: Any, tmp_path: Path) -> None:
    ends = []
    for share in (True, False):
        loop = loop_of(tokenizer, tmp_path / f"{share}.pt", share)
        loop.run()
        ends.append(torch.cat([weights.flatten() for weights in (loop.final_weights() or {}).values()]))
    assert_trained_alike(ends[0], ends[1])


def test_weights_of_another_model_are_refused(tokenizer: Any) -> None:
    one, other = build_model(len(tokenizer)), build_model(len(tokenizer))
    add_lora(one, LORA)
    add_lora(other, LoraSettings(2, 8))
    for weights in (trainable_weights(other), trainable_weights(build_model(len(tokenizer)))):
        with pytest.raises(ValueError, match="another model"):
            copy_weights(trainable_weights(one), weights)


@pytest.mark.parametrize(
    ("targets", "words"),
    [(("no_such",), "No LoRA"), (("lm_head", "q_proj"), "output layer"), (("embed_tokens",), "embedding")],
)
def test_layers_that_cannot_be_adapted(tokenizer: Any, targets: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        add_lora(build_model(len(tokenizer)), LoraSettings(4, 8, targets))
    assert "--lora-target" in str(caught.value.where)


def test_without_peft_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lora, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="peft is not installed") as caught:
        check_peft()
    assert caught.value.fix == "pip install '.[gpu]' in the checkout of sweet"


def test_a_job_with_an_adapter_is_read_as_it_was_written(tmp_path: Path) -> None:
    start = Start("micro", LoraSettings(4, 8, ("q_proj", "v_proj"), 2), "adapter", True)
    job = make_job("micro", tmp_path, start=start)
    job.write(tmp_path / "job.pt")
    assert Job.read(tmp_path / "job.pt") == job


def test_an_engine_updates_only_the_adapter(tokenizer: Any) -> None:
    model = build_model(len(tokenizer))
    add_lora(model, LORA)
    engine = Engine(model, 1.0)
    assert engine.stored_weights().keys() == trainable_weights(model).keys()
