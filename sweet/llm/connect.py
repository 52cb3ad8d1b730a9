"""From a model's name and addresses to a client.

A served model where addresses are given. Without, a `Local` decides: by a vllm that is started for it and ended with
the client, or in this process; without a `Local` in this process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from sweet.device import Device
from sweet.llm.base import ChatClient, Role
from sweet.llm.local import LocalServing


@asynccontextmanager
async def open_client(
    model: str,
    urls: Sequence[str] = (),
    *,
    concurrency: int = 128,
    role: Role = "agent",
    retry_timeout: float = 20.0,
    device: Device = "auto",
    local: LocalServing | None = None,
) -> AsyncIterator[ChatClient]:
    """A client for `model`, closed at the end.

    Args:
        urls: OpenAI-compatible servers that serve the model; without one it is run on this machine.
        device: where the embedded engine runs.
        local: how a model without an address is run.
        concurrency: how many requests may be under way at once.
        role: whose model it is: says which variable holds its API key.
        retry_timeout: seconds for which a failing server is tried again.

    Raises:
        UsageError: the model cannot be loaded, or is not served there.
        ServerError: a server cannot be reached.
        SweetError: a vllm that was started for it failed.
    """
    async with AsyncExitStack() as stack:
        if local is not None and urls:
            local.record[f"{role}_engine"] = "server"
        elif local is not None and local.announce(model, role).build is not None:
            urls = [await stack.enter_async_context(local.serve(model, role))]
        client: ChatClient
        if urls:
            from sweet.llm.remote import RemoteClient

            client = await RemoteClient.open(
                model, urls, concurrency=concurrency, role=role, retry_timeout=retry_timeout
            )
        else:
            from sweet.llm.embedded import EmbeddedClient

            client = EmbeddedClient.load(model, device=device)
        stack.push_async_callback(client.aclose)
        yield client
