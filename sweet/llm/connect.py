"""Opens a client for a model, given its name and addresses.

A model with addresses is used through its servers. Otherwise `LocalServing` decides whether a vllm is started for it,
which ends with the client, or it runs in this process; without a `LocalServing` it runs in this process.

What a model reads and writes is counted for the attempt that is under way, under its role (`sweet.runs.tokens`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from sweet.device import Device
from sweet.errors import UsageError
from sweet.hf import UnknownModel
from sweet.hints import option
from sweet.llm.base import ChatClient, Completion, Effort, Role, Sampling
from sweet.llm.concurrency import AdaptiveLimiter
from sweet.llm.local import LocalServing
from sweet.llm.servers import MODEL_OPTIONS, URL_OPTIONS, assign, urls_of
from sweet.llm.thoughts import ALL_MARKS, Marks, given_marks
from sweet.runs.tokens import current_meter
from sweet.tasks.base import Message

CHARACTERS_OF_TOKEN = 6
"""Characters of a token where a text has at least so many tokens: in English it is about 4."""

ROOM = 4096
"""Tokens of a thought, beside those of what is said."""

if TYPE_CHECKING:
    from sweet.llm.embedded import EmbeddedClient
    from sweet.llm.engine_processes import EngineProcesses
    from sweet.llm.remote import RemoteClient, RequestSettings
    from sweet.llm.template import ChatTemplate


@asynccontextmanager
async def open_client(
    model: str,
    urls: Sequence[str] = (),
    *,
    role: Role = "agent",
    device: Device = "auto",
    local: LocalServing | None = None,
    effort: Effort | None = None,
    **settings: Unpack[RequestSettings],
) -> AsyncIterator[ChatClient]:
    """Open a client for `model` and close it at the end of the context.

    Args:
        urls: OpenAI-compatible servers that serve the model; without any it runs on this machine.
        role: the model's role, which determines the environment variable of its API key.
        device: where the embedded engine runs.
        local: decides how a model without an address is run.
        effort: how much a model of another role than the agent's is asked to think; the agent's requests say it.
        settings: how servers are asked.

    Raises:
        UsageError: the model cannot be loaded, or a server does not serve it.
        ServerError: a server cannot be reached.
        SweetError: the vllm that was started for it failed.
    """
    urls = urls_of(model, urls)
    async with AsyncExitStack() as stack:
        if local is not None and urls:
            local.record[f"{role}_engine"] = "server"
        elif local is not None and local.announce(model, role).engine == "vllm":
            urls = [await stack.enter_async_context(local.serve(model, role))]
        client: RemoteClient | EmbeddedClient | EngineProcesses
        if urls:
            from sweet.llm.remote import RemoteClient

            noted = {} if local is None else {"on_deviation": partial(local.note_deviation, role)}
            client = await RemoteClient.open(model, urls, role, **noted, **settings)
        else:
            try:
                client = await _open_here(model, device, local, settings.get("marks", ALL_MARKS))
            except UnknownModel as error:
                at_server = f"{option(URL_OPTIONS[role], 'URL')}, if a server serves it; else {error.fix or ''}"
                raise UsageError(error.what, where=option(MODEL_OPTIONS[role], model), fix=at_server) from error
        count_tokens(client, role)
        stack.push_async_callback(client.aclose)
        yield client if role == "agent" else RoomyClient(client, effort)


async def _open_here(
    model: str, device: Device, local: LocalServing | None, marks: Sequence[Marks]
) -> EmbeddedClient | EngineProcesses:
    """Open a model without a server: in this process or several, or at a service."""
    if local is not None and local.choose(model).engine == "tinker":
        from sweet.llm.tinker_engine import open_at_service

        return await open_at_service(model, marks)
    if local is not None and (processes := local.processes(model)) > 1:
        from sweet.llm.engine_processes import EngineProcesses

        return await EngineProcesses.open(model, device=device, processes=processes, marks=marks)
    from sweet.llm.embedded import EmbeddedClient

    return EmbeddedClient.load(model, device=device, marks=marks)


def warn_of_effort(client: ChatClient, effort: Effort | None, warn: Callable[[str], None]) -> None:
    """Warn if the agent's model, run by the embedded engine, gets no effort, because its template has no place for it.
    What servers do with it is not known, unless they refuse it."""
    if effort is None:
        return  # a client of several processes loads the template when it is asked for
    template: ChatTemplate | None = getattr(client, "template", None)
    if template is not None and not template.reads(effort):
        warn("The chat template of the agent's model does not tell --effort from its default: it has no effect.")


def check_tools(client: ChatClient) -> None:
    """Check that the agent's model, run by the embedded engine, can be offered tools. Servers refuse them if not.

    Raises:
        UsageError: it cannot.
    """
    template: ChatTemplate | None = getattr(client, "template", None)
    if template is not None:
        template.check_tools()


def check_context(client: ChatClient, role: Role, prompts: Iterable[str], max_tokens: int) -> None:
    """Check that the context of the servers of a model holds the shortest of some prompts and a reply.

    Raises:
        UsageError: it does not, so that every dialogue would end by a full context, or with shorter replies than were
            asked for.
    """
    context: int | None = getattr(client, "served_context", None)
    prompt = min(map(len, prompts), default=0) // CHARACTERS_OF_TOKEN
    if context is not None and context < prompt + max_tokens:
        raise UsageError(
            f"The context of {client.model} has {context:,} tokens at its server, too few for a prompt of at least "
            f"{prompt:,} and a reply of {max_tokens:,}.",
            where=option(MODEL_OPTIONS[role], client.model),
            fix="a server with a longer context (vllm: --max-model-len)"
            + (f", or {option('max_tokens', context // 4)}" if role == "agent" and prompt <= context * 3 // 4 else ""),
        )


def count_tokens(client: RemoteClient | EmbeddedClient | EngineProcesses, role: Role) -> None:
    """Count what a client's model reads and writes for the attempt that is under way, if one is."""
    meter = current_meter()
    if meter is not None:
        client.on_completion = lambda done: meter.add(role, done.prompt_tokens, done.completion_tokens)


