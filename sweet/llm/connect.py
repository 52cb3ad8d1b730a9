"""Opens a client for a model, given its name and addresses.

A model with addresses is used through its servers. Otherwise `LocalServing` decides whether a vllm is started for it,
which ends with the client, or it runs in this process; without a `LocalServing` it runs in this process.

What a model reads and writes is counted for the attempt that is under way, under its role (`sweet.runs.tokens`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sweet.device import Device
from sweet.errors import UsageError
from sweet.hf import UnknownModel
from sweet.hints import option
from sweet.llm.base import ChatClient, Completion, Effort, Role
from sweet.llm.local import LocalServing
from sweet.llm.servers import MODEL_OPTIONS, URL_OPTIONS, assign, urls_of
from sweet.runs.tokens import TokenMeter, current_meter

if TYPE_CHECKING:
    from sweet.llm.embedded import EmbeddedClient
    from sweet.llm.remote import RemoteClient


@asynccontextmanager
async def open_client(
    model: str,
    urls: Sequence[str] = (),
    *,
    concurrency: int = 128,
    role: Role = "agent",
    retry_timeout: float = 20.0,
    request_timeout: float = 600.0,
    follow_redirects: bool = False,
    device: Device = "auto",
    local: LocalServing | None = None,
) -> AsyncIterator[ChatClient]:
    """Open a client for `model` and close it at the end of the context.

    Args:
        urls: OpenAI-compatible servers that serve the model; without any it runs on this machine.
        device: where the embedded engine runs.
        local: decides how a model without an address is run.
        concurrency: maximum number of concurrent requests.
        role: the model's role, which determines the environment variable of its API key.
        retry_timeout: seconds for which failed requests are retried.
        request_timeout: seconds for one request to a server and its response.
        follow_redirects: whether a server's redirects to other hosts are followed.

    Raises:
        UsageError: the model cannot be loaded, or a server does not serve it.
        ServerError: a server cannot be reached.
        SweetError: the vllm that was started for it failed.
    """
    urls = urls_of(model, urls)
    async with AsyncExitStack() as stack:
        if local is not None and urls:
            local.record[f"{role}_engine"] = "server"
        elif local is not None and local.announce(model, role).build is not None:
            urls = [await stack.enter_async_context(local.serve(model, role))]
        client: RemoteClient | EmbeddedClient
        if urls:
            from sweet.llm.remote import RemoteClient

            client = await RemoteClient.open(
                model,
                urls,
                concurrency=concurrency,
                role=role,
                retry_timeout=retry_timeout,
                request_timeout=request_timeout,
                follow_redirects=follow_redirects,
            )
            if local is not None:
                client.on_deviation = partial(local.note_deviation, role)
        else:
            from sweet.llm.embedded import EmbeddedClient

            try:
                client = EmbeddedClient.load(model, device=device)
            except UnknownModel as error:
                at_server = f"{option(URL_OPTIONS[role], 'URL')}, if a server serves it; else {error.fix or ''}"
                raise UsageError(error.what, where=option(MODEL_OPTIONS[role], model), fix=at_server) from error
        count_tokens(client, role)
        stack.push_async_callback(client.aclose)
        yield client


def count_tokens(client: RemoteClient | EmbeddedClient, role: Role) -> None:
    """Count what a client's model reads and writes for the attempt that is under way, if one is."""
    meter = current_meter()
    if meter is not None:
        client.on_completion = partial(_count, meter, role)


def _count(meter: TokenMeter, role: Role, completion: Completion) -> None:
    meter.add(role, completion.prompt_tokens, completion.completion_tokens)


class RequestConfig(Protocol):
    """The options of a stage that asks models; see `open_client`."""

    @property
    def concurrency(self) -> int: ...
    @property
    def retry_timeout(self) -> float: ...
    @property
    def request_timeout(self) -> float: ...
    @property
    def follow_redirects(self) -> bool: ...
    @property
    def device(self) -> Device: ...


def client_of(
    config: RequestConfig, role: Role, model: str, urls: Sequence[str], local: LocalServing | None = None
) -> AbstractAsyncContextManager[ChatClient]:
    """Open a client with the options of a stage; the other arguments and the errors are those of `open_client`."""
    return open_client(
        model,
        urls,
        concurrency=config.concurrency,
        role=role,
        retry_timeout=config.retry_timeout,
        request_timeout=config.request_timeout,
        follow_redirects=config.follow_redirects,
        device=config.device,
        local=local,
    )


async def servers_of_models(
    models: Sequence[str],
    urls: Sequence[str],
    *,
    role: Role,
    retry_timeout: float = 20.0,
    request_timeout: float = 600.0,
    follow_redirects: bool = False,
) -> dict[str, list[str]]:
    """Return for each of several models the servers among `urls` that serve it; arguments as of `open_client`.

    Raises:
        UsageError: no server serves one of the models, or a server serves none of them.
        ServerError: a server cannot be reached.
    """
    from sweet.llm.remote import RemoteClient

    timeouts = {"retry_timeout": retry_timeout, "request_timeout": request_timeout}
    served = await RemoteClient.names_at(urls, role=role, follow_redirects=follow_redirects, **timeouts)
    return assign(models, served, role)


EFFORT_IGNORED = "The chat template of the agent's model does not tell --effort from its default: it has no effect."
"""The warning where `effort_is_ignored`."""


def effort_is_ignored(client: ChatClient, effort: Effort | None) -> bool:
    """Return whether the model of an embedded engine gets no effort, because its template has no place for it. What
    servers do with it is not known, unless they refuse it."""
    reads = getattr(client, "reads", None)
    return effort is not None and reads is not None and not reads(effort)
