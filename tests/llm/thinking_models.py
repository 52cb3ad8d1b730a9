"""Tiny models that think before they reply, and templates of our own that treat thoughts as those of known models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweet.llm.embedded import EmbeddedClient
from sweet.llm.engine import EmbeddedEngine
from sweet.llm.template import reply_ends
from tests.learn.builders import SPECIAL, build_tokenizer
from tests.learn.thinking import teach, thinking_model

CHANNELS = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>"]

_BODY = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content.split('</think>')[-1].lstrip() }}<|im_end|>\n{% endfor %}"
)
_SWITCH = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
TEMPLATES = {
    # Drops earlier thoughts, as Qwen3's: the model itself opens one, unless thinking is switched off.
    "dropping": f"{_BODY}{{% if add_generation_prompt %}}<|im_start|>assistant\n{_SWITCH}{{% endif %}}",
    # The prompt ends with the opening mark, as DeepSeek-R1's.
    "opening": f"{_BODY}{{% if add_generation_prompt %}}<|im_start|>assistant\n<think>\n{{% endif %}}",
    # Writes the thought of every turn that has one.
    "field": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
        "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    # Knows nothing of thoughts.
    "plain": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    # Keeps thoughts on request only, as the newest ones.
    "asked": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.reasoning_content and preserve_thinking %}<think>{{ m.reasoning_content }}</think>{% endif %}"
        "{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    # The channels of gpt-oss, which is told how much to think.
    "channels": (
        "<|start|>system<|message|>{{ reasoning_effort or 'medium' }}<|end|>"
        "{% for m in messages %}<|start|>{{ m.role }}"
        "{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    ),
}


def thinking_tokenizer(template: str, *, tags: bool = True) -> Any:
    """A tokenizer with one of the templates. `tags`: the marks are one token each, otherwise several."""
    if template == "channels":
        tokenizer = build_tokenizer(TEMPLATES[template], special=[*SPECIAL, *CHANNELS], size=500)
        tokenizer.eos_token = "<|return|>"
        return tokenizer
    tokenizer = build_tokenizer(TEMPLATES[template])
    if tags:
        tokenizer.add_tokens(["<think>", "</think>"])
    return tokenizer


def thinking_client(
    template: str, says: Sequence[str] = (), *, tags: bool = True, asked: str = "What is the rate?"
) -> EmbeddedClient:
    """A model behind the embedded engine; it has learned to write `says` after the prompt of one message."""
    tokenizer = thinking_tokenizer(template, tags=tags)
    model = thinking_model(tokenizer)
    rows = [{"role": "user", "content": asked}]
    prompt = tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=True)
    for text in says:
        teach(model, tokenizer, [(prompt, text + tokenizer.eos_token)], steps=50)
    engine = EmbeddedEngine(model, reply_ends(model, tokenizer), name="tiny")
    return EmbeddedClient("tiny", engine, tokenizer)
