"""The stages on a simulated GPU (tests/simulated_gpu.py): no operation takes tensors of two devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import sweet
from sweet.learn.logprobs import Scorer
from sweet.learn.recompute import recompute_layers
from sweet.learn.rows import CandidateRow
from sweet.llm.spreading import spread
from sweet.runs.jsonl import read_jsonl
from tests.learn.builders import build_model
from tests.learn.test_logprobs import VOCABULARY, dialogue_of
from tests.simulated_gpu import CPU, GPU, DeviceMixError, Devices, simulated_gpu


@pytest.fixture
def gpu() -> Iterator[Devices]:
    with simulated_gpu() as devices:
        yield devices


@pytest.mark.usefixtures("gpu")
def test_what_a_gpu_refuses_is_refused() -> None:
    here, there = torch.ones(3), torch.ones(3, device="cuda")
    assert (here.device.type, there.device, (there * 2)[0].device) == ("cpu", GPU, GPU)
    with pytest.raises(DeviceMixError, match="same device"):
        here + there
    with pytest.raises(DeviceMixError, match="same device"):
        there.index_select(0, torch.tensor([0]))
    with pytest.raises(DeviceMixError, match="same device"):
        here[torch.tensor([0], device="cuda")]
    with pytest.raises(DeviceMixError, match="generator"):
        torch.rand(2, device="cuda", generator=torch.Generator())
    with pytest.raises(TypeError, match="to numpy"):
        there.numpy()


@pytest.mark.usefixtures("gpu")
def test_what_a_gpu_accepts_is_accepted() -> None:
    here, there = torch.ones(3), torch.ones(3).to("cuda")
    assert there[torch.tensor([0])].device == (there + torch.tensor(1)).device == there.to(torch.float64).device == GPU
    here.copy_(there)
    there.cpu().zero_()
    assert there.tolist() == [1, 1, 1], "a copy"
    assert there.cpu().numpy().sum() == 3
    drawn = torch.rand(2, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    torch.autograd.backward([(there.requires_grad_() * drawn.sum()).sum()])
    assert there.grad is not None
    assert there.grad.device == GPU
    with torch.device("cuda"):
        assert torch.nn.Linear(2, 2).weight.device == GPU


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("how", ["flex", "blocks", "plain", "layers recomputed", "mixed"])
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_log_probabilities_and_gradients(family: str, how: str) -> None:
    rows = dialogue_of(turns=4)
    with torch.no_grad():
        expected = Scorer(build_model(VOCABULARY, family=family), share=False)(rows).sums
    model = build_model(VOCABULARY, family=family).to("cuda")
    if how == "layers recomputed":
        recompute_layers(model)
    scorer = Scorer(model, share=how != "plain", attention="blocks" if how == "blocks" else None)
    assert scorer._mixed, "weights in fp32 are computed with in bf16"
    scorer._mixed = how == "mixed"
    assert (scorer.flex_error, scorer.attention) == (None, "blocks" if how == "blocks" else "flex")
    scores = scorer(rows)
    torch.autograd.backward([scores.sums.sum()])
    assert scores.sums.device == next(model.parameters()).grad.device == GPU
    error = (scores.sums.detach().cpu() - expected).abs().max() / expected.abs().max()
    assert float(error) < (2e-2 if how == "mixed" else 1e-5)
    with torch.no_grad():
        scores = scorer(rows, other_ids=torch.zeros(len(scores.token_logprobs), 2, dtype=torch.long), top=3)
    assert scores.other_logprobs is not None
    assert scores.top_ids is not None
    assert scores.other_logprobs.device == scores.top_ids.device == GPU


@pytest.mark.parametrize("how", ["flex", "blocks", "plain"])
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_layers_on_two_devices_give_the_numbers_of_one(
    gpu: Devices, family: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scorer, "_try_backward", lambda *_: None)  # gradients between devices are not simulated
    rows = dialogue_of(turns=4)
    model = build_model(VOCABULARY, family=family)
    with torch.inference_mode():
        expected = Scorer(model, share=False)(rows).sums
    weights = sum(weight.nbytes for weight in model.parameters())
    spread(model, {GPU: weights, CPU: weights // 3})
    places = [gpu.of(next(layer.parameters())) or CPU for layer in model.model.layers]
    assert places == sorted(places, key=str, reverse=True), "each device has consecutive layers"
    assert set(places) == {GPU, CPU}
    assert gpu.of(model.get_input_embeddings().weight) == gpu.of(model.get_output_embeddings().weight) == GPU
    scorer = Scorer(model, share=how != "plain", attention="blocks" if how == "blocks" else None)
    assert (scorer.flex_error, scorer.attention) == (None, "blocks" if how == "blocks" else "flex")
    assert (scorer.max_shared_length > 0) == (how != "plain")
    scorer._mixed = False
    with torch.inference_mode():
        found = scorer(rows).sums
    assert found.device == GPU
    assert float((found.cpu() - expected).abs().max() / expected.abs().max()) < 1e-5


def test_the_pipeline(tmp_path: Path, gpu: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    run = sweet.Run.create(tmp_path / "run")
    sweet.rollout(run, sweet.RolloutConfig(tasks="micro", num_tasks=6, samples=4, max_turns=6, device="cuda"))
    assert gpu.gpu_is_used
    sweet.evaluate(run)
    sweet.label(run)
    for variant in ("regression", "advantage"):
        sweet.train_critic(run, sweet.TrainCriticConfig(variant=variant, epochs=1, limit=4, device="cuda"))
    ranked = sweet.rank(run, sweet.RankConfig(candidates=3, fraction=0.05, device="cuda")).artifacts[0]
    with monkeypatch.context() as patch:  # two GPUs, each too small for a model of two million bytes
        patch.setattr(torch.cuda, "device_count", lambda: 2)
        patch.setattr(torch.cuda, "mem_get_info", lambda _number: (1_400_000, 2_000_000))
        again = sweet.rank(run, sweet.RankConfig(replies=ranked.id, device="cuda")).artifacts[0]
    rows = [sorted(read_jsonl(run.file(made), CandidateRow), key=lambda row: row.key) for made in (ranked, again)]
    one, two = ([candidate.advantage for row in of_one for candidate in row.candidates] for of_one in rows)
    assert two == pytest.approx(one, abs=1e-3)
    sweet.pair(run, sweet.PairConfig(from_=ranked.id))
    for lora in (None, 4):
        sweet.train_actor(run, sweet.TrainActorConfig(epochs=1, limit=4, device="cuda", lora=lora))
    few = {"tasks": "micro", "device": "cuda"}
    played = sweet.RolloutConfig(agent=str(run.path / "actor/actor-1"), num_tasks=2, max_turns=4, best_of=2, **few)
    sweet.rollout(run, played)
    # istar does all that grpo does, and trains a second model. Not all dialogues of this task are likely to solve it.
    online = sweet.TrainOnlineConfig(
        algorithm="istar", steps=1, tasks_per_step=1, group=8, max_turns=6, max_tokens=64, seed=8, **few
    )
    sweet.train_online(run, online)
