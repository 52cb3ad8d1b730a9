"""The embedded engine as a chat client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweet.deadline import deadline
from sweet.errors import UsageError
from sweet.learn.replies import ReplyEncoder
from sweet.llm.base import ContextOverflow, Reply, RequestFailed, Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.engine import EmbeddedEngine
from sweet.llm.template import reply_ends
from sweet.tasks.base import Message
from tests.learn.builders import SPECIAL, TEMPLATES, build_model, build_tokenizer

ASK = [Message(role="system", content="You help."), Message(role="user", content="What is the rate?")]


@pytest.fixture(scope="module")
def client(checkpoint: Path) -> Iterator[EmbeddedClient]:
    client = EmbeddedClient.load(str(checkpoint), device="cpu")
    yield client
    asyncio.run(client.aclose())


def test_replies_include_their_tokens(client: EmbeddedClient) -> None:
    completion = asyncio.run(client.chat(ASK, Sampling(max_tokens=30, n=3, seed=1)))
    assert len(completion.replies) == 3
    prompt = completion.prompt_token_ids
    assert prompt is not None
    assert client.decode(prompt, skip_special=False) == client.template.text(ASK)
    assert completion.prompt_tokens == len(prompt)
    assert completion.completion_tokens == sum(len(reply.token_ids or ()) for reply in completion.replies)
    for reply in completion.replies:
        assert reply.token_ids is not None
        assert reply.logprobs is not None
        assert len(reply.token_ids) == len(reply.logprobs)
        assert all(value <= 0 for value in reply.logprobs)
        assert reply.text == client.decode(reply.token_ids)
        assert (reply.finish_reason == "stop") == (reply.token_ids[-1] in client.engine.ends)


def test_many_concurrent_requests(client: EmbeddedClient) -> None:
    async def ask() -> list[str]:
        settings = [Sampling(max_tokens=20, seed=seed) for seed in range(40)]
        return [c.replies[0].text for c in await asyncio.gather(*(client.chat(ASK, s) for s in settings))]

    assert asyncio.run(ask()) == asyncio.run(ask())


def test_overflow_and_cancellation(client: EmbeddedClient) -> None:
    async def run() -> None:
        with pytest.raises(ContextOverflow):
            await client.chat([Message(role="user", content="rate " * 3000)], Sampling())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.chat(ASK, Sampling(max_tokens=900, n=64))
        assert await client.chat(ASK, Sampling(max_tokens=3))

    asyncio.run(run())


def test_a_slow_machine_ends_no_dialogue(client: EmbeddedClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the replies of all dialogues take together says nothing of the one that waits for its own."""
    engine = client.engine
    assert isinstance(engine, EmbeddedEngine)
    admit = engine._admit

    def slowly() -> None:
        time.sleep(3.0)
        admit()

    async def work() -> None:
        async with deadline(2.0):
            assert (await client.chat(ASK, Sampling(max_tokens=2))).replies

    asyncio.run(client.chat(ASK, Sampling(max_tokens=1)))  # what is done once takes time
    monkeypatch.setattr(engine, "_admit", slowly)
    asyncio.run(work())


def test_messages_that_the_template_refuses(checkpoint: Path, tmp_path: Path) -> None:
    tokenizer = build_tokenizer("{{ raise_exception('roles must alternate') }}")
    model = build_model(len(tokenizer))
    tokenizer.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    client = EmbeddedClient.load(str(tmp_path), device="cpu")
    with pytest.raises(RequestFailed, match="roles must alternate"):
        asyncio.run(client.chat(ASK, Sampling()))
    asyncio.run(client.aclose())


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    tokenizer.save_pretrained(tmp_path)
    build_model(len(tokenizer) - 5).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="do not match"):
        EmbeddedClient.load(str(tmp_path), device="cpu")


MISTRAL = (
    "{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] }}</s>{% endif %}{% endfor %}"
)
UNMARKED = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
REFUSING = "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ raise_exception('no') }}{% endif %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "end"),
    [
        (TEMPLATES["chatml"], "<|im_end|>"),
        (TEMPLATES["llama3"], "<|eot_id|>"),
        (TEMPLATES["gemma"], "<end_of_turn>"),
        (MISTRAL, "</s>"),
        (UNMARKED, None),
        (REFUSING, None),
        (None, None),
    ],
    ids=["chatml", "llama3", "gemma", "mistral", "no mark", "no reply", "a base model without a template"],
)
def test_all_ids_that_end_a_reply_are_found(template: str | None, end: str | None) -> None:
    """Those of the configurations, that of texts, which here ends no turn, and the one of the template."""
    tokenizer = build_tokenizer(template, special=[*SPECIAL, "</s>", "<|endoftext|>"])
    tokenizer.eos_token = "<|endoftext|>"
    model = build_model(len(tokenizer))
    model.generation_config.eos_token_id = [7, 9]
    own = set() if end is None else {tokenizer.convert_tokens_to_ids(end)}
    assert reply_ends(model, tokenizer) == {7, 9, model.config.eos_token_id, tokenizer.eos_token_id, *own}


@pytest.mark.parametrize("template", ["llama3", "gemma"])
def test_a_reply_ends_where_the_template_ends_turns(template: str) -> None:
    """Its ids are recorded with that end, and are what a training would learn."""
    tokenizer = build_tokenizer(TEMPLATES[template], special=[*SPECIAL, "<|endoftext|>"])
    tokenizer.eos_token = "<|endoftext|>"
    model = build_model(len(tokenizer))
    model.generation_config.eos_token_id = model.config.eos_token_id = tokenizer.eos_token_id
    encoder = ReplyEncoder(tokenizer)
    engine = EmbeddedEngine(model, reply_ends(model, tokenizer), name="tiny")
    client = EmbeddedClient("tiny", engine, tokenizer)

    async def run() -> tuple[Reply, ...]:
        try:
            return (await client.chat(ASK, Sampling(max_tokens=200, n=32, seed=1))).replies
        finally:
            await client.aclose()

    replies = asyncio.run(run())
    ended = [reply for reply in replies if encoder.end_of_turn in (reply.token_ids or ())]
    assert ended
    for reply, encoded in zip(ended, encoder.encode(ended), strict=True):
        assert reply.token_ids is not None
        assert reply.token_ids.index(encoder.end_of_turn) == len(reply.token_ids) - 1, "nothing comes after it"
        assert reply.finish_reason == "stop"
        assert tuple(encoded.ids) == reply.token_ids
