"""The agent's system prompt is found in the prompts that chat templates render, whatever the template."""

from __future__ import annotations

from typing import Any

import pytest

from sweet.datasets.importing import recorded_system, system_of
from sweet.llm.template import ChatTemplate
from sweet.tasks.base import Message
from sweet.tasks.trajectory import Trajectory
from tests.learn.builders import LLAMA31, TEMPLATES, build_tokenizer, build_trajectory

SYSTEM = "You help a person.\n\nAsk first:\n  then answer with 100% of what you know."
REQUEST = "Write def fee(hours) for a parking lot."
TEXTS = {**TEMPLATES, "llama3.1": LLAMA31}


@pytest.fixture(scope="module", params=sorted(TEXTS))
def template(request: pytest.FixtureRequest) -> ChatTemplate:
    return ChatTemplate(build_tokenizer(TEXTS[request.param]))


@pytest.mark.parametrize("system", [SYSTEM, None])
@pytest.mark.parametrize("later", [0, 2])
def test_it_is_found_in_what_a_template_renders(template: ChatTemplate, system: str | None, later: int) -> None:
    messages = [] if system is None else [Message(role="system", content=system)]
    messages += [Message(role="user", content=REQUEST)]
    messages += [Message(role="assistant", content=SYSTEM), Message(role="user", content="5.")][:later]
    assert system_of(template.text(messages), REQUEST) == (system or "")


@pytest.mark.parametrize("rendered", [REQUEST, REQUEST + "\n", "\n  " + REQUEST])
def test_a_template_may_trim_the_request(rendered: str) -> None:
    prompt = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{rendered}<|im_end|>\n<|im_start|>assistant\n"
    assert system_of(prompt, f" {REQUEST} \n") == SYSTEM


def test_the_lines_of_llamas_template_are_not_part_of_it() -> None:
    prompt = ChatTemplate(build_tokenizer(LLAMA31)).text(
        [Message(role="system", content=SYSTEM), Message(role="user", content=REQUEST)]
    )
    assert prompt.count("Cutting Knowledge Date") == 1
    again = [Message(role="system", content=system_of(prompt, REQUEST) or ""), Message(role="user", content=REQUEST)]
    assert ChatTemplate(build_tokenizer(LLAMA31)).text(again) == prompt


PARTS = [{"type": "text", "text": SYSTEM}, {"type": "image_url", "image_url": {"url": "data:"}}]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": REQUEST}],
        [{"role": "developer", "content": PARTS}, {"role": "user", "content": REQUEST}],
        [{"role": "user", "content": f"{SYSTEM}\n\n{REQUEST}"}],
        [{"role": "system", "content": f"{SYSTEM}\n\n{REQUEST}"}],
        [{"role": "system", "content": f"{SYSTEM}\n\n{REQUEST}\n"}, {"role": "assistant", "content": "Yes?"}],
    ],
)
def test_it_is_found_in_messages_without_the_request(messages: list[dict[str, Any]]) -> None:
    assert system_of(messages, REQUEST) == SYSTEM


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "<prompt>",
        f"<|im_start|>user\n{REQUEST}",
        [],
        [{"role": "system"}],
        [{"role": "system", "content": SYSTEM}],
        [{"role": "system", "content": SYSTEM}, {"role": "assistant", "content": REQUEST}],
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Another request."}],
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{REQUEST} Now."}],
    ],
)
def test_a_prompt_that_cannot_be_read_has_none(prompt: Any) -> None:
    assert system_of(prompt, REQUEST) is None


def with_prompts(*prompts: str | None, **fields: Any) -> Trajectory:
    dialogue = build_trajectory(turns=2, **fields)
    recorded = iter(prompts)
    turns = [
        turn.model_copy(update={"input": next(recorded)}) if turn.role == "assistant" else turn
        for turn in dialogue.dialogue_history
    ]
    return dialogue.model_copy(update={"dialogue_history": tuple(turns)})


def test_a_dialogue_has_its_own_or_that_of_the_first_prompt_or_none() -> None:
    prompt = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{REQUEST}<|im_end|>\n<|im_start|>assistant\n"
    assert recorded_system(with_prompts(prompt, "<prompt>")) == SYSTEM
    assert recorded_system(with_prompts(None, prompt)) == SYSTEM
    assert recorded_system(with_prompts(None, None)) is None
    assert recorded_system(with_prompts(prompt, None, agent_system="Its own.")) == "Its own."
    assert recorded_system(with_prompts(prompt, None, agent_system="")) == ""
