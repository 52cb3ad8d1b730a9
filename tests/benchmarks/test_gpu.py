"""`benchmarks.gpu`: every stage with tiny models on a CPU, its limits, what is resumed, and the page of its results."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parameters_to_vector

from benchmarks.gpu import carry, checkout, packed, sampling, served
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.learning import training_of
from benchmarks.gpu.machine import mfu
from benchmarks.gpu.models import RECOMPUTED, SIZES, CountingScorer, config_of, random_model
from benchmarks.gpu.packed import PackedScorer
from benchmarks.gpu.results import Result, Settings, read_progress, read_result
from benchmarks.gpu.runner import environment, run_stage
from benchmarks.gpu.stages import STAGES, Stage
from docs.tools.commands import put_between
from docs.tools.gpu import BEGIN, COLUMNS, END, PAGE, RESULTS, block, keep, read
from sweet.errors import InputError
from sweet.installation import DISTRIBUTION
from sweet.learn.logprobs import Scorer, span_logprobs
from sweet.learn.losses import losses
from sweet.learn.recompute import RECOMPUTE_THRESHOLD
from sweet.llm.pretrained import load_tokenizer
from sweet.llm.vllm import option_value
from tests.benchmarks.planted_gpu import is_alive
from tests.docs.pages import ROOT
from tests.llm.stand_in import EMBEDDED, install

Rows = dict[str, dict[str, Any]]


def planted(name: str, **arguments: str) -> Stage:
    return Stage(name, "", f"tests.benchmarks.planted_gpu:{name}", arguments)


def figures(result: Result) -> Rows:
    return {row.part: row.figures for row in result.rows if row.status == "done"}


def close_to_plain(rows: Rows, *parts: str, within: float = 1e-4) -> None:
    for part in parts:
        assert rows[part]["difference"] < within, part


def check_exact(rows: Rows) -> None:
    fp32, mixed, bf16 = (rows[f"llama {precision}"] for precision in ("fp32", "mixed", "bf16"))
    for name in ("whole", "cut"):
        assert fp32[f"{name}_logprob_difference"] < 1e-5 < fp32["spread"] / 100
        assert fp32[f"{name}_gradient_difference"] < 1e-4
        for one in (mixed, bf16):
            assert 1e-5 < one[f"{name}_logprob_difference"] < 2 * one["plain_logprob_difference"] + 1e-3
            assert one[f"{name}_gradient_difference"] < 2 * one["plain_gradient_difference"]
    assert fp32["exact"]
    assert (fp32["means_by"], fp32["gradients_by"]) == ("flex", "blocks")
    assert "CPU" in fp32["refused"]


def check_rank(rows: Rows) -> None:
    close_to_plain(rows, "tiny packed", "tiny blocks", "tiny flex", "tiny divided", within=2e-2)  # weights in bf16
    assert rows["tiny divided"]["computed"] == rows["tiny blocks"]["computed"]
    plain, packed, blocks = (rows[f"tiny {method}"] for method in ("plain", "packed", "blocks"))
    assert plain["tokens"] == packed["tokens"] == packed["computed"] == blocks["tokens"] > 2 * blocks["computed"]
    assert (plain["mfu"], plain["mfu_reason"]) == (None, "no peak of a CPU is known")
    assert packed["attention"].startswith("sdpa")


def check_train(rows: Rows, *, recomputed: bool) -> None:
    for work in ("actor", "critic"):
        methods = ["packed", "blocks", "flex", *(["flex kept"] if recomputed else [])]
        close_to_plain(rows, *(f"{work} {method}" for method in methods))
        assert rows[f"{work} plain"]["recomputed"] == recomputed
        assert rows[f"{work} flex"]["computed"] < rows[f"{work} plain"]["computed"]
    assert not rows.get("actor flex kept", {"recomputed": False})["recomputed"]
    if "actor trl" in rows:
        assert rows["actor trl"]["steps"] == rows["actor plain"]["steps"]
        close_to_plain(rows, "actor trl", within=1e-3)


def check_lora(rows: Rows) -> None:
    assert rows["tiny lora"]["trained"] < rows["tiny full"]["trained"] / 2


def check_zero(rows: Rows) -> None:
    if find_spec("deepspeed") is not None:
        close_to_plain(rows, "stage 0", "stage 3")


def check_engine(rows: Rows) -> None:
    assert rows["tiny"]["batch_per_s"] > 0
    assert rows["tiny"]["single_per_s"] > 0


def check_study(rows: Rows) -> None:
    assert 0 <= rows["zero-shot"]["success"] <= 1


CHECKS = {
    "machine": lambda rows: None,
    "exact": check_exact,
    "rank": check_rank,
    "train-135m": lambda rows: check_train(rows, recomputed=False),
    "train-1b": lambda rows: check_train(rows, recomputed=True),
    "lora": check_lora,
    "zero": check_zero,
    "engine": check_engine,
    "vllm": lambda rows: None,
    "served": lambda rows: None,
    "demo": lambda rows: None,
    "micro": check_study,
    "smollm2": check_study,
}

MISSING = {"peft", "trl", "datasets", "deepspeed", "vllm"}
"""Libraries whose parts are skipped where they are not installed."""


@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize("name", [name for name in STAGES if name != "train-4b"])  # with tiny models it is train-1b
def test_every_stage_runs_with_tiny_models(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tiny", "--out", str(tmp_path), "--stages", name]) == 0, capsys.readouterr().out
    [line] = capsys.readouterr().out.splitlines()
    result = Result.model_validate_json(line)
    assert result == read_result(tmp_path / f"{name}.json")
    assert (result.stage, result.tiny, result.machine["torch"]) == (name, True, importlib.metadata.version("torch"))
    for row in result.rows:
        assert row.status in ("done", "skipped")
        if row.status == "skipped":
            assert any(word in str(row.reason) for word in (*MISSING, "random model")), row.reason
    installed = {library for library in MISSING if find_spec(library)}
    assert result.status == ("skipped" if name in ("vllm", "served") and "vllm" not in installed else "done")
    CHECKS[name](figures(result))


@pytest.mark.usefixtures("forked_python")
def test_a_part_that_fails_has_a_reason_and_the_next_goes_on(tmp_path: Path) -> None:
    result = run_stage(planted("all_kinds"), Settings(out=tmp_path), 60)
    assert result.status == "failed"
    reasons = {row.part: (row.status, row.reason) for row in result.rows}
    assert reasons["lacks"] == ("skipped", "a library is not installed")
    assert reasons["wrong"] == ("failed", "ValueError: it is wrong")
    assert reasons["refused"] == ("failed", "It is refused. · try: another")
    assert reasons["full"] == ("out of memory", "CUDA out of memory")
    assert reasons["killed"][0] == "failed"
    assert str(reasons["killed"][1]).startswith("its process ended with status 137")
    assert figures(result) == {
        "one": {"seconds": 1.0},
        "two": {
            "seconds": 2.0,
            "against": "one",
            "speedup": 0.5,
            "difference": 2.0,
        },
    }


@pytest.mark.usefixtures("forked_python")
def test_a_stage_without_its_library_is_skipped_and_one_that_cannot_begin_has_failed(tmp_path: Path) -> None:
    settings = Settings(out=tmp_path)
    assert run_stage(planted("lacking"), settings, 60).status == "skipped"
    broken = run_stage(planted("broken"), settings, 60)
    assert (broken.status, broken.rows) == ("failed", [])
    assert "RuntimeError: no parts" in str(broken.reason)


@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize("resumes", ["yes", "no"])
def test_a_stage_that_runs_out_of_time_keeps_what_it_has_and_goes_on(tmp_path: Path, resumes: str) -> None:
    settings, stage = Settings(out=tmp_path), planted("slow", resumes=resumes)
    first = run_stage(stage, settings, 12)
    assert first.status == "partial"
    assert first.reason == "the limit of 12 s was reached; not reached: slow, last"
    assert [row.part for row in first.rows] == ["quick"]
    assert not is_alive(settings.work / "waits")
    if resumes == "no":  # it had the whole limit for itself, and so would have in every call
        second = run_stage(stage, settings, 12)
        assert [(row.part, row.reason) for row in second.rows[1:]] == [("slow", "it did not finish in 12 s")]
        assert second.status == "failed"
    else:
        assert run_stage(stage, settings, 12).rows == first.rows
    (tmp_path / "ready").touch()
    last = run_stage(stage, settings, 60)
    assert [row.part for row in last.rows] == ["quick", "slow", "last"]
    assert last.status == ("done" if resumes == "yes" else "failed")


def test_a_line_that_was_not_finished_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"machine": {}, "names": ["a", "b"]}\n{"begun": "a", "resumes": false}\n{"row": {"par')
    found = read_progress(path)
    assert (found.missing, found.begun) == (["a", "b"], "a")


@pytest.mark.usefixtures("forked_python")
def test_results_are_not_measured_again_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--tiny", "--out", str(tmp_path), "--stages", "vllm"]
    assert main(given) == 0
    first = (tmp_path / "vllm.json").stat().st_mtime_ns
    assert main(given) == 0
    assert (tmp_path / "vllm.json").stat().st_mtime_ns == first
    assert "--again" in capsys.readouterr().err
    assert main([*given, "--again"]) == 0
    assert (tmp_path / "vllm.json").stat().st_mtime_ns != first
    result = read_result(tmp_path / "vllm.json")
    (tmp_path / "vllm.json").write_text(result.model_copy(update={"tiny": False}).model_dump_json())
    assert main(given) == 2
    assert "name another folder" in capsys.readouterr().err
    assert main([*given, "--within", "0.001", "--again"]) == 3


def test_wrong_calls_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stages", "rank,trian", "--out", str(tmp_path)]) == 2
    assert "There is no stage 'trian'." in capsys.readouterr().err
    assert main(["--model", str(tmp_path), "--out", str(tmp_path)]) == 2
    if not torch.cuda.is_available():
        assert main(["--out", str(tmp_path)]) == 2
        assert "--tiny" in capsys.readouterr().err
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(STAGES)


@pytest.mark.parametrize(("name", "millions"), [("135m", 135), ("1b", 1236), ("4b", 4022)])
def test_sizes_have_the_parameters_that_they_are_named_after(name: str, millions: int) -> None:
    from transformers import LlamaForCausalLM

    make: Any = LlamaForCausalLM
    with torch.device("meta"):
        model = make(config_of(SIZES[name]))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert round(parameters / 1e6) == millions
    assert (name in RECOMPUTED) == (parameters >= RECOMPUTE_THRESHOLD)


def test_operations_are_two_for_each_weight_and_token_and_those_of_visible_positions() -> None:
    made = training_of("135m", "actor", tiny=True)
    model = random_model(made.size, torch.float32)
    rows = made.pool[:4]
    config, linear = model.config, torch.nn.Linear
    layers = [one for one in model.base_model.layers.modules() if isinstance(one, linear)]
    weights = sum(one.weight.numel() for one in layers)
    supervised = sum(span.stop - span.start for row in rows for span in row.spans)
    output = model.get_output_embeddings().weight.numel()

    plain = CountingScorer(model, share=False)
    with torch.no_grad():
        plain(rows)
    tokens = sum(len(row.ids) for row in rows)
    positions = sum(len(row.ids) * (len(row.ids) + 1) // 2 for row in rows)
    attention = 4 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * positions
    assert plain.operations == 2 * weights * tokens + 2 * output * supervised + attention

    once = plain.operations
    plain(rows)
    assert plain.operations == 4 * once, "three times as many with gradients"
    tree = CountingScorer(model, attention="blocks")
    with torch.no_grad():
        tree(rows)
    assert tree.operations < once / 1.5, "what is shared is computed once"
    plain.operations, plain.frozen = 0.0, True
    plain(rows)
    assert plain.operations == 2 * (once - attention) + 3 * attention


def test_a_device_without_a_known_peak_has_no_mfu_and_a_known_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mfu(1e12, 1.0)["mfu"] is None
    monkeypatch.setattr("benchmarks.gpu.machine.peak_flops", lambda _device: 4e12)
    assert mfu(1e12, 0.5) == {"mfu": 0.5}


@pytest.mark.parametrize("recompute", [False, True])
def test_packed_sequences_have_the_losses_and_gradients_of_plain_ones(recompute: bool) -> None:
    made = training_of("135m", "critic", tiny=True)
    found = []
    for as_one_row in (False, True):
        model = random_model(made.size, torch.float32, recompute=recompute)
        scorer = PackedScorer(model) if as_one_row else Scorer(model, share=False)
        with torch.no_grad():
            reference = [0.9 * sums for sums, _ in span_logprobs(scorer, made.pool)]
        result = losses(scorer, made.objective, made.pool, made.examples, reference).loss.sum()
        torch.autograd.backward([result])
        gradient = parameters_to_vector([p.grad for p in model.parameters() if p.grad is not None])
        found.append((result.detach(), gradient))
    (loss, gradient), (packed_loss, packed_gradient) = found
    assert float(packed_loss) == pytest.approx(float(loss), abs=1e-5)
    assert float((gradient - packed_gradient).norm() / gradient.norm()) < 1e-4


def test_a_checkout_that_is_not_installed_has_its_kinds_of_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checkout.is_installed()
    assert "PYTHONPATH" not in environment(Settings(out=tmp_path)).keys() - os.environ.keys()
    monkeypatch.setattr(checkout, "DISTRIBUTION", "sweet-elsewhere")
    assert not checkout.is_installed()
    first, root, *_ = environment(Settings(out=tmp_path))["PYTHONPATH"].split(os.pathsep)
    assert Path(root) == ROOT
    [found] = importlib.metadata.distributions(path=[first])
    assert found.name == "sweet-elsewhere"
    expected = importlib.metadata.distribution(DISTRIBUTION).entry_points.select(group="sweet.tasks")
    points = found.entry_points.select(group="sweet.tasks")
    assert {point.name: point.value for point in points} == {point.name: point.value for point in expected}
    kinds = {"CodeKind", "DeskKind", "HtmlKind", "OrdersKind", "Tau2Kind", "VerifiersKind"}
    assert {point.load().__name__ for point in points} == kinds


def test_vllm_is_started_with_random_weights_of_the_size_and_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = install(tmp_path, monkeypatch)
    [part] = sampling.vllm(Settings(out=tmp_path, tiny=True))
    found = part.measure()
    (start,) = stand_in.starts()
    folder = Path(start["args"][1])
    assert option_value(start["args"], "--load-format") == "dummy"
    config = json.loads((folder / "config.json").read_text())
    assert (config["architectures"], config["hidden_size"]) == (["LlamaForCausalLM"], SIZES["tiny"].width)
    assert load_tokenizer(str(folder)).chat_template
    assert (found["requests"], found["version"]) == (sampling.TINY.requests, "9.8.7")
    assert found["batch_per_s"] > 0
    assert found["single_per_s"] > 0
    assert found["ratio"] == pytest.approx(found["batch_per_s"] / found["single_per_s"])
    assert len(stand_in.asked()) == 2 + sampling.TINY.requests + sampling.TINY.single
    assert stand_in.all_gone()


@pytest.mark.usefixtures("forked_python")
def test_a_vllm_is_asked_by_openai_by_an_agent_with_tools_and_through_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in that computes the models, in fp32."""
    install(tmp_path, monkeypatch).add_program("vllm", EMBEDDED.format(python=sys.executable))
    parts = {part.name: part.measure() for part in served.parts(Settings(out=tmp_path, tiny=True))}
    client, tools, gateway = parts["openai client"], parts["tools"], parts["gateway"]
    assert client["difference"] < 1e-4 < client["plain_difference"]
    assert client["exact"]
    assert client["tokens"] > 2 * 4 * served.REPLIES
    assert (tools["episodes"], gateway["episodes"], tools["failed"], gateway["failed"]) == (2, 2, 0, 0)
    assert tools["tool_calls"] > tools["tool_errors"]
    assert (tools["with_ids"], gateway["with_ids"], gateway["with_logprobs"]) == (1, 1, 1)
    assert 0 <= tools["success"] <= 1
    for part in ("client", "tools/run", "gateway/run"):
        assert [*(tmp_path / "work/served" / part).rglob("*vllm-agent.log")], part


