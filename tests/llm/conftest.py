"""A tiny chat model with its engine, its server, and its directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sweet.llm.embedded import EmbeddedClient
from sweet.llm.engine import EmbeddedEngine
from sweet.llm.listening import listening
from sweet.llm.server import make_app
from sweet.llm.template import reply_ends
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer


@pytest.fixture(scope="module")
def client() -> Iterator[EmbeddedClient]:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    model = build_model(len(tokenizer))
    engine = EmbeddedEngine(model, reply_ends(model, tokenizer), name="tiny")
    yield EmbeddedClient("tiny", engine, tokenizer)
    engine.close()


@asynccontextmanager
async def served(client: EmbeddedClient) -> AsyncIterator[str]:
    """The base URL of a server of `client`."""
    async with listening(make_app(client), "127.0.0.1", 0) as url:
        yield url


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    tokenizer.save_pretrained(path)
    build_model(len(tokenizer)).save_pretrained(path)
    return path
