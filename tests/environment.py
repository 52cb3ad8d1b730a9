"""The environment in which the tests run: the same on every machine, whatever the user's settings are.

pytest's first process calls `isolate` before it imports anything that reads settings; its workers and all processes
that tests start inherit the result. Variables that change what a program does are removed, the home folder and all
folders of settings, data and caches are new ones in a temporary folder, and signals do what they do in a shell, also
where pytest was started with some of them ignored (`nohup`, a background job, some CI runners). GPUs are hidden: tests
compute on CPUs. A number of threads that is given explicitly stays. Temporary folders are in memory where that has room
and nobody has set TMPDIR: a disk takes a tenth of the time of tests that write small files.
"""

from __future__ import annotations

import locale
import os
import signal
import site
import sys
import tempfile
import time
from pathlib import Path

PREFIXES = (
    *("SWEET_", "_SWEET_", "XDG_", "PYTHON", "LC_", "GIT_", "TEXTUAL", "MOZ_", "PLAYWRIGHT_", "MPL"),
    *("HF_", "HUGGING", "TRANSFORMERS_", "TOKENIZERS_", "OPENAI_", "VLLM_", "WANDB_", "TENSORBOARD_"),
    *("RAY_", "SLURM_", "SBATCH_", "SRUN_", "PMI_", "OMPI_", "DS_", "DEEPSPEED_", "ACCELERATE_", "TORCH", "PYTORCH_"),
    *("CUDA_", "NVIDIA_", "HIP_", "ROCR_", "NCCL_", "GLOO_", "MASTER_", "LOCAL_RANK", "LOCAL_WORLD", "GROUP_", "ROLE_"),
)
NAMES = {
    *("LANG", "LANGUAGE", "TZ", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "CLICOLOR", "COLORTERM"),
    *("CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERM_PROGRAM", "PAGER", "EDITOR", "VISUAL", "BROWSER"),
    *("DISPLAY", "WAYLAND_DISPLAY", "RANK", "WORLD_SIZE", "BASH_ENV", "ENV", "ZDOTDIR", "CDPATH", "SHELL", "IFS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY"),
}
"""Compared in upper case."""
IN_MEMORY = Path("/dev/shm")
"""Where Linux has a file system in memory."""
ROOM = 4 << 30
"""Bytes that are free there if temporary folders may use it; they take less than one GiB."""
SIGNALS = ("SIGINT", "SIGHUP", "SIGTERM", "SIGQUIT", "SIGCHLD", "SIGUSR1", "SIGUSR2", "SIGALRM")


def isolate() -> tempfile.TemporaryDirectory[str]:
    """Make this process's environment that of the tests; the folder that it points to is removed with the result."""
    browsers = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or _playwright_browsers()
    packages = site.getuserbase()
    for name in [name for name in os.environ if name.startswith(PREFIXES) or name.upper() in NAMES]:
        del os.environ[name]
    in_memory = "TMPDIR" not in os.environ and _has_room(IN_MEMORY)
    parent = IN_MEMORY if in_memory else None
    folder = tempfile.TemporaryDirectory(prefix="sweet-", dir=parent, ignore_cleanup_errors=True)
    home = Path(folder.name)
    if in_memory:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(IN_MEMORY)  # folders of tests that fail are kept
        temporary = home / "tmp"  # programs that are killed leave files
        temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    os.environ |= {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "SWEET_CACHE": str(home / "cache"),
        "PLAYWRIGHT_BROWSERS_PATH": browsers,
        "PYTHONUSERBASE": packages,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
        # Ray's workers otherwise run at niceness 15, and beside other tests hardly at all.
        "RAY_worker_niceness": "0",
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm",
        "TZ": "UTC",
    }
    # Several processes run tests side by side: more threads only compete for the same cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # threads that wait for others leave them the core
    if hasattr(time, "tzset"):
        time.tzset()
    locale.setlocale(locale.LC_ALL, "")
    restore_signals()
    return folder


def restore_signals() -> None:
    """Handle every signal as a program does that is started from a shell."""
    for name in SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {getattr(signal, name) for name in SIGNALS})


def _has_room(folder: Path) -> bool:
    """Whether a folder is in memory with enough room, and programs in it can be executed."""
    try:
        found = os.statvfs(folder)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return False
    return min(found.f_bavail * found.f_frsize, memory) >= ROOM and not found.f_flag & os.ST_NOEXEC


def _playwright_browsers() -> str:
    """Playwright's default folder of browsers: installed programs, which are no settings."""
    if sys.platform == "darwin":
        return str(Path.home() / "Library" / "Caches" / "ms-playwright")
    return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ms-playwright")
