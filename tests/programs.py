"""Python programs in processes of their own, most of them forked by a zygote that has imported `sweet`.

`tests.zygote` explains zygotes. The first process of pytest starts them and ends them (`zygotes`), and its workers use
the same ones, and are forked by one themselves (`tests.worker`). A program that does not need torch is forked by a
process that has not imported it: the fork and the exit of one that has take five times as long.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.zygote import address

ROOT = Path(__file__).parents[1]
SWEET = ("-m", "sweet")
NEED_TORCH = {"train-critic", "train-actor", "train", "train-online", "rank", "rollout", "play", "gateway", "demo"}
"""Commands that import torch, if they get that far."""
SET_BY_IMPORTS = (
    *("RAY_CLIENT_MODE", "PYTHONBREAKPOINT", "PYTORCH_NVML_BASED_CUDA_CHECK", "TORCHINDUCTOR_CACHE_DIR"),
    "PYGAME_HIDE_SUPPORT_PROMPT",
)
"""Set by ray (the second when it joins a cluster), deepspeed, peft and gymnasium in the process that uses them; without
them, each sets its variable to the same."""
QUIET = ("TORCH_CPP_LOG_LEVEL", "TRANSFORMERS_VERBOSITY", "TQDM_DISABLE")
"""Set by commands for what they import and start: less is logged."""
SWITCH = "PYTEST_FORKS"
"""Variable that turns forking off (`PYTEST_FORKS=off pytest`): every program is then run by a new interpreter."""
WORKERS = "PYTEST_ZYGOTE"
"""Variable with the level of the zygote that forks pytest-xdist's workers."""
FOLDER = "ZYGOTES_OF_TESTS"
"""Variable with the folder of the zygotes' sockets. It has three files more:"""
INTERPRETER = "python"
"""An executable that stands in for the interpreter (`tests.interpreter`); missing if a script cannot name that."""
LONGEST = 120
"""Characters of the path of an interpreter that the first line of a script can name everywhere."""
ENVIRONMENT = "environment.json"
"""Their environment."""
ERRORS = "errors"
"""What they write before they end with an error."""
READ_BY_CALLS = (
    "SWEET_",
    "SLURM_",
    "FAKE_",
    "STAND_IN_",
    "TINKER_",
    "CUDA_VISIBLE_DEVICES",
    "VLLM_",
    "PYTEST_",
    "COLUMNS",
    "LINES",
    "TERM",
    "PATH",
    "PWD",
    "OLDPWD",
    "NO_COLOR",
    *SET_BY_IMPORTS,
    *QUIET,
)
"""Variables that no module reads when it is imported, nor the interpreter when it starts."""
APPLIED = ("PYTHONPATH", "PYTHONSAFEPATH", "PYTHONWARNINGS", "OMP_NUM_THREADS")
"""Variables that are read then, and that `tests.zygote` applies in a forked process."""
READ_AGAIN = ("HF_",)
"""Variables that huggingface_hub reads when it is imported; `tests.zygote` lets it read them again."""
READ_BY_RANKS = ("RANK", "LOCAL_", "GROUP_", "ROLE_", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_", "TORCH_NCCL_", "GLOO_")
"""Variables that torch's launcher sets, which are read when ranks meet."""
READ_BY_RAY = ("RAY_", "LD_PRELOAD", "SPT_NOENV", "CUDA_VISIBLE_DEVICES")
"""Variables of Ray's workers, which are read when they import Ray and when CUDA is used."""


def start(
    arguments: Sequence[str | Path],
    *,
    torch: bool = False,
    env: Mapping[str, str] | None = None,
    executable: str | None = None,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start `python ARGUMENTS`. Further options are those of subprocess.Popen.

    The process is forked by the zygote, unless it differs in what only a new interpreter reads: a variable such as
    PYTHONUNBUFFERED, or a `preexec_fn`.

    Args:
        torch: the program needs torch and transformers, which its zygote has imported; `sweet train-critic` and
            `train-actor` always do.
        executable: the `sys.executable` of a program that is forked; by default the one by which its own programs are
            forked too. Tests that kill the program and look for its ranks give the interpreter.
    """
    words = [str(argument) for argument in arguments]
    environment = dict(os.environ if env is None else env)
    can_be_forked = FOLDER in os.environ and options.get("preexec_fn") is None
    if can_be_forked and all(name.startswith((*READ_BY_CALLS, *READ_AGAIN)) for name in _different(environment)):
        level = "torch" if torch or needs_torch(words) else "commands"
        return Forked(zygote(level), words, environment, executable or interpreter(), **options)
    return subprocess.Popen([sys.executable, *words], env=environment, **options)


def needs_torch(words: Sequence[str]) -> bool:
    """Whether `python WORDS` is a command that imports torch."""
    return tuple(words[:2]) == SWEET and (not NEED_TORCH.isdisjoint(words[2:3]) or "embedded" in words)


def run(arguments: Sequence[str | Path], *, timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` to its end. Options are those of `start`; stdout and stderr are captured unless given."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(arguments, text=True, **pipes | options) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@contextmanager
def zygotes(folder: Path) -> Iterator[None]:
    """Start the zygotes of this process and of its workers. Elsewhere than on Linux, programs are not forked."""
    if not hasattr(os, "pidfd_open"):
        yield
        return
    folder.mkdir()
    os.environ[FOLDER] = str(folder)
    (folder / ENVIRONMENT).write_text(json.dumps(dict(os.environ)))
    if " " not in sys.executable and len(sys.executable) <= LONGEST:
        # Most of what cannot be forked begins with -I, and is started without the modules of `tests`.
        start = "import os, sys; sys.argv[1:2] == ['-I'] and os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        code = f"{start}; sys.path.insert(0, {str(ROOT)!r}); from tests.interpreter import main; main()"
        (folder / INTERPRETER).write_text(f"#!{sys.executable} -S\n{code}\n")
        (folder / INTERPRETER).chmod(0o700)
    command = [sys.executable, "-m", "tests.zygote", str(folder), "." * 8192]
    with (folder / ERRORS).open("wb") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()  # they listen
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def interpreter() -> str:
    """Return the executable that starts modules of the package as forks, where there is one."""
    stand_in = Path(os.environ.get(FOLDER, ""), INTERPRETER)
    return str(stand_in) if FOLDER in os.environ and stand_in.exists() else sys.executable


@functools.cache
def zygote(level: str) -> socket.socket:
    """Return this process's connection to a zygote."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    atexit.register(control.close)
    folder = os.open(os.environ[FOLDER], os.O_DIRECTORY)
    try:
        control.connect(address(folder, level))
    finally:
        os.close(folder)
    return control


@functools.cache
def _environment() -> dict[str, str]:
    found: dict[str, str] = json.loads(Path(os.environ[FOLDER], ENVIRONMENT).read_text())
    return found


def _different(environment: Mapping[str, str]) -> set[str]:
    """The names of the variables that the zygotes have not or have otherwise."""
    theirs = _environment()
    return {name for name in theirs.keys() | environment if theirs.get(name) != environment.get(name)}


def is_applied(environment: Mapping[str, str], more: tuple[str, ...] = ()) -> bool:
    """Whether a process with this environment that is forked is like one of a new interpreter.

    Args:
        more: beginnings of further variables that are read only after the fork.
    """
    known = (*READ_BY_CALLS, *APPLIED, *READ_BY_RANKS, *more)
    return all(name.startswith(known) for name in _different(environment)) and (
        environment.get("PYTHONWARNINGS", "ignore") == "ignore"
    )


def _failure() -> RuntimeError:
    return RuntimeError(Path(os.environ[FOLDER], ERRORS).read_text(errors="replace"))


class Forked(subprocess.Popen[Any]):
    """A child of a zygote. The methods of Popen that are replaced start the process and wait for its end.

    Args:
        executable: its `sys.executable`; by default the interpreter.
        ends_with_client: it is killed when this process ends.
    """

    def __init__(
        self,
        zygote: socket.socket,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        executable: str = sys.executable,
        start_new_session: bool = False,
        unbuffered: bool = False,
        safe_path: bool = False,
        ends_with_client: bool = False,
        **options: Any,
    ) -> None:
        self._zygote = zygote
        self._request = {
            "arguments": arguments,
            "environment": environment,
            "executable": executable,
            "new_session": start_new_session,
            "unbuffered": unbuffered,
            "safe_path": safe_path,
            "ends_with_client": ends_with_client,
        }
        super().__init__([executable, *arguments], **options)

    def _execute_child(self, *given: Any) -> None:
        # The parameters are Popen's own: the sixth is cwd, the eleventh to sixteenth are the ends of the pipes.
        cwd, pipes = given[5], given[10:16]
        streams = [own if own != -1 else number for number, own in enumerate((pipes[0], pipes[3], pipes[5]))]
        self._end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = os.open(cwd or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            with other:
                message = json.dumps(self._request).encode()
                socket.send_fds(self._zygote, [message], [*streams, folder, other.fileno()])
            pid = self._end.recv(64)
        except (BrokenPipeError, ConnectionResetError):
            pid = b""
        finally:
            os.close(folder)
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        if not pid:
            raise _failure()
        self.pid, self._child_created = int(pid), True

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """As os.waitpid, for this child; Popen holds its lock.

        Raises:
            RuntimeError: the zygote has ended before the child, so that nobody knows how that ends.
        """
        if self._end.fileno() == -1:
            raise _failure()
        if flags & os.WNOHANG and not select.select([self._end], [], [], 0)[0]:
            return 0, 0
        with self._end:
            status = self._end.recv(64)
        if not status:
            self._child_created = False  # nothing is left to wait for when this object is deleted
            raise _failure()
        return self.pid, int(status)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        lock = self._waitpid_lock  # type: ignore[attr-defined]
        if self.returncode is None and lock.acquire(False):
            try:
                pid, status = (0, 0) if self.returncode is not None else self._try_wait(os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                lock.release()
        code: int | None = self.returncode
        return code
