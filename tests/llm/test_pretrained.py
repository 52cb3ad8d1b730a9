"""Loading models: valid ones load, missing or broken ones are reported in one error."""

from __future__ import annotations

import asyncio
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import UsageError
from sweet.hf import resolve_device
from sweet.llm import pretrained
from sweet.llm.base import Role
from sweet.llm.connect import open_client
from sweet.llm.pretrained import check_vocabulary, config_path, load_model, load_tokenizer, meta_model
from sweet.llm.template import ChatTemplate
from sweet.tasks.base import Message
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer
from tests.packages import hide_package
from tests.simulated_gpu import GPU, simulated_gpu


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    path = tmp_path / "model"
    tokenizer.save_pretrained(path)
    build_model(len(tokenizer)).save_pretrained(path)
    return path


def test_a_directory_loads(checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tokenizer = load_tokenizer(str(checkpoint))
    model = load_model(str(checkpoint), "cpu", tokenizer=tokenizer)
    assert not model.training
    assert next(model.parameters()).dtype == torch.float32
    assert load_model(str(checkpoint), "cpu", "bfloat16").dtype == torch.bfloat16
    assert capfd.readouterr() == ("", ""), "loading prints nothing"


def test_tiny_models_are_computed_with_one_thread(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the process has loaded a model that is not tiny; `OMP_NUM_THREADS` decides where it is set."""
    threads = 3

    def choose(count: int) -> None:
        nonlocal threads
        threads = count

    monkeypatch.setattr(torch, "set_num_threads", choose)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(pretrained, "_largest", 0)
    monkeypatch.setattr(pretrained, "_usual_threads", lambda: 3)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    load_model(str(checkpoint), "cpu")
    assert threads == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    load_model(str(checkpoint), "cpu")
    assert threads == 1
    threads = 3  # as in a thread that has computed before
    load_model(str(checkpoint), "cpu")
    assert threads == 1
    monkeypatch.setattr(pretrained, "TINY_PARAMETERS", 0)
    load_model(str(checkpoint), "cpu")
    assert threads == 3
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["./nothing/here", "/nothing/here", "nobody/nothing", "a b", "a/b/c", "-", ""])
def test_an_unknown_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for load in (load_tokenizer, load_model):
        with pytest.raises(UsageError, match=r"no model|no such directory|not a model") as error:
            load(name)
        assert error.value.fix


@pytest.mark.parametrize(
    ("name", "meant"), [("mikro", "micro"), ("org/modle", "org/model"), ("{}/modle", "{}/model"), ("./mode", "")]
)
def test_a_similar_model_is_suggested(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "hub" / "models--org--model").mkdir(parents=True)
    with pytest.raises(UsageError) as error:
        load_model(name.format(tmp_path))
    suggested = f"Did you mean {meant.format(tmp_path)}?"
    assert (suggested in error.value.what) if meant else ("Did you mean" not in error.value.what)


def test_a_directory_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "nothing-known"}')
    for load in (load_tokenizer, load_model):
        with pytest.raises(UsageError, match="cannot be loaded"):
            load(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_model(str(tmp_path))
    with pytest.raises(UsageError, match="is a file"):
        load_model(str(tmp_path / "config.json"))
    quantized = tmp_path / "a model.gguf"
    quantized.touch()
    with pytest.raises(UsageError, match="is a file") as error:
        load_tokenizer(str(quantized))
    assert f"python examples/convert_model.py '{quantized}' FOLDER" in (error.value.fix or "")


def test_broken_weights(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_model(str(checkpoint))
    weights.unlink()
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_model(str(checkpoint))


def test_missing_tensors_are_not_initialised_randomly(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    config["num_hidden_layers"] = 3
    config["layer_types"] = ["full_attention"] * 3
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"incomplete.*layers\.2"):
        load_model(str(checkpoint))


def test_no_chat_template(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(None)
    tokenizer.save_pretrained(tmp_path)
    build_model(len(tokenizer)).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"no chat template.*tokenizer_config\.json"):
        load_tokenizer(str(tmp_path))


def test_a_tokenizer_of_another_model() -> None:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    check_vocabulary(build_model(len(tokenizer) + 8), tokenizer, "padded")
    with pytest.raises(UsageError, match="do not match"):
        check_vocabulary(build_model(len(tokenizer) - 1), tokenizer, "other")


def test_devices_and_types(checkpoint: Path) -> None:
    assert resolve_device("cpu").type == "cpu"
    if not torch.cuda.is_available():
        assert resolve_device("auto").type == "cpu"
        with pytest.raises(UsageError, match="CUDA"):
            resolve_device("cuda")


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_the_template_renders_all_messages(name: str) -> None:
    template = ChatTemplate(build_tokenizer(TEMPLATES[name]))
    messages = [Message(role="system", content="You help."), Message(role="user", content="What is it?")]
    text = template.text(messages)
    assert "You help." in text
    assert "What is it?" in text
    assert template.tokenizer.decode(template.ids(messages)) == text


def test_a_template_that_refuses_messages() -> None:
    refusing: Any = build_tokenizer("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ValueError, match="roles must alternate"):
        ChatTemplate(refusing).ids([Message(role="user", content="x")])


def test_a_template_that_omits_system_messages_is_used_as_is() -> None:
    silent: Any = build_tokenizer("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}")
    messages = [Message(role="system", content="You help."), Message(role="user", content="What is it?")]
    assert ChatTemplate(silent).text(messages) == "What is it?"


@pytest.fixture
def adapted(checkpoint: Path, tmp_path: Path) -> Path:
    """A LoRA adapter of the checkpoint, with random matrices."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        peft.get_peft_model(load_model(str(checkpoint), "cpu"), config).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_an_adapter_is_merged_into_its_base(adapted: Path, checkpoint: Path) -> None:
    from safetensors.torch import load_file

    tokenizer = load_tokenizer(str(adapted))
    model = load_model(str(adapted), "cpu", tokenizer=tokenizer)
    base = load_model(str(checkpoint), "cpu")
    assert type(model) is type(base)
    assert not model.training
    written = load_file(adapted / "adapter_model.safetensors")
    layer = "model.layers.0.self_attn.q_proj"
    down, up = (written[f"base_model.model.{layer}.lora_{side}.weight"] for side in "AB")
    config = json.loads((adapted / "adapter_config.json").read_text())
    expected = base.get_submodule(layer).weight + config["lora_alpha"] / config["r"] * up @ down
    assert torch.allclose(model.get_submodule(layer).weight, expected, atol=1e-6)
    assert not torch.allclose(expected, base.get_submodule(layer).weight, atol=1e-3)
    assert config_path(str(adapted)) == str(checkpoint)

    tokenizer.chat_template = "other"
    tokenizer.save_pretrained(adapted)
    assert load_tokenizer(str(adapted)).chat_template == "other", "the adapter's own template is used if there is one"


def test_an_adapter_is_loaded_where_the_model_is(adapted: Path) -> None:
    with simulated_gpu() as devices:
        load_model(str(adapted), "cpu")
        assert not devices.gpu_is_used
        assert load_model(str(adapted), "cuda").device == GPU


@pytest.mark.parametrize(
    ("free", "used"),
    [
        ([20, 20, 20], [0]),  # the first is large enough
        ([8, 8, 8], [0, 1, 2]),
        ([5, 2, 7], [2, 0]),  # a server holds the second
        ([5, 2, 5], None),
    ],
)
def test_a_model_that_is_too_large_for_a_gpu_is_divided_among_those_that_are_free(
    checkpoint: Path, free: list[int], used: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenth = sum(weight.nbytes for weight in load_model(str(checkpoint), "cpu", "bfloat16").parameters()) / 10
    placed: list[dict[torch.device, int]] = []

    def spread(model: Any, room: dict[torch.device, int]) -> Any:
        placed.append(room)
        return model

    monkeypatch.setattr("sweet.llm.spreading.spread", spread)
    with simulated_gpu(), monkeypatch.context() as simulated:  # undone before the simulation is
        simulated.setattr(torch.cuda, "device_count", lambda: len(free))
        simulated.setattr(torch.cuda, "mem_get_info", lambda n: (int(free[n] * tenth), int(20 * tenth)))
        if used is None:
            with pytest.raises(UsageError, match="are free on 2 of 3 GPUs"):
                load_model(str(checkpoint), "cuda", spreads=True)
            return
        model = load_model(str(checkpoint), "cuda", spreads=True)
        assert (model.device == GPU) == (used == [0])
    assert [device.index for room in placed for device in room] == (used if used != [0] else [])


def test_an_adapter_that_lacks_matrices(adapted: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = adapted / "adapter_model.safetensors"
    save_file(dict(list(load_file(path).items())[1:]), path)
    with pytest.raises(UsageError, match="missing adapter keys"):
        load_model(str(adapted), "cpu")


def test_an_adapter_without_peft(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_package("peft", monkeypatch)
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(checkpoint)}))
    with pytest.raises(UsageError, match="without peft") as error:
        load_model(str(folder), "cpu")
    assert "pip install" in str(error.value.fix)


def test_a_directory_without_a_tokenizer_is_named_with_what_to_do(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match="cannot be loaded") as error:
        load_tokenizer(str(checkpoint))
    assert str(error.value.where) == str(checkpoint)
    assert "tokenizer_config.json" in str(error.value.fix)


def test_a_message_of_several_lines_is_whole(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    (checkpoint / "vocab.json").write_text("{}")
    with pytest.raises(UsageError, match="cannot be loaded") as error:
        load_tokenizer(str(checkpoint))
    assert " ".join(str(error.value.__cause__).split()) in error.value.what


@pytest.mark.parametrize(("role", "flag"), [("agent", "--agent"), ("sim", "--sim"), ("judge", "--judge-model")])
@pytest.mark.parametrize("model", ["gpt-4o", "nowhere/at/all"])
def test_a_model_that_is_not_on_this_machine_may_be_at_a_server(
    role: Role, flag: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    async def opened() -> None:
        async with open_client(model, role=role):
            pass

    with pytest.raises(UsageError, match="There is no model") as error:
        asyncio.run(opened())
    assert error.value.where == f"{flag} {model}"
    assert str(error.value.fix).startswith(f"--{role}-url URL, if a server serves it; else ")


@pytest.mark.parametrize(
    ("model_type", "version", "refused"),
    [
        ("gemma2", "5.20.2", True),
        ("vaultgemma", "5.17.0", True),
        ("gemma2", "5.21.0", False),
        ("llama", "5.17.0", False),
    ],
)
def test_a_family_that_the_installed_transformers_computes_wrongly_is_refused(
    model_type: str, version: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its default attention leaves the soft cap out, with nothing more than a difference in the numbers."""
    from transformers import AutoConfig

    sizes = {"vocab_size": 16, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 4}
    AutoConfig.for_model(model_type, **sizes, num_attention_heads=2, num_key_value_heads=2).save_pretrained(tmp_path)
    monkeypatch.setattr("sweet.llm.pretrained.installed_version", {"transformers": version}.get)
    if not refused:
        assert meta_model(str(tmp_path)).device.type == "meta"
        return
    with pytest.raises(
        UsageError, match=f"transformers {version} computes {model_type} without the soft cap"
    ) as caught:
        meta_model(str(tmp_path))
    assert "transformers>=5.21" in str(caught.value.fix)
