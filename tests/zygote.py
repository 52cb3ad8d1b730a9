"""Processes that have imported what the tests' processes need, and fork a child for each of these.

Imports take most of the time of a short program, and a third of that of a process of pytest. `python -m tests.zygote
FOLDER PAD` imports nothing, and listens at a socket in FOLDER for each of `LEVELS`. With the first request for a level,
it forks the zygote of the first level, which imports what the level needs and forks that of the next one; so nothing is
imported twice, and nothing that nobody asks for. The level `all` is that of the workers of a run of all tests, and has
the modules of the tests too. The last one, of ranks, is forked beside `tests`: DeepSpeed is in no other process.
A zygote forks a child for each request, which runs what `python` with the same arguments runs: a process of its own,
with its own arguments, environment, folder, streams, signals and exit. At the exit, the interpreter would free every
object of every module, which copies all memory that the processes share and takes ten times as long as the fork: where
nothing else is left to be done, that is left to the kernel (`end`), and finalizers of objects that a zygote has made do
not run in its children.
`tests.programs` sends the requests; all zygotes end when their standard input is closed.
"""

from __future__ import annotations

import atexit
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
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module, reload
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from sweet import collector

Call: TypeAlias = tuple[dict[str, Any], list[int]]
"""A request, and the files that came with it."""
COLLECTIONS = (200_000, 20, 20)
"""The thresholds of the garbage collector, in these processes and in those of pytest: with Python's it takes a tenth of
their time."""
LIFE = 0
"""Standard input, which is closed when the tests have ended."""
STREAMS = 3
LARGEST = 1 << 20
"""Bytes of a request."""
COMMANDS = (
    *("sweet.cli.calls", "sweet.cli.stage", "sweet.cli.errors", "sweet.results.collect", "sweet.results.report_page"),
    *("sweet.sandbox.determinism", "sweet.sandbox.child", "sweet.sandbox.literals", "numpy", "numpy.random"),
    *("sweet.scoring.stage", "sweet.tasks.code.scoring", "sweet.preferences.pair", "rich._emoji_codes"),
    "sweet.llm.remote",
)
"""What commands import when they are called. `sweet eval` imports numpy, which takes most of its time."""
JAILS = ("PATH", "HOME", "SWEET_SANDBOX_IMAGE")
"""Variables by which a probe finds what it starts and what a jail hides. Where they differ, a child probes again."""
QUICK = "PYTEST_QUICK"
"""Variable that is set where only quick tests run (`-m quick`), which do not need all of this."""
TRAINING = (
    *("sweet.training.stage", "sweet.online.rank", "torch._dynamo", "tokenizers"),
    *("sweet.rollouts.stage", "sweet.ranking.stage", "sweet.online.stage", "sweet.pipeline.recipe"),
    *("sweet.pipeline.stage", "sweet.llm.embedded", "sweet.humans.asking", "sweet.humans.scripted"),
)
BELOW_RAY = ("aiohttp", "google.protobuf.descriptor_pb2", "jsonschema", "msgpack", "psutil", "requests", "wcwidth")
"""What Ray imports. Ray itself reads its variables when it is imported, in each of its processes."""
LAZY = ("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer", "LlamaForCausalLM", "PreTrainedTokenizerFast")
"""Names that transformers imports when they are used."""
TESTING = (
    *("peft", "textual.app", "textual.pilot", "textual.widgets", "aiohttp.web", "PIL.Image", "markdown_it", "grimp"),
    *("sweet.study.study", "sweet.study.seeds", "docs.tools.commands"),
    *("sweet.view.app.viewer_app", "sweet.view.app.play", "sweet.results.dialogues_page"),
    *("sweet.results.report_page", "sweet.results.study_page", "sweet.render.browsers"),
    *("sweet.render.similarity_models", "sweet.tasks.html.kind", "sweet.tasks.code.kind", "sweet.training.prepare"),
    *("sweet.learn.estimate", "sweet.environments.exporting", "sweet.llm.server", "sweet.inspection.doctor"),
)
"""What modules of tests import. Each process of pytest would import it again."""


