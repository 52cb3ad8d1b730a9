"""The program as a process, and a server that misbehaves on request."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import programs

PROGRAM = [sys.executable, *programs.SWEET]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


def sweet(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run one call to its end. Options are those of subprocess.Popen; `env` is added to this process's environment."""
    return programs.run([*programs.SWEET, *words], env=os.environ | options.pop("env", {}), **options)


def started(words: Sequence[str], **more: str) -> subprocess.Popen[str]:
    """Start a call in a separate process group."""
    return programs.start(
        [*programs.SWEET, *words],
        env=os.environ | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class _Answers(http.server.BaseHTTPRequestHandler):
    """A model called m. Its behaviour depends on the server: "refuse", or "wait" until the server is closed."""

    server: Misbehaving

    def do_GET(self) -> None:
        self._say(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.request_received.set()
        if self.server.behaviour == "wait":
            self.server.over.wait(60)
        self._say(400, {"error": {"message": "no", "type": "invalid_request_error"}})

    def _say(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # the program has been stopped
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Misbehaving(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviour: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.behaviour = behaviour
        self.request_received = threading.Event()
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


@contextmanager
def misbehaving(behaviour: str) -> Iterator[Misbehaving]:
    """A server that answers every completion request with 400 ("refuse"), or does not answer ("wait")."""
    with Misbehaving(behaviour) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


def left_behind(run: Path) -> list[str]:
    """Temporary files in a run."""
    names = [path.name for path in run.rglob("*")]
    return [name for name in names if name.startswith(".manifest-") or name.endswith((".part", ".new"))]
