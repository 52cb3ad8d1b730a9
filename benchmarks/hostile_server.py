"""Servers that answer a model's client with what it must not trust: `python -m benchmarks.hostile_server NAME`.

Prints its address, and serves until stdin is closed. Each behaviour writes the answer to one request on the socket; the
paths are those of OpenAI's interface. `SECRET` marks the dialogues that must not reach another host: the line `leaked`
is printed when a request to the second listener, the target of redirects, contains it.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

MODEL = "m"
KEY = "sk-hostile-0123456789"
"""The API key of the client, which some of the servers echo."""
LARGE = 100 * 2**20
BOMB = 2**29
"""Bytes of a compressed body after it was decompressed; it has half a megabyte before."""
MANY = 100_000


def reply(content: Any = "It is 5.", **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop", **more}]}


def models(*names: str) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name} for name in names or (MODEL,)]}


class Connection:
    """One connection of a client."""

    def __init__(self, connected: socket.socket, other: str) -> None:
        self.socket, self.other = connected, other
        self.key = ""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, body: Any, status: str = "200 OK", *headers: str) -> None:
        """Send a whole answer; a body that is no bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send(head(status, f"Content-Length: {len(data)}", *headers) + data)

    def endless(self, piece: bytes, status: str = "200 OK", *, pause: float = 0.0, start: bytes = b"") -> None:
        """Send `piece` again and again, until the client hangs up."""
        self.send(head(status, "Transfer-Encoding: chunked"))
        chunk = f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
        self.send(f"{len(start):x}\r\n".encode() + start + b"\r\n" if start else b"")
        while True:
            self.send(chunk)
            time.sleep(pause)

    def requests(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield method, path and body of each request."""
        file = self.socket.makefile("rb")
        while line := file.readline():
            method, path, _ = line.decode().split(" ", 2)
            length = 0
            while (header := file.readline().strip()) != b"":
                name, _, value = header.decode("latin-1").partition(":")
                if name.lower() == "content-length":
                    length = int(value)
                if name.lower() == "authorization":
                    self.key = value.strip()
            yield method, path, file.read(length)


def head(status: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "Content-Type: application/json", *headers, "", ""]).encode("latin-1")


@functools.cache
def packed(size: int, times: int = 1) -> bytes:
    """Return `size` blanks and a brace, compressed this many times."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join(
        [*(packer.compress(b" " * 2**20) for _ in range(size >> 20)), packer.compress(b"{}"), packer.flush()]
    )
    for _ in range(times - 1):
        data = gzip.compress(data)
    return data


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def wait(retry_after: str) -> Callable[[Connection], None]:
    return lambda to: to.answer(error("later"), "429 Too Many Requests", f"Retry-After: {retry_after}")


def silent(_to: Connection) -> None:
    time.sleep(600)


def dripping(to: Connection) -> None:
    to.endless(b" ", pause=0.1)


def gone(to: Connection) -> None:
    to.send(head("200 OK", "Content-Length: 1000") + b'{"choices": [')
    to.socket.close()


def endless_headers(to: Connection) -> None:
    to.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        to.send(b"X-More: " + b"a" * 4000 + b"\r\n")


def dripping_headers(to: Connection) -> None:
    to.send(b"HTTP/1.1 200 OK\r\nX-More: ")
    while True:
        to.send(b"a")
        time.sleep(0.1)


def redirect(status: str) -> Callable[[Connection], None]:
    return lambda to: to.answer({}, status, f"Location: {to.other}/v1/chat/completions")


def nested(depth: int) -> bytes:
    return b'{"choices": ' + b"[" * depth + b"]" * depth + b"}"


Behaviour = Callable[[Connection], None]