def import_commands() -> None:
    from sweet.cli import group
    from sweet.cli.help import command_help
    from sweet.errors import SweetError
    from sweet.runs.environment import environment
    from sweet.sandbox.tiers import open_sandbox
    from sweet.tasks.micro.family import MICRO
    from sweet.tasks.micro.generator import load

    for name in group.Group.names():  # what is made of each by its first call is kept
        command = group.load(name)
        needed = [word for option in command.spec.flags if option.required for word in (option.flag, "-")]
        arguments = [one for one in command.spec.positional.values() if one.default is one.empty]
        command.make_context(name, [*needed, *("-" for _ in arguments)])
    command_help(group.load("rank"))
    for name in COMMANDS:
        import_module(name)
    for split in MICRO.splits:
        load(split)  # most programs use them
    environment("code")  # reads the metadata of each package whose version an attempt records
    with suppress(SweetError), open_sandbox():
        pass  # which jail works here is known from now on


def use_one_thread() -> None:
    """Let torch compute in this thread. A child would wait forever for other threads with which its zygote has computed
    while it imported modules of tests; `apply` lets it have its own."""
    import torch

    torch.set_num_threads(1)


def import_training() -> None:
    import transformers

    use_one_thread()
    from sweet.tasks.micro.family import LONG
    from sweet.tasks.micro.generator import load

    for name in TRAINING:
        import_module(name)
    with suppress(ModuleNotFoundError):  # Ray is optional
        for name in BELOW_RAY:
            import_module(name)
    for name in LAZY:
        getattr(transformers, name)
    with suppress(ModuleNotFoundError, AttributeError):  # compiled in each process that loads a model
        import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("llama")
    if QUICK not in os.environ:
        for split in LONG.splits:
            load(split, LONG)  # seconds in each process that plays them or compares a study with them


def import_testing() -> None:
    """What pytest's processes need. An optional package may be missing."""
    for name in TESTING:
        with suppress(ModuleNotFoundError):
            import_module(name)


class OnlyModules:
    """A plugin of pytest by which modules of tests are imported and no tests are made of them."""

    def pytest_pycollect_makeitem(self) -> list[Any]:
        return []


def import_tests() -> None:
    """All modules of tests and their conftests, with pytest's assertions. What cannot be imported is left to pytest's
    processes, which report it."""
    import pytest

    os.environ["PYTEST_XDIST_WORKER"] = "zygote"  # or tests.conftest would start zygotes
    plugins = ("cacheprovider", "faulthandler", "unraisableexception", "threadexception")
    options = ["--collect-only", "-qq", "--numprocesses=0", "--capture=no", *(f"-pno:{name}" for name in plugins)]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        pytest.main(options, plugins=[OnlyModules()])
    del os.environ["PYTEST_XDIST_WORKER"]
    draw_values()


def draw_values() -> None:
    """Let Hypothesis draw, for which it first reads the constants in all modules of the package: seconds in each
    process."""
    from hypothesis import given, settings
    from hypothesis.strategies import text

    @settings(max_examples=100, database=None, derandomize=True)
    @given(text())
    def draw(drawn: str) -> None:
        pass

    draw()


def import_ranks() -> None:
    """What ranks import when they meet. They take the accelerator from their environment, which is tested with CPUs."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    with suppress(ModuleNotFoundError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("deepspeed")


LEVELS = {
    "commands": import_commands,
    "torch": import_training,
    "tests": import_testing,
    "all": import_tests,
    "ranks": import_ranks,
}
"""What each zygote imports in addition to the one before, by the name of its socket."""
RANKS, BEFORE_RANKS = "ranks", "torch"
"""The level that no other one goes on from, and the one before it."""


def address(folder: int, level: str) -> str:
    """Return the address of a zygote's socket in an open folder, whose own path may be too long for an address."""
    return f"/proc/self/fd/{folder}/{level}"