@pytest.mark.skipif(find_spec("torch.nn.attention.varlen") is None, reason="this torch has no such kernel")
def test_torch_accepts_the_call_of_its_kernel_for_packed_sequences() -> None:
    """Without a GPU only its signature and shapes can be tested."""
    with FakeTensorMode():
        query, key = (torch.empty(10, heads, 64, dtype=torch.bfloat16, device="cuda") for heads in (8, 2))
        result = packed._torch_varlen(query, key, key, [4, 6], 0.125)
    assert (result.shape, result.dtype, result.device.type) == (query.shape, torch.bfloat16, "cuda")


def test_a_model_is_carried_in_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, parts, arrived = tmp_path / "model", tmp_path / "parts", tmp_path / "arrived"
    model.mkdir()
    content = {"config.json": b"{}", "empty": b"", "model.safetensors": bytes(range(256)) * 10_000}
    for name, data in content.items():
        (model / name).write_bytes(data)
    assert carry.main(["split", str(model), str(parts), "--mib", "1"]) == 0
    assert sorted(path.name for path in parts.iterdir()) == ["part-000", "part-001", "part-002", "parts.json"]
    assert max(path.stat().st_size for path in parts.iterdir()) == 1 << 20
    assert carry.main(["join", str(parts), str(arrived)]) == 0
    assert {path.name: path.read_bytes() for path in arrived.iterdir()} == content
    assert carry.main(["split", str(model), str(parts)]) == 2
    whole = (parts / "part-001").read_bytes()
    (parts / "part-001").write_bytes(whole[:-1] + b"x")
    assert carry.main(["join", str(parts), str(arrived)]) == 2
    assert "model.safetensors is not what it was" in capsys.readouterr().err
    (parts / "part-001").unlink()
    assert carry.main(["join", str(parts), str(arrived)]) == 2
    assert "Missing: part-001." in capsys.readouterr().err
    (parts / "part-001").write_bytes(whole)
    index = json.loads((parts / "parts.json").read_text())
    index["files"][0]["name"] = "../outside"
    (parts / "parts.json").write_text(json.dumps(index))
    assert carry.main(["join", str(parts), str(arrived)]) == 2
    assert not (tmp_path / "outside").exists()


