"""A process that has imported `sweet` and forks a child for each program to run.

`python -m tests.zygote SOCKET torch PAD`; without `torch`, an empty word is in its place. Imports take most of the time
of a short program. A forked child is a process of its own, with its own arguments, environment, folder, streams,
signals and exit, and it runs what `python` with the same arguments runs. `tests.programs` sends the requests; this
process ends when the other end of the socket is closed.
"""

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from sweet import collector

STREAMS = 3
TRAINING = ("sweet.training.trainer", "sweet.learn.reference", "sweet.learn.worker", "torch._dynamo", "tokenizers")
LAZY = ("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer", "LlamaForCausalLM", "PreTrainedTokenizerFast")
"""Names that transformers imports when they are used."""


def import_commands() -> None:
    from sweet.cli.app import declarations

    declarations()
    for name in ("sweet.cli.calls", "sweet.cli.signals", "sweet.cli.verbose"):
        import_module(name)


def import_training() -> None:
    import transformers

    for name in TRAINING:
        import_module(name)
    for name in LAZY:
        getattr(transformers, name)


def serve(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork a child for each request. Return the request and its files in the child, None in the zygote at its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not control:
                    pid, ended = key.data
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    status = os.waitpid(pid, 0)[1]
                    with ended, suppress(BrokenPipeError):
                        ended.send(str(status).encode())
                    continue
                message, files, _, _ = socket.recv_fds(control, 1 << 20, STREAMS + 2)
                if not message:
                    return None
                request = json.loads(message)
                gc.freeze()  # a collection in a child would copy every page
                pid = os.fork()
                if pid == 0:
                    return request, files
                ended = socket.socket(fileno=files.pop())
                for file in files:
                    os.close(file)
                ended.send(str(pid).encode())
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, ended))


def become(request: dict[str, Any], files: Sequence[int]) -> None:
    """Make this child the process that the request describes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["new_session"]:
        os.setsid()
    os.fchdir(files[STREAMS])
    for number in range(STREAMS):
        os.dup2(files[number], number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.orig_argv = [sys.executable, *request["arguments"]]
    _show_arguments(sys.orig_argv)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        raw = open(number, "rb" if name == "stdin" else "wb", closefd=False)  # noqa: SIM115 (open until the exit)
        lines = name == "stderr" or os.isatty(number)
        stream = io.TextIOWrapper(raw, before.encoding, before.errors, newline="\n", line_buffering=lines)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(arguments: Sequence[str]) -> None:
    """Do what `python ARGUMENTS` does: `-m MODULE …`, `-c CODE …` or `FILE …`."""
    match arguments:
        case ["-m", module, *rest]:
            sys.path[:1], sys.argv = _current_folder(), [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.path[0], sys.argv = "", ["-c", *rest]
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case [file, *rest]:
            sys.path[0], sys.argv = str(Path(file).parent), [file, *rest]
            runpy.run_path(file, run_name="__main__")


def _current_folder() -> list[str]:
    try:
        return [str(Path.cwd())]
    except FileNotFoundError:  # it has been deleted
        return []


def _show_arguments(arguments: Sequence[str]) -> None:
    """Replace the arguments that /proc shows; PAD has made the space. Longer ones are cut."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, see proc(5)
    text = b"".join(os.fsencode(word) + b"\0" for word in arguments)
    ctypes.memmove(start, text[: end - start - 1].ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    with collector.paused():
        import_commands()
        if sys.argv[2] == "torch":
            import_training()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        call = serve(control)
    if call is not None:
        become(*call)
        run(call[0]["arguments"])
