"""The server that answers for every host: what it serves, once and over TLS, and that it serves nothing else."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest

from sweet.render.assets import AssetStore
from sweet.render.firefox import _table, _table_of_ps
from sweet.render.serving import POLICY, PageServer, certificate

pytest.importorskip("cryptography", reason="cryptography is not installed")


async def asked(server: PageServer, target: str, tunnel: str | None = None) -> tuple[str, bytes]:
    """Return the status and the whole response that a browser gets for a target, through a tunnel if one is named."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        if tunnel is not None:
            writer.write(f"CONNECT {tunnel}:443 HTTP/1.1\r\n\r\n".encode())
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            trusting = ssl.create_default_context()
            trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
            await writer.start_tls(trusting, server_hostname=tunnel)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.splitlines() if b"Content-Length" in line), 0)
        return head.decode().split(" ")[1], head + await reader.readexactly(length)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


def test_pages_assets_and_nothing_else(tmp_path: Path) -> None:
    async def work() -> None:
        server = PageServer(AssetStore(tmp_path), certificate())
        await server.listen()
        try:
            address = server.put("name", "<p>\ud83d half a character</p>")
            assert (await asked(server, "http://page.invalid/other"))[0] == "204"
            status, said = await asked(server, address)
            assert status == "200"
            assert said.endswith(b"<p>? half a character</p>")
            assert POLICY.encode() in said
            assert (await asked(server, address))[0] == "204"
            assert (await asked(server, "/id/48/30/20", tunnel="picsum.photos"))[1].count(b"\x89PNG") == 1
            assert (await asked(server, "http://picsum.photos/30/20"))[0] == "200"
            assert (await asked(server, "/", tunnel="example.com"))[0] == "204"
            assert (await asked(server, "http://127.0.0.1:22/"))[0] == "204"
            troubles = [server.trouble]
            assert (await asked(server, "/", tunnel="cdn.tailwindcss.com"))[0] == "204"
            troubles.append(server.trouble)
            assert [trouble and trouble.fix for trouble in troubles] == [None, "sweet data assets"]
        finally:
            await server.close()

    asyncio.run(work())


@pytest.mark.skipif(shutil.which("ps") is None, reason="ps is not installed")
def test_processes_are_found_without_proc_too() -> None:
    import os

    for table in (_table(), _table_of_ps()):
        (own,) = [row for row in table if row.pid == os.getpid()]
        assert (own.group, own.kilobytes > 1000, "py" in own.command) == (os.getpgrp(), True, True)
