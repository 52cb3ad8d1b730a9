"""Models from strangers: what would take any time or memory is refused with the reason; good ones render the same."""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jinja2.exceptions import TemplateError
from transformers.utils import chat_template_utils

from sweet.errors import UsageError
from sweet.llm import limits, pretrained, untrusted
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import load_config, load_model, load_tokenizer
from sweet.llm.template import ChatTemplate
from sweet.sandbox.reader import Reader
from sweet.tasks.base import Message
from tests.learn.builders import TEMPLATES

SHORT = "import sys; sys.path += sys.argv[1:]; from sweet.llm import untrusted as u; u.CPU_SECONDS = 1.5; u.serve()"
CHAT = [Message(role="system", content="Be brief."), Message(role="user", content="2 + 2?")]

Edit = Callable[[Path], object]


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    process = Reader(SHORT, limits._FOLDERS, 1.5, limits._LONGEST)
    monkeypatch.setattr(limits, "_process", process)
    monkeypatch.setattr(limits, "cache_folder", lambda name: tmp_path / "cache" / name)
    yield
    process.close()


def edited(name: str, *keys: str, **values: Any) -> Edit:
    """Return the edit that sets values in a JSON file, below some keys."""

    def edit(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        below = content
        for key in keys:
            below = below.setdefault(key, {})
        below.update(values)
        (folder / name).write_text(json.dumps(content))

    return edit


def text(name: str, content: str) -> Edit:
    return lambda folder: (folder / name).write_text(content)


def header(data: bytes, rest: bytes = b"") -> Edit:
    return lambda folder: (folder / "model.safetensors").write_bytes(data + rest)


def nested(depth: int) -> Any:
    return {"text_config": nested(depth - 1)} if depth else {}


def with_header(tensors: Any, rest: bytes) -> Edit:
    written = json.dumps(tensors).encode()
    return header(struct.pack("<Q", len(written)) + written, rest)


def tensor(begin: int, end: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end]}


REPLACE = {"type": "Replace", "pattern": {"String": "zq"}, "content": "zqzq" * 100}
BOMB = {"type": "Sequence", "normalizers": [REPLACE] * 12}
PADDING = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
HARD = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}

CONFIGS: dict[str, tuple[Edit, str]] = {
    "layers": (edited("config.json", num_hidden_layers=10**6), "num_hidden_layers is 1000000, and the weights have"),
    "nested layers": (edited("config.json", text_config={"n_layer": 10**6}), "n_layer is 1000000, and"),
    "labels": (edited("config.json", num_labels=10**9), "num_labels is 1000000000,"),
    "experts": (edited("config.json", num_local_experts=10**7), "num_local_experts is 10000000,"),
    "number": (edited("config.json", max_position_embeddings=10**400), "max_position_embeddings is 1000"),
    "digits": (text("config.json", '{"vocab_size": 1' + "0" * 10**6 + "}"), "not JSON"),
    "nested": (edited("config.json", **nested(100)), "nested more than 32 deep"),
    "deep": (text("generation_config.json", '{"a":' * 10**5), "not JSON"),
    "long": (text("config.json", '{"a": [' + "0," * 3_000_000 + "0]}"), "has at most 4 MiB"),
    "index": (text("model.safetensors.index.json", '{"weight_map": {"a": "../../weights"}}'), "outside of the folder"),
    "absolute": (text("model.safetensors.index.json", '{"weight_map": {"a": "/dev/zero"}}'), "outside of the folder"),
    "header": (header(struct.pack("<Q", 1 << 60), b"{}"), "header of more than 32 MiB"),
    "offsets": (with_header({"a": tensor(0, 1 << 40)}, b"1234"), "weights are damaged"),
    "overlap": (with_header({"a": tensor(0, 8), "b": tensor(4, 12)}, b"123456789012"), "weights are damaged"),
    "template": (text("chat_template.jinja", "x" * (2 << 20)), "has at most 1 MiB"),
    "tokens": (text("added_tokens.json", json.dumps({f"t{n}": n for n in range(400_000)})), "has at most 4 MiB"),
}
TOKENIZERS: dict[str, tuple[Edit, str]] = {
    "normaliser": (edited("tokenizer.json", normalizer=BOMB), "it makes a text up to .* times as long"),
    "decoder": (edited("tokenizer.json", decoder={"type": "Sequence", "decoders": [REPLACE] * 12}), "times as long"),
    "prefix": (
        edited("tokenizer.json", normalizer={"type": "Prepend", "prepend": "x" * 10**7}),
        "tokens of|takes more",
    ),
    "padding": (edited("tokenizer.json", padding=PADDING), "memory|ends the process"),
    "pattern": (edited("tokenizer.json", pre_tokenizer=HARD), "takes more than|ends the process"),
    "added": (edited("tokenizer.json", added_tokens=[{}] * 70_000), "it adds 70,000 tokens"),
    "depth": (edited("tokenizer.json", normalizer=json.loads('{"a":' * 500 + "1" + "}" * 500)), "Recursion|recursion"),
}
TEMPLATE_BOMBS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "doubling": "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "product": "{{ 'x' * 10 ** 11 }}",
    "recursion": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "range": "{{ range(10 ** 9) | list }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "reply": "{{ 'x' * 30000000 }}",
    "only later": "{{ messages[0].content }}{% if messages | length > 2 %}{{ 'x' * 10 ** 11 }}{% endif %}",
}


