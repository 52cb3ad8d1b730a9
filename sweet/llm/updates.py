"""New weights for a model that is sampling, without starting anything anew.

A `Policy` is a chat client whose weights can be replaced. The embedded engine is one itself: it copies the weights over
the old ones between two decoding steps (`sweet.llm.engine`). A model on vLLM servers is a `ServedPolicy`: it lets the
requests under way end and holds back the others, writes the weights into a new folder, has every server load them from
there in place (`reload_weights` by /collective_rpc, which vLLM offers with VLLM_SERVER_DEV_MODE=1), empties the prefix
caches, whose keys and values are those of the old weights, and lets requests through again. So in both cases a reply is
sampled by one version of the weights, and its recorded log-probabilities are those of that version.

The servers must see the folder: they are on this machine, or share its file system.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from sweet.errors import ServerError, UsageError
from sweet.llm.base import ChatClient, Completion, Sampling
from sweet.llm.http import Channel, HttpError, StatusError, encoded
from sweet.llm.servers import base_url
from sweet.tasks.base import Message

UPDATE_TIMEOUT = 600.0
"""Seconds that a server may take to load weights."""

_ANSWER_BYTES = 1 << 20
_RESET_TRIES, _RESET_PAUSE = 50, 0.1
"""How often a prefix cache is to be emptied: a server refuses while a cancelled request still holds some of it."""


class Policy(ChatClient, Protocol):
    """A model that samples, and whose weights can be replaced."""

    async def update(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace weights; returns when they sample.

        Args:
            weights: tensors by the names of the model's parameters, which must not change meanwhile.
            version: recorded with the replies that they sample (`Completion.version`).

        Raises:
            SweetError: they could not be replaced.
        """


class ServedPolicy:
    """A policy on vLLM servers, all of which serve it alone.

    Args:
        client: of the servers.
        urls: their addresses.
        save: writes the model with some weights to a folder in Hugging Face layout.
        folder: under which the weights are written; those that are not used any more are removed.

    Attributes:
        version: of the weights that sample now.
    """

    def __init__(
        self,
        client: ChatClient,
        urls: Sequence[str],
        save: Callable[[Mapping[str, Any], Path], None],
        folder: Path,
        *,
        timeout: float = UPDATE_TIMEOUT,
    ) -> None:
        self.client, self.model = client, client.model
        self.version = 0
        self._save, self._folder = save, folder.absolute()
        self._roots = [base_url(url).removesuffix("/v1") for url in urls]
        self._timeout = timeout
        self._updating = asyncio.Lock()  # held during an update; who asks waits for it, and is then `_asking`
        self._asking = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies; see `ChatClient.chat`. Waits while the weights are replaced."""
        async with self._updating:
            self._asking += 1
            self._idle.clear()
        try:
            return replace(await self.client.chat(messages, sampling), version=self.version)
        finally:
            self._asking -= 1
            if not self._asking:
                self._idle.set()

    async def update(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace all weights; see `Policy.update`.

        Raises:
            UsageError: a server offers no such interface.
            ServerError: a server could not be reached, or it failed to load them.
        """
        async with self._updating:
            await self._idle.wait()
            folder = self._folder / f"version-{version}"
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)  # of an update that failed
            await asyncio.to_thread(self._save, weights, folder)
            for done in await asyncio.gather(
                *(self._reload(root, folder) for root in self._roots), return_exceptions=True
            ):
                if done is not None:
                    raise done
            self.version = version
            for other in {*self._folder.iterdir()} - {folder}:
                await asyncio.to_thread(shutil.rmtree, other, ignore_errors=True)

    async def aclose(self) -> None:
        await self.client.aclose()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _reload(self, root: str, folder: Path) -> None:
        channel = Channel(root, "agent", 1, timeout=self._timeout)
        try:
            call = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            await channel.post("/collective_rpc", encoded(call), _ANSWER_BYTES)
            for _ in range(_RESET_TRIES):
                answer = await channel.post("/reset_prefix_cache", b"", _ANSWER_BYTES)
                # Versions that return nothing have emptied it, or had nothing to empty.
                if not isinstance(answer, dict) or answer.get("success") is not False:
                    return
                await asyncio.sleep(_RESET_PAUSE)
            raise ServerError("The server does not empty its prefix cache.", where=root, fix="use it for nothing else")
        except StatusError as error:
            raise _refused(root, error) from error
        except HttpError as error:
            raise ServerError(f"The server does not load new weights: {error.message}.", where=root) from error
        finally:
            await channel.aclose()


def _refused(root: str, error: StatusError) -> UsageError | ServerError:
    if error.status in (401, 403, 404, 405):
        return UsageError(
            f"The server lets nobody replace its weights (status {error.status}): {error.message}",
            where=root,
            fix="serve the model with vLLM, started with VLLM_SERVER_DEV_MODE=1, or leave its address out",
        )
    return ServerError(
        f"The server could not load new weights (status {error.status}): {error.message}",
        where=root,
        fix="see its log; the folder of the weights must be one that it sees, and vLLM one of the last versions",
    )
