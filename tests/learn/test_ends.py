"""Where a reply ends, by the ways in which templates write it, and templates that read texts only as parts."""

from __future__ import annotations

import pytest

from sweet.errors import UsageError
from sweet.learn.replies import ReplyEncoder
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Reply
from sweet.llm.template import ChatTemplate
from sweet.tasks.base import Message
from tests.learn.builders import SPECIAL, build_tokenizer

ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
EACH = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"

ENDS = {
    "white space before it, as of Llama 2": (f"{EACH} <|im_end|>\n{{% endfor %}}{ASK}", "<|im_end|>"),
    "a line end before it": (f"{EACH}\n<|im_end|>{{% endfor %}}{ASK}", "<|im_end|>"),
    "several marks": (f"{EACH}<|eot_id|><|im_end|>\n{{% endfor %}}{ASK}", "<|eot_id|>"),
    "the role of the next message, as of GLM-4": (
        "{% for m in messages %}{{ '<|im_start|>' if m['role'] == 'user' else '<start_of_turn>' }}\n{{ m['content'] }}"
        "{% endfor %}{% if add_generation_prompt %}<start_of_turn>\n{% endif %}",
        "<|im_start|>",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_end_is_the_mark_and_no_white_space(name: str) -> None:
    template, end = ENDS[name]
    tokenizer = build_tokenizer(template)
    encoder = ReplyEncoder(tokenizer)
    assert tokenizer.convert_ids_to_tokens(encoder.end_of_turn) == end
    (encoded,) = encoder.encode([Reply("What is the rate?")])
    assert tokenizer.decode(encoded.ids) == f"What is the rate?{end}"


def test_a_template_without_an_end_has_that_of_texts() -> None:
    plain = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    tokenizer = build_tokenizer(plain)
    tokenizer.eos_token = None
    with pytest.raises(UsageError, match="nothing marks the end"):
        ReplyEncoder(tokenizer)
    tokenizer.eos_token = "<|im_end|>"
    assert ReplyEncoder(tokenizer).end_of_turn == tokenizer.convert_tokens_to_ids("<|im_end|>")


PARTS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
) + ASK
PLAIN = f"{EACH}<|im_end|>\n{{% endfor %}}{ASK}"


def test_a_template_that_reads_parts_gets_parts() -> None:
    """The prompts, the replies and the whole dialogue are those of the same template for texts."""
    messages = [
        Message(role="system", content="You help."),
        Message(role="user", content="A fee."),
        Message(role="assistant", content="What is the rate?"),
        Message(role="user", content="It is 5."),
    ]
    of_parts, plain = build_tokenizer(PARTS), build_tokenizer(PLAIN)
    assert ChatTemplate(of_parts).text(messages) == ChatTemplate(plain).text(messages)
    assert "It is 5." in ChatTemplate(of_parts).text(messages)
    one, other = ChatEncoder(of_parts), ChatEncoder(plain)
    assert one.prompts([messages]) == other.prompts([messages])
    assert one.replies([Reply("5 an hour?")]) == other.replies([Reply("5 an hour?")])
    assert one.header == other.header


def test_a_template_that_writes_no_text_is_refused() -> None:
    silent = "{% for m in messages %}<|im_start|>{{ m['role'] }}<|im_end|>\n{% endfor %}" + ASK
    with pytest.raises(UsageError, match="does not write the text of a message"):
        ChatTemplate(build_tokenizer(silent, special=SPECIAL))
