"""The end of long work is notified to an address, and never fails the work."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweet.cli import long_work
from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests.cli.conftest import Program
from tests.cli.test_commands import row

SECRET = "T0000-B1111-secret"
EVAL = ("eval", "runs/r", "--sandbox", "unsafe")


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, json.loads(content)))
        if self.server.status is None:
            self.server.over.wait(60)
            self.close_connection = True
            return
        self.send_response(self.server.status)
        self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Receiver(http.server.ThreadingHTTPServer):
    """Attributes:
    status: what it answers; None for no answer.
    received: path and content of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status: int | None = 204
        self.received: list[tuple[str, Any]] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def address(receiver: Receiver) -> str:
    return f"{receiver.url}/services/{SECRET}"


@pytest.fixture
def run(workplace: Path) -> Run:
    file = workplace / "in.jsonl"
    file.write_text("".join(json.dumps(row(name, None)) + "\n" for name in "ab"))
    run_data_import(file, Path("runs/r"), DataImportConfig(), Silent())
    return Run(Path("runs/r"))


def test_an_address_gets_the_outcome_and_appears_nowhere(
    run: Run, sweet: Program, receiver: Receiver, address: str
) -> None:
    outcome = sweet(*EVAL, "--notify", address, "--verbose", "--debug")
    assert outcome.code == 0
    ((path, content),) = receiver.received
    assert path == f"/services/{SECRET}"
    seconds = content.pop("seconds")
    assert 0 <= seconds < 60
    metrics = content.pop("metrics")
    assert metrics["success_rate"] == run.manifest().attempts[-1].metrics["success_rate"]
    assert content == {"run": "runs/r", "stage": "eval", "attempt": "eval-1", "status": "done", "exit_code": 0}
    written = b"".join(path.read_bytes() for path in run.path.rglob("*") if path.is_file())
    assert SECRET not in outcome.out + outcome.err
    assert SECRET.encode() not in written


def test_failures_are_notified_with_their_exit_code(
    run: Run, sweet: Program, receiver: Receiver, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEET_NOTIFY", address)
    sweet(*EVAL)
    assert sweet("label", "runs/r").code == 1, "there is nothing to prefer"
    assert sweet("label", "runs/r", "--from", "scores-9").code == 2, "no attempt was begun"
    contents = [content for _, content in receiver.received]
    assert [(one["stage"], one["status"], one["exit_code"]) for one in contents] == [
        ("eval", "done", 0),
        ("label", "failed", 1),
    ]
    sweet(*EVAL, "--notify", "off")
    assert len(receiver.received) == 2


@pytest.mark.parametrize(
    ("status", "why"),
    [(500, "it answered 500"), (307, "it answered 307"), (302, "it answered 302"), (None, "no answer")],
)
def test_an_address_that_fails_is_a_warning(
    run: Run,
    sweet: Program,
    receiver: Receiver,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    status: int | None,
    why: str,
) -> None:
    receiver.status = status
    monkeypatch.setattr(long_work, "TIME_LIMIT", 0.3 if status is None else 10.0)
    outcome = sweet(*EVAL, "--notify", address)
    assert outcome.code == 0
    assert f"127.0.0.1 was not notified: {why}" in outcome.err
    assert SECRET not in outcome.err
    assert len(receiver.received) <= 1, "no redirect is followed"


def test_an_address_where_nobody_listens_is_a_warning(run: Run, sweet: Program) -> None:
    outcome = sweet(*EVAL, "--notify", f"http://127.0.0.1:9/{SECRET}")
    assert outcome.code == 0
    assert "127.0.0.1 was not notified: ConnectionRefusedError" in outcome.err


@pytest.mark.parametrize(
    "address",
    [f"ftp://host/{SECRET}", f"file:///{SECRET}", SECRET, f"http://user:{SECRET}@host/", f"http://h:x/{SECRET}"],
)
def test_what_is_no_address_is_refused_without_being_shown(run: Run, sweet: Program, address: str) -> None:
    outcome = sweet(*EVAL, "--notify", address)
    assert outcome.code == 2
    assert "--notify" in outcome.err
    assert SECRET not in outcome.err
    assert len(run.manifest().attempts) == 1, "nothing was begun"
