"""A stand-in for `vllm`: it parses the same command line, has a worker, serves HTTP and obeys signals, but always
returns the same text. Further switches make it die, hang or refuse."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

PROGRAM = """\
#!{python}
import json, os, signal, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
args = sys.argv[1:]
print("\\x1b[31mloading\\x1b[0m", args, flush=True)
if "--die" in args:
    print("torch.OutOfMemoryError: no room", file=sys.stderr)
    sys.exit(3)
if "--gated" in args:
    sys.exit("OSError: You are trying to access a gated repo.\\nMake sure to have access to it.")
if "--stubborn" in args:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(os.environ["STAND_IN_STATE"], "a") as file:
    key = os.environ.get("VLLM_API_KEY")
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    file.write(json.dumps({{"args": args, "worker": worker.pid, "pid": os.getpid(), "key": key, "gpus": gpus}}) + "\\n")
if "STAND_IN_DOWNLOAD" in os.environ:
    os.makedirs(os.path.dirname(os.environ["STAND_IN_DOWNLOAD"]))
    for _ in range(6):
        with open(os.environ["STAND_IN_DOWNLOAD"], "ab") as file:
            file.write(b"0" * 9000)
        time.sleep(0.5)
if "--slow" in args:
    time.sleep(600)
def value(name):
    return args[args.index(name) + 1] if name in args else None
adapter = value("--lora-modules")
names = [value("--served-model-name")] + ([json.loads(adapter)["name"]] if adapter else [])
class Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        said = {{"/health": {{}}, "/version": {{"version": "9.8.7"}}}}
        length = int(value("--max-model-len") or 0) or None
        self.answer(said.get(self.path, {{"data": [{{"id": name, "max_model_len": length}} for name in names]}}))
        if "--die-later" in args and self.path == "/v1/models":
            os._exit(4)
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(os.environ["STAND_IN_STATE"] + ".asked", "a") as file:
            file.write(body["model"] + "\\n")
        if "--die-when-asked" in args:
            print("EngineDeadError: gone", flush=True)
            os._exit(5)
        if "--never-answer" in args:
            time.sleep(600)
        if "prompt" in body:  # of plain completions, whose replies end with their last token
            return self.answer({{"usage": {{"completion_tokens": body["max_tokens"] * len(body["prompt"])}}}})
        content = body["messages"][0]["content"]
        human = (content if isinstance(content, str) else content[-1]["text"]).startswith("You play")
        asked = "I do not know," if human else "What else?"
        message = {{"role": "assistant", "content": asked + " said " + body["model"]}}
        choice = {{"message": message, "finish_reason": "stop", "token_ids": [1, 2]}}
        choices = [dict(choice, index=i) for i in range(body["n"])]
        self.answer({{"choices": choices, "usage": {{"prompt_tokens": 5, "completion_tokens": 2 * body["n"]}}}})
    def log_message(self, *_):
        pass
ThreadingHTTPServer((value("--host"), int(value("--port"))), Handler).serve_forever()
"""
EMBEDDED = """\
#!/bin/sh
exec {python} -m sweet serve-sim --engine embedded --model "$2" --host "$4" --port "$6" --device cpu
"""
"""Computes the model: `vllm serve MODEL --host HOST --port PORT …` by the embedded engine."""


@dataclass
class StandIn:
    """The stand-in, first on the PATH.

    Attributes:
        state: one line for each time it was started.
        machine: in the names of its GPUs.
    """

    folder: Path
    state: Path
    machine: str = field(default_factory=lambda: uuid4().hex)

    def starts(self) -> list[dict[str, Any]]:
        """Arguments and process ids of each start."""
        return [json.loads(line) for line in self.state.read_text().splitlines()] if self.state.exists() else []

    def started(self) -> dict[str, Any]:
        """The first start; waits for it."""
        self.wait_for(self.starts)
        return self.starts()[0]

    def wait_for(self, what: Callable[[], list[Any]]) -> None:
        ends = time.monotonic() + 60
        while not what():
            assert time.monotonic() < ends, "timed out"
            time.sleep(0.02)

    def asked(self) -> list[str]:
        """The requested model of each request."""
        path = Path(f"{self.state}.asked")
        return path.read_text().splitlines() if path.exists() else []

    def all_gone(self, seconds: float = 60.0) -> bool:
        """Whether neither the server nor its workers are alive."""
        return bool(self.starts()) and all(gone(s[name], seconds) for s in self.starts() for name in ("pid", "worker"))

    def add_program(self, name: str, text: str) -> None:
        program = self.folder / "bin" / name
        program.write_text(text)
        program.chmod(0o755)

    def uuid(self, index: int) -> str:
        """Return the name of a GPU of `show_gpus`, which no test that runs meanwhile has: a GPU that the server of
        another command holds is not seen."""
        return f"GPU-{self.machine}-{index}"

    def show_gpus(self, *memory: str) -> None:
        """Make nvidia-smi show a GPU for each memory (free, total)."""
        self.show_rows(*(f"{index}, {self.uuid(index)}, {each}" for index, each in enumerate(memory)))

    def show_rows(self, *rows: str) -> None:
        """Make nvidia-smi print these rows (index, uuid, free, total)."""
        self.add_program("nvidia-smi", "#!/bin/sh\n" + "".join(f"echo '{row}'\n" for row in rows))


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    if (Path(sys.executable).parent / "vllm").exists():
        pytest.skip("a real vllm lies beside this Python")
    made = StandIn(folder, folder / "state.json")
    (folder / "bin").mkdir()
    made.add_program("vllm", PROGRAM.format(python=sys.executable))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_STATE", str(made.state))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


def gone(pid: int, seconds: float = 60.0) -> bool:
    """Whether the process has ended, or ends within `seconds`."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if status == "Z":
            return True
        time.sleep(0.02)
    return False