def listen(folder: str) -> dict[str, socket.socket]:
    """Return a socket for each level."""
    listening = {level: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for level in LEVELS}
    opened = os.open(folder, os.O_DIRECTORY)
    for level, one in listening.items():
        one.bind(address(opened, level))
        one.listen()
    os.close(opened)
    print(flush=True)
    return listening


class Zygote:
    """One of these processes.

    Args:
        listening: the sockets of its level and of the later ones.
        level: the name of its level. The first process has none.
    """

    def __init__(self, listening: Mapping[str, socket.socket], level: str | None = None) -> None:
        self._level, self._own = level, listening.get(level or "")
        self._later = {name: one for name, one in listening.items() if name != level}
        self._next: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(LIFE, selectors.EVENT_READ)
        for one in listening.values():
            self._selector.register(one, selectors.EVENT_READ)
        if level:
            with collector.paused(), warnings.catch_warnings():
                warnings.simplefilter("error")
                LEVELS[level]()
            # What modules have left for the exit concerns objects of this process. torch's takes long.
            for one in tuple(weakref.finalize._registry):  # type: ignore[attr-defined]
                one.atexit = False

    def serve(self) -> Call | None:
        """Fork zygotes and children. Return what to run in a child, None in a zygote at its end."""
        while True:
            for key, _ in self._selector.select():
                if self._selector.get_map().get(key.fd) != key:
                    continue  # an event before has ended it
                if key.fileobj == LIFE:
                    for pid in self._next:
                        os.waitpid(pid, 0)
                    return None
                if key.fileobj in self._later.values():
                    if self._is_next(key.fileobj):
                        return Zygote(self._later, next(iter(self._later))).serve()
                    break  # further events may be those of sockets that are closed now
                if key.fileobj is self._own:
                    self._selector.register(self._own.accept()[0], selectors.EVENT_READ)
                elif isinstance(key.data, int):
                    self._selector.unregister(key.fileobj)  # the client has ended
                    os.kill(key.data, signal.SIGKILL)
                elif key.data:
                    self._report(key)
                elif (call := self._call(key.fileobj)) is not None:
                    return call

    def _is_next(self, asked: Any) -> bool:
        """Fork the zygote of the next level, to which the later sockets belong from now on: that of ranks, or those of
        the others, as the one that is asked for does."""
        of_ranks = self._later.get(RANKS) is asked
        parted = self._level == BEFORE_RANKS
        given = {name: one for name, one in self._later.items() if not parted or (name == RANKS) == of_ranks}
        pid = self._fork()
        if pid:
            self._next.append(pid)
            for name, one in given.items():
                self._selector.unregister(one)
                one.close()
                del self._later[name]
        else:
            self._close(given.values())
            self._later = given
        return not pid

    def _call(self, control: Any) -> Call | None:
        """Fork the child that a client asks for; return its request in the child."""
        message, files, _, _ = socket.recv_fds(control, LARGEST, STREAMS + 2)
        if not message:
            self._selector.unregister(control)
            control.close()
            return None
        pid = self._fork()
        request = json.loads(message)
        if pid == 0:
            self._close([])
            return request, files
        ended = socket.socket(fileno=files.pop())
        for file in files:
            os.close(file)
        ended.send(str(pid).encode())
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, ended))
        if request["ends_with_client"]:
            self._selector.register(ended, selectors.EVENT_READ, pid)
        return None

    def _report(self, key: selectors.SelectorKey) -> None:
        """Tell the client that a child has ended."""
        pid, ended = key.data
        self._selector.unregister(key.fileobj)
        with suppress(KeyError):
            self._selector.unregister(ended)
        os.close(key.fd)
        status = os.waitpid(pid, 0)[1]
        with ended, suppress(BrokenPipeError):
            ended.send(str(status).encode())

    def _fork(self) -> int:
        gc.freeze()  # a collection in a child would copy every page
        return os.fork()

    def _close(self, kept: Iterable[socket.socket]) -> None:
        """Close in a child what belongs to its parent."""
        left = set(kept)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, tuple):
                os.close(key.fd)
                key.data[1].close()
            elif key.fileobj != LIFE and key.fileobj not in left:
                key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


