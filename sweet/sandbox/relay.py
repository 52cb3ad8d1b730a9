"""The first process of a container: it starts the zygote and acts as its parent. Standard library only.

Descriptors cannot be passed into a container, so the traffic of the zygote's socket goes over stdin and stdout here, in
frames (kind, length, data). In: `M` the modules, `S` bytes for the zygote, `R` a program to run, `K`. Out: `o` bytes of
the zygote, `d` results of the child, `e` their end. The other side is `sweet.sandbox.container`. When stdin closes, the
parent is gone: this process ends, and since it is the first of its container, all others end with it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import types

FRAME = struct.Struct("!cI")


def _take(size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data


def _frame() -> tuple[bytes, bytes]:
    kind, size = FRAME.unpack(_take(FRAME.size))
    return kind, _take(size)


def _send(kind: bytes, data: bytes) -> None:
    whole = FRAME.pack(kind, len(data)) + data
    while whole:
        whole = whole[os.write(1, whole) :]


def _start_zygote() -> socket.socket:
    """Fork the zygote before any program arrives; it has its end of the socket, and no stream of this process."""
    _, modules = _frame()
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        return ours
    try:
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        for name, source in json.loads(modules).items():
            module = sys.modules[name] = types.ModuleType(name)
            exec(compile(source, f"<{name}>", "exec"), module.__dict__)
        sys.modules["zygote"].main(theirs)
    finally:
        os._exit(1)


def _hand_over(orders: socket.socket, program: bytes) -> int:
    """Order the zygote to run a program; return the reading end of the pipe for its results."""
    order = os.memfd_create("order")
    with open(order, "wb", closefd=False) as file:
        file.write(program)
    os.lseek(order, 0, os.SEEK_SET)
    reading, writing = os.pipe()
    opened = [order, writing, os.open(os.devnull, os.O_RDWR)]
    socket.send_fds(orders, [b"R"], opened)
    for descriptor in opened:
        os.close(descriptor)
    return reading


def main() -> None:
    orders = _start_zygote()
    results = -1
    while True:
        waiting = [0, orders.fileno()] + ([results] if results >= 0 else [])
        ready, _, _ = select.select(waiting, [], [])
        if results in ready:
            data = os.read(results, 1 << 16)
            _send(b"d" if data else b"e", data)
            if not data:
                os.close(results)
                results = -1
        if orders.fileno() in ready:
            data = orders.recv(1 << 16)
            if not data:
                os._exit(1)
            _send(b"o", data)
        if 0 in ready:
            kind, data = _frame()
            if results >= 0 and kind in (b"R", b"K"):
                os.close(results)
                results = -1
            if kind == b"R":
                results = _hand_over(orders, data)
            else:
                orders.sendall(data)


main()
