"""The protocol against a server that answers as Firefox may: late, out of order, with errors, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from sweet.render.bidi import Session
from sweet.render.driver import Disconnected, DriverError


async def odd(request: web.Request) -> web.WebSocketResponse:
    """Holds all commands until it is asked to answer, and answers them in reverse order."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    kept: list[dict[str, Any]] = []
    async for message in socket:
        said = message.json()
        if said["method"] in ("session.new", "answer"):
            for noise in ("[]", "{", "null", '{"id": null, "error": "x"}', '{"type": "event", "params": {}}'):
                await socket.send_str(noise)
            for each in [said, *reversed(kept)]:
                await socket.send_json({"type": "success", "id": each["id"], "result": each["params"]})
        elif said["method"] == "fail":
            await socket.send_json({"type": "error", "id": said["id"], "error": "no such frame", "message": "gone"})
        elif said["method"] == "end":
            await socket.close()
        else:
            kept.append(said)
    return socket


def test_answers_are_matched_to_commands() -> None:
    async def work() -> None:
        app = web.Application()
        app.router.add_get("/session", odd)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        session = await Session.connect(port)
        try:
            first = [asyncio.create_task(session.do("keep", number=number)) for number in range(3)]
            await asyncio.sleep(0)
            given_up = asyncio.create_task(session.do("keep"))
            await asyncio.sleep(0.05)
            given_up.cancel()
            await session.do("answer")
            assert await asyncio.gather(*first) == [{"number": number} for number in range(3)]
            with pytest.raises(DriverError, match="no such frame: gone"):
                await session.do("fail")
            waiting = asyncio.create_task(session.do("keep"))
            await asyncio.sleep(0)
            for what in (session.do("end"), waiting, session.do("keep")):
                with pytest.raises(Disconnected):
                    await what
            assert session.ended
        finally:
            await session.close()
            await runner.cleanup()
        with pytest.raises(Disconnected):
            await Session.connect(port)

    asyncio.run(work())
