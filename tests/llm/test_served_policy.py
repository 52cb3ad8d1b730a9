"""New weights for a model on servers that are vLLM's in what they offer: /collective_rpc and /reset_prefix_cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sweet.errors import ServerError, UsageError
from sweet.llm.base import Completion, Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.engine import EmbeddedEngine
from sweet.llm.listening import listening
from sweet.llm.remote import RemoteClient
from sweet.llm.server import make_app
from sweet.llm.template import reply_ends
from sweet.llm.updates import ServedPolicy
from sweet.tasks.base import Message
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer
from tests.llm.test_engine import plain_logprobs
from tests.llm.test_weight_updates import other_weights, weights_of

ASK = [Message(role="user", content="What is the rate per hour?")]
SAMPLING = Sampling(max_tokens=6, seed=3, logprobs=True)


class Server:
    """An embedded server with the two addresses of vLLM.

    Attributes:
        refusals: how often its prefix cache cannot be emptied. status: with which it answers a reload.
        reloads: the folders that it loaded, each with the number of requests then under way.
    """

    def __init__(self, *, refusals: int = 0, status: int = 200, offers: bool = True) -> None:
        tokenizer = build_tokenizer(TEMPLATES["chatml"])
        self.model = build_model(len(tokenizer))
        engine = EmbeddedEngine(self.model, reply_ends(self.model, tokenizer), name="tiny")
        self.client = EmbeddedClient("tiny", engine, tokenizer)
        self.refusals, self.status, self.offers = refusals, status, offers
        self.reloads: list[tuple[Path, int]] = []
        self.emptied = 0

    async def reload(self, request: Request) -> Response:
        body = await request.json()
        folder = Path(body["kwargs"]["weights_path"])
        engine: Any = self.client.engine
        self.reloads.append((folder, len(engine._rows) + len(engine._waiting)))
        if self.status != 200:
            return JSONResponse({"error": {"message": "no such tensor"}}, status_code=self.status)
        assert body["method"] == "reload_weights"
        await self.client.update(load_file(folder / "model.safetensors"), len(self.reloads))
        return JSONResponse({"results": [None]})

    async def reset(self, request: Request) -> Response:
        self.emptied += 1
        return JSONResponse({"success": self.emptied > self.refusals})

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        app = make_app(self.client)
        if self.offers:
            app.routes.append(Route("/collective_rpc", self.reload, methods=["POST"]))
            app.routes.append(Route("/reset_prefix_cache", self.reset, methods=["POST"]))
        async with listening(app, "127.0.0.1", 0) as url:
            yield url
        await self.client.aclose()


def run(servers: list[Server], folder: Path, work: Any) -> Any:
    """Run `work(policy)` on a policy of the servers."""

    async def inside() -> Any:
        from contextlib import AsyncExitStack

        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(server.listening()) for server in servers]
            client = await RemoteClient.open("tiny", urls, concurrency=8, retry_timeout=5)

            def save(weights: Mapping[str, Any], to: Path) -> None:
                model = servers[0].model
                model.save_pretrained(to, state_dict={name: weight.clone() for name, weight in weights.items()})

            policy = ServedPolicy(client, urls, save, folder)
            stack.push_async_callback(policy.aclose)
            return await work(policy)

    return asyncio.run(inside())


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def check_sampled_by(model: Any, completion: Completion) -> None:
    reply, prompt = completion.replies[0], completion.prompt_token_ids
    assert reply.token_ids
    assert reply.logprobs
    assert prompt
    truth = plain_logprobs(model, prompt, reply.token_ids)[torch.arange(len(reply.token_ids)), list(reply.token_ids)]
    assert torch.allclose(torch.tensor(reply.logprobs), truth, atol=2e-4)


def test_every_server_loads_the_new_weights_and_replies_with_them(tmp_path: Path) -> None:
    servers = [Server(), Server(refusals=2)]
    new = other_weights(servers[0].model)

    async def work(policy: ServedPolicy) -> list[Completion]:
        before = await policy.chat(ASK, SAMPLING)
        check_sampled_by(servers[0].model, before)
        under_way = [asyncio.create_task(policy.chat(ASK, SAMPLING)) for _ in range(6)]
        await asyncio.sleep(0)  # they have been sent
        updating = asyncio.create_task(policy.update(weights_of(new), 4))
        await asyncio.sleep(0)
        held_back = [asyncio.create_task(policy.chat(ASK, SAMPLING)) for _ in range(6)]
        assert {(await task).version for task in under_way} == {0}
        await updating
        return [await task for task in held_back]

    after = run(servers, tmp_path / "policy", work)
    assert {completion.version for completion in after} == {4}
    for completion in after:
        check_sampled_by(new, completion)
    assert [server.reloads for server in servers] == [[(tmp_path / "policy" / "version-4", 0)]] * 2
    assert [server.emptied for server in servers] == [1, 3]
    assert not (tmp_path / "policy").exists()


def test_only_the_weights_in_use_stay_on_disk(tmp_path: Path) -> None:
    server = Server()

    async def work(policy: ServedPolicy) -> list[str]:
        for version in (1, 2, 3):
            await policy.update(weights_of(server.model), version)
        return names(tmp_path)

    assert run([server], tmp_path, work) == ["version-3"]


def test_a_server_that_offers_no_updates(tmp_path: Path) -> None:
    server = Server(offers=False)

    async def work(policy: ServedPolicy) -> Completion:
        with pytest.raises(UsageError, match="lets nobody replace its weights") as caught:
            await policy.update(weights_of(server.model), 1)
        assert "VLLM_SERVER_DEV_MODE=1" in str(caught.value.fix)
        return await policy.chat(ASK, SAMPLING)

    assert run([server], tmp_path, work).version == 0, "requests are let through again"


def test_a_server_that_fails_to_load(tmp_path: Path) -> None:
    server = Server(status=500)

    async def work(policy: ServedPolicy) -> None:
        with pytest.raises(ServerError, match=r"could not load new weights .*no such tensor"):
            await policy.update(weights_of(server.model), 1)

    run([server], tmp_path, work)


def test_a_server_whose_prefix_cache_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.llm.updates._RESET_PAUSE", 0.001)
    server = Server(refusals=1000)

    async def work(policy: ServedPolicy) -> None:
        with pytest.raises(ServerError, match="does not empty its prefix cache"):
            await policy.update(weights_of(server.model), 1)

    run([server], tmp_path, work)
