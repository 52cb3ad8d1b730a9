"""The program of the processes: `python -m sweet.llm.hosted`, whose standard input is an end of a socket.

Through it come the sockets of clients. The program imports the libraries, which takes seconds, and forks for each of
these sockets a process that serves it: loads the model, runs its engine, and ends when the socket is closed, so also
when the client was killed. The program itself runs no thread and computes nothing, so that a fork of it can do both; it
ends when its input is closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from functools import partial
from typing import get_args

import torch

from sweet.errors import SweetError, first_line
from sweet.hf import import_libraries
from sweet.llm.base import Completion, Effort, EngineFailed, Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.hosted.frames import Answer, Frames, Opened, Opening
from sweet.tasks.base import Message


def main() -> None:
    """Fork a process for each client until the other end of the socket is closed."""
    import_libraries()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are forked
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # no other file may become standard input
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        if not os.fork():
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(_serve(socket.socket(fileno=descriptors[0])))
            return
        os.close(descriptors[0])


async def _serve(end: socket.socket) -> None:
    """Serve a client until its socket is closed."""
    frames = await Frames.over(end)
    opening: Opening | None = await anext(frames, None)
    if opening is None:
        return
    torch.set_num_threads(1)  # there is a process for each core
    try:
        client = EmbeddedClient.load(opening.model, device=opening.device)
    except SweetError as error:
        frames.send(error)
        await frames.aclose()
        return
    frames.send(Opened(client.context, {effort: client.reads(effort) for effort in get_args(Effort)}))
    try:
        await _answer(frames, client)
    finally:
        await client.aclose()


async def _answer(frames: Frames, client: EmbeddedClient) -> None:
    """Answer requests until the socket is closed."""
    running: dict[int, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as group:
        async for requests in frames:
            for request in requests:
                if request.messages is not None and request.sampling is not None:
                    chat = _chat(frames, client, request.number, request.messages, request.sampling)
                    running[request.number] = task = group.create_task(chat)
                    task.add_done_callback(partial(_forget, running, request.number))
                elif request.number in running:
                    running[request.number].cancel()
        for task in running.values():
            task.cancel()


def _forget(running: dict[int, asyncio.Task[None]], number: int, _: asyncio.Task[None]) -> None:
    del running[number]


async def _chat(
    frames: Frames, client: EmbeddedClient, number: int, messages: Sequence[Message], sampling: Sampling
) -> None:
    completion: Completion | SweetError
    try:
        completion = await client.chat(messages, sampling)
    except SweetError as error:
        completion = error
    except Exception as error:
        completion = EngineFailed(f"The model {client.model} failed: {first_line(error)}", where=client.model)
    frames.put(Answer(number, completion))
