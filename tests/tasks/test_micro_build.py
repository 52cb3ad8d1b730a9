"""The packaged agent and the protocol that builds it: a tiny build runs, loads and samples; text and mask are exact."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from docs.tools.micro_agent import ASSISTANT, END, USER, AgentRecipe, BuildResult, _dialogues, build_agent
from sweet.llm.pretrained import model_path
from sweet.runs import trust
from sweet.study.settings import GENERATED
from sweet.tasks.base import Message
from sweet.tasks.packaged import PACKAGED

TINY = AgentRecipe(
    dialogues=60, vocabulary=320, width=16, layers=1, heads=2, feed_forward=32, batch_tokens=1024, threads=1
)
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "I need the fare of a taxi ride. There is tax."},
    {"role": "assistant", "content": "How high is the tax?"},
    {"role": "user", "content": "The tax is 25 percent."},
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildResult, float]:
    out = tmp_path_factory.mktemp("agent")
    began = time.monotonic()
    result = build_agent(out, config=TINY)
    return out, result, time.monotonic() - began


def load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    return tokenizer, model.eval()


def speak(folder: Path) -> tuple[Any, list[int]]:
    import torch

    tokenizer, model = load(folder)
    prompt = tokenizer.apply_chat_template(TALK, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ids = model.generate(**prompt, max_new_tokens=64, do_sample=True, temperature=1.0)
    return tokenizer, ids[0][prompt["input_ids"].shape[1] :].tolist()


def test_a_tiny_protocol_builds_an_agent_that_samples(tiny: tuple[Path, BuildResult, float]) -> None:
    folder, result, seconds = tiny
    assert seconds < 60
    assert result.steps > 1
    assert result.tokens > 1000
    _, ids = speak(folder)
    assert ids


def test_the_same_protocol_builds_the_same_agent(tiny: tuple[Path, BuildResult, float], tmp_path: Path) -> None:
    folder, result, _ = tiny
    assert build_agent(tmp_path, config=TINY) == result
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("packaged", [False, True])
def test_the_template_renders_turns_and_omits_the_system(tiny: tuple[Path, BuildResult, float], packaged: bool) -> None:
    tokenizer, model = load(PACKAGED["micro"] if packaged else tiny[0])
    text = tokenizer.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    turns = [f"{USER if m['role'] == 'user' else ASSISTANT}{m['content']}{END}" for m in TALK[1:]]
    assert text == "".join(turns) + ASSISTANT
    assert tokenizer.eos_token == END
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


@pytest.mark.parametrize("text", ["déjà vu 12345\t(x)", "\n\n  def f(x):\n", "", "The rate is 8. 中文 🙂?"])
def test_any_text_survives_the_tokenizer(text: str) -> None:
    tokenizer, _ = load(PACKAGED["micro"])
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_every_number_of_the_family_is_one_token() -> None:
    tokenizer, _ = load(PACKAGED["micro"])
    ids = tokenizer([f"The rate is {n}." for n in range(100)], add_special_tokens=False)["input_ids"]
    assert {len(row) for row in ids} == {len(ids[0])}


def test_the_packaged_agent_is_small_and_asks() -> None:
    assert sum(file.stat().st_size for file in PACKAGED["micro"].iterdir()) < 12_000_000
    tokenizer, ids = speak(PACKAGED["micro"])
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True)


def test_loss_counts_replies_with_their_end_and_never_the_request(tiny: tuple[Path, BuildResult, float]) -> None:
    from docs.tools.micro_agent import _encode

    tokenizer, _ = load(tiny[0])
    talk = [*TALK, {"role": "assistant", "content": "I WANT TO ANSWER:\nx + 8"}]
    [example] = _encode(tokenizer, [talk], AgentRecipe(human_weight=0.25, value_weight=4.0))
    rendered = tokenizer.apply_chat_template(talk, tokenize=True, return_dict=True)["input_ids"]
    assert example.ids == rendered

    def weighed(weight: float) -> str:
        kept = [token for token, w in zip(example.ids, example.weights, strict=True) if w == weight]
        return str(tokenizer.decode(kept))

    assert weighed(1.0) == f"How high is the tax?{END}I WANT TO ANSWER:\nx + {END}"
    assert weighed(4.0) == "8"
    assert weighed(0.25) == f"The tax is 25 percent.{END}"
    assert Message(**TALK[1]).content in weighed(0.0)


def test_every_generated_dataset_names_the_packaged_agent_that_plays_it() -> None:
    assert {name: dataset.agent for name, dataset in GENERATED.items() if dataset.agent} == {
        "micro": "micro",
        "micro-long": "micro-parts",
        "micro-parts": "micro-parts",
        "desk": "desk",
    }
    assert set(PACKAGED) == {"micro", "micro-parts", "desk"}
    assert ("scripted", *PACKAGED) == trust._WITHOUT_CODE, "which asks nobody for trust"
    for name, folder in PACKAGED.items():
        assert model_path(name) == str(folder)
        assert (folder / "model.safetensors").stat().st_size < 5_000_000


def test_an_agent_of_several_datasets_learns_from_equally_many_dialogues_of_each() -> None:
    dialogues = list(_dialogues(AgentRecipe(tasks=("micro-long", "micro-parts"), dialogues=20)))
    in_parts = ["PART:" in dialogue[1]["content"] for dialogue in dialogues]
    assert in_parts == [False, True] * 10
    with pytest.raises(ValidationError, match="no generated dataset 'macro', there are micro, micro-long, micro-parts"):
        AgentRecipe(tasks="micro,macro")


def test_the_packaged_agent_micro_is_the_one_that_all_figures_are_of() -> None:
    digest = hashlib.sha256((PACKAGED["micro"] / "model.safetensors").read_bytes()).hexdigest()
    assert digest == "ec5624fc3b443331570eb37f52c78f5f4e4aab13268c5b7fd98d28b36f66ae32"


def test_an_agent_of_the_desk_writes_calls_that_are_read_and_learns_nothing_of_results() -> None:
    from docs.tools.micro_agent import CALL, END_OF_CALL, TOOL, _encode, _tokenizer
    from sweet.llm.template import ChatTemplate
    from sweet.tasks.base import ToolCall
    from sweet.tasks.desk.tools import TOOLS
    from sweet.tasks.toolboxes.functions import tool_of

    recipe = AgentRecipe(tasks=("desk",), dialogues=30, vocabulary=600, value_weight=1.0, told_share=0.0)
    dialogues = list(_dialogues(recipe))
    tokenizer = _tokenizer(dialogues, recipe)
    chat, tools = ChatTemplate(tokenizer), [tool_of(tool) for tool in TOOLS.values()]
    call = ToolCall.of("read_policy", change="repair").model_copy(update={"id": "a"})
    said = Message(role="assistant", content="", tool_calls=(call,))
    result = Message(role="tool", content="The fee is 44.", tool_call_id="a")
    text = chat.text([Message(role="user", content="It is broken."), said, result], tools=tools)
    written = f'{CALL}{{"name": "read_policy", "arguments": {{"change": "repair"}}}}{END_OF_CALL}'
    offered = f"{TOOL}find_orders, read_policy, change_order{END}"
    assert text == f"{offered}{USER}It is broken.{END}{ASSISTANT}{written}{END}{TOOL}The fee is 44.{END}{ASSISTANT}"
    assert chat.call_form is not None
    assert chat.call_form.read is not None
    rest, (read,) = chat.call_form.read(
        tokenizer.decode(tokenizer(written)["input_ids"], skip_special_tokens=True), True
    )
    assert (rest, read.name, read.arguments) == ("", call.name, call.arguments)

    for example, rows in zip(_encode(tokenizer, dialogues, recipe), dialogues, strict=True):
        kept = [token for token, weight in zip(example.ids, example.weights, strict=True) if weight == 1]
        calls = [
            f'{CALL}{{"name": "{c["name"]}"' for row in rows for c in [t["function"] for t in row.get("tool_calls", ())]
        ]
        shown = str(tokenizer.decode(kept))
        assert shown.count(CALL) == len(calls)
        assert all(part in shown for part in calls)
        assert not any(row["content"] in shown for row in rows if row["role"] == "tool")
