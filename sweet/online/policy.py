"""Opens the sampler of an online training: a model that plays, and takes the weights of the one that is trained.

Without an address the model runs in this process, with weights of its own beside those that are trained, or on a vLLM
that is started for it; with addresses it is sampled there (`sweet.llm.updates`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sweet.errors import UsageError
from sweet.hf import save_plain, without_progress_bars
from sweet.hints import option
from sweet.learn.remote import RemoteEngine
from sweet.learn.trainee import Trainee, write_merged
from sweet.llm.adapter import find_adapter
from sweet.llm.connect import client_of, count_tokens
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.engine import Limits
from sweet.llm.local import LocalServing
from sweet.llm.pretrained import stored_type
from sweet.llm.tinker_engine import open_at_service
from sweet.llm.updates import Policy, ServedPolicy
from sweet.online.config import TrainOnlineConfig

DEVELOPER_MODE = {"VLLM_SERVER_DEV_MODE": "1"}
"""With it vLLM offers the interface by which weights are replaced."""


@asynccontextmanager
async def open_policy(
    config: TrainOnlineConfig,
    base: str,
    trainee: Trainee,
    local: LocalServing,
    folder: Path,
    remote: RemoteEngine | None,
) -> AsyncIterator[Policy]:
    """Open the sampler with the weights of `base`.

    Args:
        trainee: the model that is trained.
        folder: for the weights that a server loads.
        remote: trains the model at a service, which then samples it.

    Raises:
        UsageError: the model cannot be sampled this way.
        ServerError: a server could not be reached.
    """
    async with AsyncExitStack() as stack:
        urls = list(config.agent_url)
        if not urls and local.announce(base, "agent").engine != "vllm":
            client = await _open_here(config, base, remote)
            count_tokens(client, "agent")
            stack.push_async_callback(client.aclose)
            yield client
            return
        check_served(config, base)
        if not urls:
            if find_adapter(base) is not None:  # the weights that a server loads anew are those of a whole model
                merged = stack.enter_context(TemporaryDirectory(prefix="sweet-start-"))
                await asyncio.to_thread(write_merged, base, Path(merged))
                base = merged
            urls = [await stack.enter_async_context(local.serve(base, "agent"))]
        served = await stack.enter_async_context(client_of(config, "agent", base, urls, local))
        policy = ServedPolicy(served, urls, partial(_save, trainee), folder, timeout=config.request_timeout)
        try:
            yield policy
        finally:
            await policy.aclose()
            with suppress(OSError):  # it is not empty
                folder.parent.rmdir()


async def _open_here(config: TrainOnlineConfig, base: str, remote: RemoteEngine | None) -> EmbeddedClient:
    if remote is not None:
        return await open_at_service(base, training=lambda: remote.scorer.client)
    # Alone and with nothing cached, a reply depends on its prompt, its seed and the weights alone, to the last bit.
    limits = Limits(rows=1, prefix_bytes=0) if config.deterministic else None
    return EmbeddedClient.load(base, device=config.device, limits=limits)


def check_served(config: TrainOnlineConfig, base: str) -> None:
    """Raise UsageError if this model cannot be sampled by servers."""
    if config.deterministic:
        raise UsageError(
            "Servers sample several replies at a time, so their results differ in the last bits.",
            where="--deterministic",
            fix="--local-engine embedded",
        )
    if config.agent_url and find_adapter(base) is not None:
        raise UsageError(
            f"{base} is a LoRA adapter: the weights that a server loads anew are those of a whole model.",
            where=option("agent", base),
            fix=f"omit the address, or serve and name the merged model: python examples/convert_model.py {base} FOLDER",
        )


def _save(trainee: Trainee, weights: Mapping[str, Any], folder: Path) -> None:
    """Write the model with some weights, in the type its own are stored in."""
    dtype = stored_type(trainee.start.base)
    cast = {name: weight.to(dtype or weight.dtype, copy=True) for name, weight in weights.items()}
    with without_progress_bars():
        save_plain(trainee.model, folder, state_dict=cast)
