"""The process of `sweet.sandbox.reader`: it does with hostile texts what may take any time and memory, or end it.

Standard library only. It serves requests over the socket that is its standard input, one after another, each under a
limit of processor time (SIGPROF ends the process), all under a limit of memory. Requests and replies are JSON;
marshalled code follows a reply as bytes, which the other side passes on without loading them.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import signal
import socket
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

HEADER = struct.Struct("!I?")
"""Of a message: its length, and whether it is the last one of its sender."""
CPU_SECONDS = 2.0
"""Processor time for one request. A hundred thousand characters of ordinary code need a tenth of it."""
MEMORY_BYTES = 512 * 2**20
MOST_REPLIED = 16 * 2**20
"""Maximum bytes of a reply, and of all code in it."""

Reply = tuple[Any, Sequence[bytes | None]]
"""A JSON value, and pieces of code."""
Operations = Mapping[str, Callable[..., Reply]]


def reply_to(request: Any, operations: Operations, memory_bytes: int) -> bytes:
    """Return the reply to a request, [operation, arguments…]: a line of JSON, and the code."""
    pieces: Sequence[bytes | None] = []
    try:
        operation, *arguments = request
        value, pieces = operations[operation](*arguments)
        text = json.dumps({"value": value, "sizes": [None if piece is None else len(piece) for piece in pieces]})
    except MemoryError:
        text, pieces = json.dumps({"fault": f"reading it takes more than {memory_bytes >> 20} MiB of memory"}), []
    except Exception as error:  # whatever the parser or the compiler raises, it is the text's fault
        text, pieces = json.dumps({"fault": f"it cannot be read: {type(error).__name__}: {str(error)[:100]}"}), []
    data = b"\n".join([text.encode("ascii"), b"".join(piece for piece in pieces if piece is not None)])
    if len(data) > MOST_REPLIED:
        data = json.dumps({"fault": "it is too long"}).encode("ascii") + b"\n"
    return data


def serve(
    requests: socket.socket, operations: Operations, cpu_seconds: float = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES
) -> None:
    """Serve requests until the socket closes."""
    while True:
        header = requests.recv(HEADER.size, socket.MSG_WAITALL)
        if len(header) < HEADER.size:
            return
        request = json.loads(requests.recv(HEADER.unpack(header)[0], socket.MSG_WAITALL))
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        reply = reply_to(request, operations, memory_bytes)
        signal.setitimer(signal.ITIMER_PROF, 0)
        requests.sendall(HEADER.pack(len(reply), has_grown(memory_bytes)) + reply)


def has_grown(memory_bytes: int) -> bool:
    """Return whether half of the memory is in use: the process is then replaced, so that no text has less than that.

    The jail shows no process's memory, but refuses to map more than there is.
    """
    try:
        mmap.mmap(-1, memory_bytes // 2, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return True
    return False


def prepare() -> None:
    """Leave the compiler's warnings out, and let only the limit of processor time end this process."""
    warnings.simplefilter("ignore")  # the compiler's, about an answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


def main(operations: Operations, cpu_seconds: float = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES) -> None:
    """Restrict this process, say that it is ready, and serve."""
    prepare()
    for limit, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_AS, memory_bytes)):
        with contextlib.suppress(ValueError, OSError):  # not every system has them all
            resource.setrlimit(limit, (value, value))
    with socket.socket(fileno=os.dup(0)) as requests:
        requests.sendall(b"+")
        with contextlib.suppress(ConnectionError):  # the other side is gone
            serve(requests, operations, cpu_seconds, memory_bytes)
