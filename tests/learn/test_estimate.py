"""The memory estimate matches measurements, and ZeRO divides it according to its stage."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from sweet.learn.components import Example, Objective
from sweet.learn.estimate import (
    BUCKET,
    LIVE_PARAMETERS,
    Shape,
    ZeroSettings,
    activations,
    buffers,
    casts,
    forward_memory,
    image_activations,
    logits,
    model_states,
)
from sweet.learn.head import attach_head
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.recompute import recompute_layers
from sweet.learn.sequences import Span, TokenSequence
from sweet.learn.vision_processor import VisionProcessor
from tests.learn.sighted import FAMILIES, build_model, build_tokenizer, make_sighted, paint

P, T = 1000, 100

TOLERANCE = 1.3
"""Maximum factor between the measured peak and the estimate, either way."""
RECOMPUTE_TOLERANCE = 1.5
"""The same upwards if layers are recomputed: at the sizes of the tests, the recomputed layer dominates."""


def measured_peak(make: Any) -> int:
    """Bytes of tensors that lived at once while `make()` worked."""
    gc.collect()  # tensors of an earlier measurement that are freed meanwhile would lower the peak
    with (
        # Building the profiler's tree of operations takes most of the time, and is not used here.
        patch.object(torch.autograd.profiler.profile, "_parse_kineto_results", return_value=[]),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded,
    ):
        make()
    changes = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    level = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        level += change.nbytes()
        peak = max(peak, level)
    return peak


def test_what_an_earlier_measurement_has_left_does_not_count() -> None:
    def leave() -> None:
        left: list[Any] = [torch.zeros(1 << 20)]
        left.append(left)

    def make() -> None:
        gc.collect()
        torch.zeros(1 << 20)

    assert measured_peak(leave) == measured_peak(make) == 4 << 20


class Measured(NamedTuple):
    """A training: the peak of its tensors, what is kept for the parameters, and the estimate of the rest."""

    peak: int
    states: float
    rest: float
    parameters: int


def measured(
    width: int,
    layers: int,
    inner: int,
    vocabulary: int,
    length: int,
    shared: int,
    *,
    mixed: bool = False,
    recompute: bool = False,
) -> Measured:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "llama",
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    draw = random.Random(1)
    start = tuple(draw.randrange(vocabulary) for _ in range(shared))
    pool = [
        TokenSequence(
            start + tuple(draw.randrange(vocabulary) for _ in range(length - shared)), (Span(length // 2, length, 1),)
        )
        for _ in range(4)
    ]
    examples = [Example(str(number), (2 * number,), (2 * number + 1,)) for number in range(2)]
    # One example per micro-batch, so that gradients exist when the second one is computed; and a second step, in which
    # the optimizer has its state.
    settings = LoopSettings(lr=1e-4, epochs=2, batch=2, token_budget=1)
    loops: list[Loop] = []

    def train() -> None:
        make: Any = AutoModelForCausalLM.from_config
        model = make(config)
        if recompute:
            recompute_layers(model)
        loops.append(Loop(model, pool, examples, Objective(0.1, 0.1), settings))
        loops[0].scorer._mixed = mixed  # as on a GPU
        loops[0].run()

    peak, shape, parameters = measured_peak(train), Shape.of(config), loops[0].parameters
    positions, states = shared + 2 * (length - shared), model_states(parameters, parameters)
    supervised, longest = 2 * (length - length // 2), length if shared else 0
    forward = forward_memory(shape, positions, supervised, mixed=mixed, longest=longest, checkpointing=recompute)
    rest = sum(forward.values()) + casts(shape, parameters, mixed=mixed, checkpointing=recompute)
    return Measured(peak, states.weights + states.gradients + states.optimizer, rest, parameters)


# Products in bf16 take most of the time on a processor without instructions for it, so `mixed` has the smaller sizes.
@pytest.mark.parametrize(
    ("sizes", "recompute", "mixed"),
    [
        ((128, 4, 256, 512, 400, 0), False, False),
        ((128, 4, 256, 512, 400, 0), True, False),
        ((64, 2, 256, 512, 100, 32), False, True),
        ((128, 2, 512, 2048, 400, 128), True, False),
        ((64, 8, 128, 500, 300, 150), False, False),
        ((64, 2, 128, 500, 150, 75), True, True),
    ],
)
def test_the_estimate_is_near_the_measured_peak(sizes: tuple[int, ...], recompute: bool, mixed: bool) -> None:
    found = measured(*sizes, mixed=mixed, recompute=recompute)
    assert (
        found.peak / TOLERANCE
        < found.states + found.rest
        < (RECOMPUTE_TOLERANCE if recompute else TOLERANCE) * found.peak
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimate_of_a_vision_tower_is_near_the_measured_peak(tmp_path: Path, family: str) -> None:
    vision = VisionProcessor(make_sighted(tmp_path / "model", family))
    (tmp_path / "page.png").write_bytes(paint("red", 64, 64))
    picture = vision.picture(tmp_path / "page.png")
    ids = (*(vision.token,) * picture.tokens, 50) * 3
    pool = [TokenSequence((*ids, 60 + number), (Span(3, 5, 1),), (picture,) * 3) for number in range(4)]
    examples = [Example(str(number), (2 * number,), (2 * number + 1,)) for number in range(2)]
    settings = LoopSettings(lr=1e-4, epochs=2, batch=2, token_budget=1)
    loops: list[Loop] = []

    def train() -> None:
        model = build_model(build_tokenizer(), family, tower=64)
        attach_head(model)
        loops.append(Loop(model, pool, examples, Objective(0.1, 0.0, target="preference"), settings))
        loops[0].run()

    peak, config = measured_peak(train), loops[0].model.config
    states = model_states(loops[0].parameters, loops[0].parameters)
    text = forward_memory(Shape.of(config), 2 * len(pool[0].ids), 0, mixed=False)
    tower = image_activations(config, 2 * 3 * picture.tokens, mixed=False)
    estimate = states.weights + states.gradients + states.optimizer + sum(text.values()) + tower
    assert tower > 0.5 * peak
    assert peak / TOLERANCE < estimate < TOLERANCE * peak


def test_the_estimate_of_many_logits_is_near_the_measured_peak() -> None:
    found = measured(64, 2, 128, 9000, 200, 50)
    assert found.peak / TOLERANCE < found.states + found.rest < TOLERANCE * found.peak


def test_recomputed_layers_store_no_copies_of_weights() -> None:
    """Autocast would keep those of all layers until the end of the forward pass, on every device."""
    kept, dropped = (measured(96, 6, 384, 128, 12, 4, mixed=True, recompute=again) for again in (False, True))
    assert kept.peak - kept.states > 2 * kept.parameters
    assert dropped.peak - dropped.states < dropped.parameters


@pytest.mark.parametrize(
    ("stage", "offload", "weights", "gradients", "optimizer", "host"),
    [
        (0, "none", 4 * P, 4 * T, 8 * T, 0),
        (1, "none", 4 * P, 4 * T, 12 * T / 4, 0),
        (2, "none", 4 * P, 4 * T / 4, 12 * T / 4, 0),
        (3, "none", 4 * P / 4, 4 * T / 4, 8 * T / 4, 0),
        (2, "optimizer", 4 * P, 4 * T / 4, 0, 12 * T / 4),
        (3, "optimizer", 4 * P / 4, 4 * T / 4, 0, 12 * T / 4),
    ],
)
def test_zero_divides(
    stage: int, offload: Any, weights: float, gradients: float, optimizer: float, host: float
) -> None:
    states = model_states(P, T, ZeroSettings(stage, offload), devices=4)
    assert (states.weights, states.gradients, states.optimizer, states.host) == (weights, gradients, optimizer, host)


def test_offloading_everything_stores_no_weights_on_the_device() -> None:
    states = model_states(P, P, ZeroSettings(3, "all"), devices=2)
    assert (states.weights, states.optimizer) == (0, 0)
    assert states.host == 12 * P / 2


def test_one_device_stores_everything() -> None:
    assert model_states(P, P) == model_states(P, P, ZeroSettings(0), devices=8)


def test_checkpointing_and_half_precision_need_less_memory() -> None:
    shape = Shape(hidden=64, layers=8, queries=64, keys=16, inner=256, vocabulary=1000)
    full = activations(shape, 100, mixed=False)
    assert activations(shape, 200, mixed=False) == 2 * full
    assert activations(shape, 100, mixed=True) < full
    assert activations(shape, 100, mixed=False, checkpointing=True) < full / 3
    assert casts(shape, P, mixed=True) == 2 * P
    assert casts(shape, 8 * P, mixed=True, checkpointing=True) == 2 * (P + 64 * 1000)
    assert casts(shape, P, mixed=False) == casts(shape, P, mixed=False, checkpointing=True) == 0
    assert logits(shape, 10**9) == 4 * 4 * (1 << 24)


def test_buffers_match_the_defaults_of_deepspeed() -> None:
    zero_config = pytest.importorskip("deepspeed.runtime.zero.config", reason="DeepSpeed is not installed")
    defaults = zero_config.DeepSpeedZeroConfig()
    assert (defaults.max_live_parameters, defaults.reduce_bucket_size) == (LIVE_PARAMETERS, BUCKET)
    shape = Shape(hidden=8192, layers=80, queries=8192, keys=1024, inner=28672, vocabulary=128256)
    assert buffers(shape, 7 * 10**10, ZeroSettings(2)) == 4 * BUCKET
    assert buffers(shape, 7 * 10**10, ZeroSettings(3)) == 4 * (BUCKET + 128256 * 8192)
    assert buffers(shape, P, ZeroSettings(3)) == 4 * (BUCKET + P)
    assert buffers(shape, P, ZeroSettings(0)) == buffers(shape, P, None) == 0


def test_shapes_of_families() -> None:
    from transformers import AutoConfig

    plain: Any = AutoConfig.for_model("qwen3", hidden_size=64, num_attention_heads=4, head_dim=32, intermediate_size=96)
    assert (Shape.of(plain).queries, Shape.of(plain).inner) == (128, 96)
    experts: Any = AutoConfig.for_model(
        "qwen3_moe", hidden_size=64, num_attention_heads=4, moe_intermediate_size=24, num_experts_per_tok=2
    )
    assert Shape.of(experts).inner == 48


@pytest.mark.parametrize(
    ("family", "options", "inner"),
    [
        ("gpt2", {"n_embd": 64, "n_head": 4}, 256),
        ("gpt2", {"n_embd": 64, "n_head": 4, "n_inner": 100}, 100),
        ("opt", {"hidden_size": 64, "num_attention_heads": 4, "ffn_dim": 200}, 200),
        ("bloom", {"hidden_size": 64, "n_head": 4}, 256),
        ("mamba", {"hidden_size": 64, "intermediate_size": 128}, 128),
        ("gemma3n_text", {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": [96, 80]}, 96),
    ],
)
def test_shapes_of_families_with_other_names(family: str, options: dict[str, Any], inner: int) -> None:
    from transformers import AutoConfig

    config: Any = AutoConfig.for_model(
        family, num_hidden_layers=2, vocab_size=99, bos_token_id=1, eos_token_id=2, **options
    )
    shape = Shape.of(config)
    assert (shape.hidden, shape.layers, shape.inner, shape.vocabulary) == (64, 2, inner, 99)
    assert activations(shape, 1, mixed=False) > 0
