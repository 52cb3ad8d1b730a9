"""The way of a program in a jail to the gateway. Standard library only: in the jail this file is a program of its own.

    program -> 127.0.0.1:PORT in the jail -> Unix socket, visible in the jail -> the gateway's 127.0.0.1:PORT
               (`main`)                                                         (`serve`)

The jail has a network of its own, in which nothing else listens.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

LIMITS = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 1 << 28, resource.RLIMIT_NOFILE: 1024}
"""Of the program: no core files, bytes of a file, open files."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def joined(
    connect: Callable[[], Awaitable[Streams]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer a connection by copying both directions to another one until either ends."""
    with suppress(OSError):
        other_reader, other_writer = await connect()
        copies = [*map(asyncio.ensure_future, (_copied(reader, other_writer), _copied(other_reader, writer)))]
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        for copy in copies:
            copy.cancel()
        other_writer.close()
    writer.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


async def serve(path: str, host: str, port: int) -> asyncio.Server:
    """Listen on a Unix socket for connections to an address."""
    return await asyncio.start_unix_server(partial(joined, partial(asyncio.open_connection, host, port)), path)


def main() -> None:
    """Become the program of the words behind SOCKET, PORT and TASKS, beside a child that relays until the jail ends."""
    path, port, tasks, *words = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", int(port)))
    if os.fork():
        listener.close()
        bounds = {resource.RLIMIT_NPROC: int(tasks)} if int(tasks) else {}
        for limit, most in (LIMITS | bounds).items():
            resource.setrlimit(limit, (most, most))
        os.execvp(words[0], words)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)

    async def relay() -> None:
        answer = partial(joined, partial(asyncio.open_unix_connection, path))
        async with await asyncio.start_server(answer, sock=listener) as server:
            await server.serve_forever()

    asyncio.run(relay())


if __name__ == "__main__":
    main()