def become(request: dict[str, Any], files: Sequence[int]) -> None:
    """Make this child the process that the request describes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["new_session"]:
        os.setsid()
    os.fchdir(files[STREAMS])
    for number in range(STREAMS):
        os.dup2(files[number], number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    apply(request["environment"])
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    if dict(os.environ) != before:
        read_again(before)
    sys.executable, unbuffered = request["executable"], request["unbuffered"]
    sys.orig_argv = [sys.executable, *request["arguments"]]
    _show_arguments(sys.orig_argv)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        mode, buffering = ("rb", -1) if name == "stdin" else ("wb", 0 if unbuffered else -1)
        raw: Any = open(number, mode, buffering, closefd=False)  # noqa: SIM115 (open until the exit)
        stream = io.TextIOWrapper(
            raw,
            before.encoding,
            before.errors,
            newline="\n",
            line_buffering=(name == "stderr" or os.isatty(number)) and not unbuffered,
            write_through=unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def apply(environment: Mapping[str, str]) -> None:
    """Do what an interpreter and torch do at their start where the environment differs from this one's."""
    if environment.get("PYTHONPATH") != os.environ.get("PYTHONPATH"):
        folders = environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[1:1] = [folder for folder in folders if folder]
    if environment.get("PYTHONWARNINGS"):
        warnings.simplefilter("ignore")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(environment.get("OMP_NUM_THREADS") or os.cpu_count() or 1))


def read_again(before: Mapping[str, str]) -> None:
    """Let the client of the model hub read its variables, as its import does. All else reads them from there."""
    if (constants := sys.modules.get("huggingface_hub.constants")) is not None:
        reload(constants)
    if any(os.environ.get(name) != before.get(name) for name in JAILS) and "sweet.sandbox.tiers" in sys.modules:
        sys.modules["sweet.sandbox.tiers"].probe_tier.cache_clear()


def run(arguments: Sequence[str], *, safe_path: bool) -> None:
    """Do what `python ARGUMENTS` does: `-m MODULE …`, `-c CODE …` or `FILE …`.

    Args:
        safe_path: `python -P`, modules of the current folder cannot be imported.
    """
    match arguments:
        case ["-m", module, *rest]:
            sys.path[:1], sys.argv = [] if safe_path else _current_folder(), [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.path[0], sys.argv = "", ["-c", *rest]
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), vars(main))
        case [file, *rest]:
            sys.path[0], sys.argv = str(Path(file).parent), [file, *rest]
            runpy.run_path(file, run_name="__main__")


def end(status: int) -> None:
    """Do all that an interpreter does at its exit but free its objects, and exit. Return where more may be left to be
    done: threads that still run may print, and what cannot be written changes the status."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if threading.enumerate() != [threading.main_thread()]:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (AttributeError, OSError, ValueError):  # closed, or on a full disk: the interpreter tries it again
        return
    ctypes.CDLL(None).fflush(None)
    os._exit(status & 0xFF)


def _current_folder() -> list[str]:
    if os.environ.get("PYTHONSAFEPATH"):
        return []
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(*COLLECTIONS)
    vars(os)["fsync"] = vars(os)["fdatasync"] = lambda file: (
        None
    )  # nothing that tests write has to survive a loss of power
    call = Zygote(listen(sys.argv[1])).serve()
    if call is None:
        os._exit(0)
    become(*call)
    try:
        run(call[0]["arguments"], safe_path=call[0]["safe_path"])
    except SystemExit as exit:
        if not isinstance(exit.code, int | None):
            raise  # and print it
        end(exit.code or 0)
        raise
    end(0)