CHATS: dict[str, Behaviour] = {
    "honest": lambda to: to.answer(reply()),
    "gzip-bomb": lambda to: to.answer(packed(BOMB), "200 OK", "Content-Encoding: gzip"),
    "gzip-bomb-twice": lambda to: to.answer(packed(BOMB, 2), "200 OK", "Content-Encoding: gzip, gzip"),
    "gzip-bomb-error": lambda to: to.answer(packed(BOMB), "500 Internal Server Error", "Content-Encoding: gzip"),
    "gzip-broken": lambda to: to.answer(packed(2**20)[:-9] + b"x" * 9, "200 OK", "Content-Encoding: gzip"),
    "endless": lambda to: to.endless(b" " * 2**16),
    "endless-text": lambda to: to.endless(b"a" * 2**16, start=b'{"choices":[{"message":{"content":"'),
    "endless-error": lambda to: to.endless(b"a" * 2**16, "400 Bad Request"),
    "endless-headers": endless_headers,
    "dripping": dripping,
    "dripping-headers": dripping_headers,
    "silent": silent,
    "gone": gone,
    "longer-than-said": lambda to: to.send(head("200 OK", "Content-Length: 2") + json.dumps(reply()).encode()),
    "large-reply": lambda to: to.answer(reply("a" * LARGE)),
    "large-error": lambda to: to.answer(error("a" * LARGE), "400 Bad Request"),
    "large-param": lambda to: to.answer(
        error("unsupported value: 'x'", param="a" * 2**20, code="b" * 2**20), "400 Bad Request"
    ),
    "many-choices": lambda to: to.answer({"choices": reply()["choices"] * MANY}),
    "many-logprobs": lambda to: to.answer(
        reply(logprobs={"content": [{"token": "a", "logprob": -1.0, "top_logprobs": []}] * MANY})
    ),
    "nested": lambda to: to.answer(nested(10**6)),
    "no-json": lambda to: to.answer(b"<html>\x1b[31m\xff\x9b31m"),
    "wrong-types": lambda to: to.answer({"choices": [{"message": {"content": {"a": [1]}}, "finish_reason": 7}]}),
    "no-choices": lambda to: to.answer({"choices": []}),
    "null": lambda to: to.answer(reply(None)),
    "empty": lambda to: to.answer(b""),
    "nan": lambda to: to.answer(
        b'{"choices":[{"message":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":NaN}]}}]}'
    ),
    "large-numbers": lambda to: to.answer({**reply(), "usage": {"prompt_tokens": 10**400, "completion_tokens": -1}}),
    "surrogates": lambda to: to.answer(b'{"choices":[{"message":{"content":"\\ud800\\u0000\\u009b31m\\u202e"}}]}'),
    "marker-and-blanks": lambda to: to.answer(reply("I WANT TO ANSWER" + " " * 10**6)),
    "output-and-quotes": lambda to: to.answer(reply("I WANT TO ANSWER:\n" + " >#" * 300_000)),
    "newlines": lambda to: to.answer(reply("\n" * 10**6)),
    "decorators": lambda to: to.answer(reply("@a\n" * 300_000)),
    "escapes-in-error": lambda to: to.answer(error("\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"), "400 Bad Request"),
    "status-999": lambda to: to.answer({}, "999 Strange"),
    "status-101": lambda to: to.answer({}, "101 Switching Protocols"),
    "no-http": lambda to: to.send(b"\0\1\2\3" * 1000),
    "retry-after-nan": wait("nan"),
    "retry-after-infinite": wait("inf"),
    "retry-after-negative": wait("-5"),
    "retry-after-late": wait("1e9"),
    "retry-after-long": wait("9" * 5000),
    "redirect-307": redirect("307 Temporary Redirect"),
    "redirect-308": redirect("308 Permanent Redirect"),
    "redirect-302": redirect("302 Found"),
    "redirect-loop": lambda to: to.answer({}, "307 Temporary Redirect", "Location: /v1/chat/completions"),
    "redirect-file": lambda to: to.answer({}, "307 Temporary Redirect", "Location: file:///etc/passwd"),
    "echoes-key": lambda to: to.answer(error(f"wrong header: {to.key}"), "400 Bad Request"),
    "echoes-key-in-reply": lambda to: to.answer(error(f"no such model {KEY}"), "404 Not Found"),
}
"""Answers to chats; the list of models is honest."""

LISTS: dict[str, Behaviour] = {
    "models-gzip-bomb": CHATS["gzip-bomb"],
    "models-endless": CHATS["endless"],
    "models-endless-headers": endless_headers,
    "models-dripping": dripping,
    "models-dripping-headers": dripping_headers,
    "models-silent": silent,
    "models-gone": gone,
    "models-nested": CHATS["nested"],
    "models-retry-after-nan": wait("nan"),
    "models-retry-after-late": wait("1e9"),
    "models-many": lambda to: to.answer(models(*(f"some-model-{number}" for number in range(MANY)))),
    "models-long-name": lambda to: to.answer(models("a" * LARGE)),
    "models-escapes": lambda to: to.answer(models("\x1b]0;owned\x07\x1b[2J\x9b31m\u202e")),
    "models-wrong-types": lambda to: to.answer({"data": {"id": [1]}}),
    "models-none": lambda to: to.answer({"data": []}),
    "models-echo-key": lambda to: to.answer(error(f"wrong header: {to.key}"), "401 Unauthorized"),
    "models-redirect": redirect("307 Temporary Redirect"),
    "models-large-error": CHATS["large-error"],
}
"""Answers to the question which models there are; chats are answered honestly."""

HOSTILE = tuple(name for name in (*CHATS, *LISTS) if name != "honest")


def serve(connected: socket.socket, name: str, other: str) -> None:
    """Answer the requests of one connection."""
    with connected, contextlib.suppress(OSError, ValueError):
        to = Connection(connected, other)
        for _, path, _body in to.requests():
            lists = path.endswith("/models")
            if lists and name not in LISTS:
                to.answer(models())
            elif lists:
                LISTS[name](to)
            else:
                CHATS.get(name, CHATS["honest"])(to)


def watch(connected: socket.socket) -> None:
    """Say on stdout if a request of this connection carries a dialogue or the key."""
    with connected, contextlib.suppress(OSError, ValueError):
        to = Connection(connected, "")
        for _, _path, body in to.requests():
            if b"messages" in body or KEY in to.key:
                print("leaked", flush=True)
            to.answer(reply())


def listen(host: str, handle: Callable[[socket.socket], None]) -> int:
    """Serve each connection in a thread of its own, and return the port."""
    listener = socket.create_server((host, 0))

    def accept() -> None:
        while True:
            connected, _ = listener.accept()
            threading.Thread(target=handle, args=(connected,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


def main() -> None:
    if "bomb" in sys.argv[1]:  # made before the client waits for it
        packed(BOMB, 2 if "twice" in sys.argv[1] else 1)
    other = f"http://localhost:{listen('127.0.0.1', watch)}"
    port = listen("127.0.0.1", lambda connected: serve(connected, sys.argv[1], other))
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