def test_the_page_is_current() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert page == put_between(page, BEGIN, END, block(read(ROOT))), "run: python -m docs.tools.gpu"
    assert COLUMNS.keys() == STAGES.keys()


def test_the_page_has_the_results_of_a_gpu_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / RESULTS
    folder.mkdir(parents=True)
    assert "Nothing of this has run on a GPU yet." in block(read(tmp_path))
    rows = [
        {
            "part": "1b flex",
            "status": "done",
            "figures": {"seconds": 2, "mfu": 0.456, "refused": "it | is", "exact": False},
        },
        {"part": "4b flex", "status": "out of memory", "reason": "full"},
    ]
    fields = {"stage": "rank", "status": "done", "machine": {"device": "GPU X", "torch": "2.11"}, "rows": rows}
    path = folder / "rank.json"
    path.write_text(json.dumps(fields))
    shown = block(read(tmp_path))
    assert "Nothing" not in shown
    assert "| 1b flex | 2.00 |  |  | 45.6 % |  |  |  | not exact; it \\| is |" in shown
    assert "out of memory: full" in shown
    assert "GPU X; torch 2.11." in shown
    (waiting,) = (line for line in shown.splitlines() if line.startswith("Not yet run: "))
    assert waiting.count("`") == 2 * (len(STAGES) - 1)
    for change in ({"tiny": True}, {"machine": {"device": "cpu"}}, {"stage": "ranks"}, {"stage": 1}):
        path.write_text(json.dumps(fields | change))
        with pytest.raises(InputError):
            read(tmp_path)
        with pytest.raises(InputError):
            keep(path, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    lines = tmp_path / "lines"
    later = fields | {"stage": "exact", "status": "failed", "reason": "it is wrong"}
    lines.write_text("".join(f"{line}\n" for line in ("rank: begun", json.dumps(fields), json.dumps(later))))
    assert keep(lines, tmp_path) == ["rank", "exact"]
    assert read(tmp_path)["exact"].reason == "it is wrong"
    assert read(tmp_path)["rank"].status == "done"