def settings_of(config: Any) -> RequestSettings:
    """Return the settings among the options of a stage."""
    return {
        "concurrency": config.concurrency,
        "retry_timeout": config.retry_timeout,
        "request_timeout": config.request_timeout,
        "marks": given_marks(config.thought_marks),
    }


def client_of(
    config: Any, role: Role, model: str, urls: Sequence[str], local: LocalServing | None = None
) -> AbstractAsyncContextManager[ChatClient]:
    """Open a client with the options of a stage; the other arguments and the errors are those of `open_client`."""
    effort_option = "effort" if role in ("writer", "checker") else f"{role}_effort"
    effort = getattr(config, effort_option, None)
    return open_client(model, urls, role=role, device=config.device, local=local, effort=effort, **settings_of(config))


async def servers_of_models(
    models: Sequence[str], urls: Sequence[str], role: Role, **settings: Unpack[RequestSettings]
) -> dict[str, list[str]]:
    """Return for each of several models the servers among `urls` that serve it; arguments as of `open_client`.

    Raises:
        UsageError: no server serves one of the models, or a server serves none of them.
        ServerError: a server cannot be reached.
    """
    from sweet.llm.remote import RemoteClient

    client = RemoteClient(urls, role, **settings)
    try:
        return assign(models, await client.served_names(), role)
    finally:
        await client.aclose()


class RoomyClient:
    """Asks `client` with room to think (implements `sweet.llm.base.ChatClient`), for all roles but the agent's.

    A model that reasons spends a budget of a few hundred tokens on its thought and says nothing. The first time that
    happens it is asked again with `ROOM` more tokens, which it has from then on. The agent's replies are what is
    learned from: its budget is the user's (`--max-tokens`).

    Args:
        effort: how much the model is asked to think, where a request does not say.

    Attributes:
        limiter, served_context: of a client of servers; None for others.
    """

    def __init__(self, client: ChatClient, effort: Effort | None = None) -> None:
        self.client, self.effort, self._room = client, effort, 0
        self.model = client.model
        self.limiter: AdaptiveLimiter | None = getattr(client, "limiter", None)
        self.served_context: int | None = getattr(client, "served_context", None)

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies; see `ChatClient.chat`. The tokens are those of all requests."""
        sampling = replace(sampling, effort=sampling.effort or self.effort)
        room = self._room
        first = await self.client.chat(messages, replace(sampling, max_tokens=sampling.max_tokens + room))
        if room or not any(reply.says_nothing_yet for reply in first.replies):
            return first
        self._room = ROOM
        second = await self.client.chat(messages, replace(sampling, max_tokens=sampling.max_tokens + ROOM))
        return replace(
            second,
            prompt_tokens=first.prompt_tokens + second.prompt_tokens,
            completion_tokens=first.completion_tokens + second.completion_tokens,
            thought_tokens=first.thought_tokens + second.thought_tokens,
            retries=first.retries + second.retries,
        )

    async def aclose(self) -> None:
        await self.client.aclose()
