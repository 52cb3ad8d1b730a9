"""A real server on the loopback interface, in a thread of its own, for stages that run an event loop themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sweet.llm.listening import listening

Answer = Callable[[dict[str, Any]], Response]


class ChatServer:
    """Answers each chat by `answer(body)` under the name `model`; keeps what it was asked.

    Attributes:
        lasts: after so many answers the server is gone, its port closed; None where it stays.
    """

    def __init__(self, model: str, answer: Answer, *, lasts: int | None = None) -> None:
        self.model, self.answer, self.lasts = model, answer, lasts
        self.asked: list[dict[str, Any]] = []
        self.url = ""
        self._up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._app = Starlette(
            routes=[Route("/v1/models", self._models), Route("/v1/chat/completions", self._chat, methods=["POST"])]
        )

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": self.model}]})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        if self.lasts is not None and len(self.asked) > self.lasts:
            self._over.set()
            return JSONResponse({"error": {"message": "going"}}, status_code=503)
        return self.answer(body)

    async def _serve(self) -> None:
        async with listening(self._app, "127.0.0.1", 0) as url:
            self.url = url
            self._up.set()
            await self._over.wait()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its address, while it runs."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            assert self._up.wait(90)
            yield self.url
        finally:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._over.set)
            thread.join()


def said(*texts: str, tokens: list[dict[str, Any]] | None = None) -> Response:
    """A chat answer of these replies; `tokens` are the log-probabilities of each, as OpenAI's interface has them."""
    logprobs = None if tokens is None else {"content": tokens}
    return JSONResponse(
        {
            "choices": [
                {"index": i, "message": {"content": text}, "finish_reason": "stop", "logprobs": logprobs}
                for i, text in enumerate(texts)
            ],
            "usage": {"prompt_tokens": 10, "completion_tokens": 4},
        }
    )


def refused(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status)
