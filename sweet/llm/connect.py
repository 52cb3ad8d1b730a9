"""From a model's name and addresses to a client: a served model where addresses are given, else one in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from sweet.llm.base import ChatClient


@asynccontextmanager
async def open_client(
    model: str,
    urls: Sequence[str] = (),
    *,
    concurrency: int = 128,
    role: Literal["agent", "sim"] = "agent",
    patience: float = 20.0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> AsyncIterator[ChatClient]:
    """A client for `model`, closed at the end.

    Args:
        urls: OpenAI-compatible servers that serve the model; none runs it in this process on `device`.
        concurrency: how many requests may be under way at once.
        role: whose model it is: says which variable holds its API key.
        patience: seconds for which a failing server is tried again.

    Raises:
        UsageError: the model cannot be loaded, or is not served there.
        ServerError: a server cannot be reached.
    """
    client: ChatClient
    if urls:
        from sweet.llm.remote import RemoteClient

        client = await RemoteClient.open(model, urls, concurrency=concurrency, role=role, patience=patience)
    else:
        from sweet.llm.embedded import EmbeddedClient

        client = EmbeddedClient.load(model, device=device)
    try:
        yield client
    finally:
        await client.aclose()