@pytest.fixture
def model(checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "model"))


def refused(load: Callable[[str], object], model: Path, why: str) -> None:
    """Check that a model is refused soon, and that the error says what, where and what to do."""
    began = time.process_time()
    with pytest.raises(UsageError, match=why) as error:
        load(str(model))
    assert time.process_time() - began < 2
    assert str(model) in str(error.value.where)
    assert error.value.fix


@pytest.mark.parametrize("case", CONFIGS)
def test_files_that_no_model_has_are_refused_before_they_are_loaded(model: Path, case: str) -> None:
    edit, why = CONFIGS[case]
    edit(model)
    refused(load_config, model, why)
    refused(load_tokenizer, model, why)


@pytest.mark.parametrize("case", TOKENIZERS)
def test_a_tokenizer_is_tried_with_limits(model: Path, case: str) -> None:
    edit, why = TOKENIZERS[case]
    edit(model)
    refused(load_tokenizer, model, why)


@pytest.mark.parametrize("case", TEMPLATE_BOMBS)
def test_a_template_is_rendered_with_limits(model: Path, case: str) -> None:
    text("chat_template.jinja", TEMPLATE_BOMBS[case])(model)
    said = [*CHAT, Message(role="assistant", content="4"), CHAT[1]]
    refused(lambda name: ChatTemplate(load_tokenizer(name)).text(said), model, "The chat template cannot be used: ")


@pytest.mark.parametrize("values", [{"hidden_size": 1 << 20}, {"vocab_size": 1 << 30}, {"intermediate_size": 1 << 32}])
def test_a_model_that_is_larger_than_its_weights_is_not_allocated(model: Path, values: dict[str, int]) -> None:
    edited("config.json", **values)(model)
    refused(load_model, model, "describes [0-9,]+ parameters, and the weights have")


def test_a_model_that_does_not_fit_the_memory_is_not_allocated(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "free_memory", lambda: 0)
    refused(load_model, model, "The model needs .* of memory")


@pytest.mark.parametrize("values", [{"r": 10**6}, {"rank_pattern": {"a": 10**6}}, {"layers_to_transform": [10**30]}])
def test_an_adapter_of_a_rank_that_none_has_is_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    written = {"peft_type": "LORA", "base_model_name_or_path": "micro", "r": 8, **values}
    (tmp_path / "adapter_config.json").write_text(json.dumps(written))
    with pytest.raises(UsageError, match=r"rank_pattern|\br\b|layers_to_transform"):
        find_adapter(str(tmp_path))


MORE = {
    "loop controls": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}",
    "namespace": "{% set n = namespace(a=1, b='é') %}{% set n.a = n.a + 1 %}{{ n.a }}{{ n.b }}{{ dict(a=1).a }}",
    "json": "{{ messages | tojson(indent=2) }}{{ eos_token }}{{ add_generation_prompt }}{{ tools is none }}",
    "refusal": "{{ raise_exception('no ' ~ messages[0].role) }}",
    "underscore": "{% set n = namespace(_a=1) %}",
}


@pytest.mark.parametrize("template", [*TEMPLATES.values(), *MORE.values()], ids=[*TEMPLATES, *MORE])
def test_a_good_template_is_rendered_as_the_library_does(template: str) -> None:
    data = {"messages": [{"role": "user", "content": "<é> \ud83d\ude00"}], "add_generation_prompt": True}
    data |= {"eos_token": "</s>", "bos_token": "<s>", "tools": None}
    try:
        expected = {"text": chat_template_utils._cached_compile_jinja_template(template).render(**data)}
    except TemplateError as error:
        expected = {"refused": str(error)}
    found = untrusted.render(template, data)[0]
    assert found.keys() == expected.keys()
    assert found == expected or "underscore" in str(expected)


def test_a_good_tokenizer_is_tried_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited("tokenizer.json", version="1.0", normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"})(
        model
    )
    load_tokenizer(str(model))
    monkeypatch.setattr(limits, "_process", None)
    assert load_tokenizer(str(model)) is not None
