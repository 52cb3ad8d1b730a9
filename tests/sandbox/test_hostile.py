"""Answers that try to cheat, to break out or to do harm, against every tier of this machine. Each has its outcome, and
after each the sandbox still works."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sweet.sandbox.box import Sandbox
from sweet.sandbox.program import Program, Result
from sweet.sandbox.values import same

Runner = Callable[..., Result]

HONEST = Program("def f(x):\n    return x + 1", ("f(1)",))

ENDINGS = {
    "os._exit": ("import os\ndef f():\n    os._exit(0)", "crash"),
    "sys.exit": ("def f():\n    raise SystemExit(0)", "raised"),
    "exit at import": ("raise SystemExit", "raised"),
    "keyboard interrupt": ("def f():\n    raise KeyboardInterrupt", "raised"),
    "endless loop": ("def f():\n    while True: pass", "timeout"),
    "loop that swallows everything": (
        "def f():\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        "timeout",
    ),
    "endless loop at import": ("while True: pass\ndef f(): pass", "timeout"),
    "endless loop in C": ("import itertools\ndef f():\n    return sum(itertools.repeat(1))", "timeout"),
    "big power": ("def f():\n    return 7 ** (7 ** 11)", "timeout"),
    "regular expression": ("import re\ndef f():\n    return re.match('(a|a)*$', 'a' * 60 + 'b')", "timeout"),
    "sleep": ("import time\ndef f():\n    time.sleep(3600)", "timeout"),
    "waiting for input": ("def f():\n    return input()", "raised"),
    "huge allocation": ("def f():\n    return len(bytearray(10 ** 12))", "raised"),
    "growing allocation": ("def f():\n    x = [0]\n    while True: x += x", "raised"),
    "deep recursion": ("def f():\n    return f()", "raised"),
    "recursion without a limit": (
        "import sys\ndef f():\n    sys.setrecursionlimit(10 ** 9)\n    def g(n): return [g(n + 1)]\n"
        "    class A:\n        def __repr__(self): return repr(A())\n    return repr(A())",
        "crash",
    ),
    "segmentation fault": ("import ctypes\ndef f():\n    ctypes.string_at(0)", "crash"),
    "abort": ("import os\ndef f():\n    os.abort()", "crash"),
    "thread that stays": (
        "import threading, time\ndef f():\n    threading.Thread(target=time.sleep, args=(99,)).start()\n    return 1",
        "value",
    ),
    "alarm": ("import signal, time\ndef f():\n    signal.alarm(1)\n    time.sleep(0.1)\n    return 1", "value"),
    "infinite generator": ("def f():\n    while True: yield 1", "value"),
    "endless repr": (
        "class A:\n    def __repr__(self):\n        while True: pass\ndef f():\n    return A()",
        "timeout",
    ),
    "output flood": ("def f():\n    while True: print('x' * 10000)", "timeout"),
    "closing every descriptor": ("import os\ndef f():\n    os.closerange(0, 64)\n    return 1", "raised|crash"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_endings(call: Runner, box: Sandbox, name: str) -> None:
    source, status = ENDINGS[name]
    began = time.monotonic()
    result = call(source)
    assert result.status in status.split("|"), result
    assert time.monotonic() - began < 5
    assert box.run([HONEST])[0].results[0].value == 2


FORBIDDEN = {
    "fork": "import os\ndef f():\n    return os.fork()",
    "forkserver": "import multiprocessing\ndef f():\n    multiprocessing.Process(target=print).start()",
    "exec": f"import os\ndef f():\n    os.execv({sys.executable!r}, ['python'])",
    "shell": "import subprocess\ndef f():\n    return subprocess.run(['/bin/sh', '-c', 'true'])",
    "kill parent": "import os\ndef f():\n    os.kill(os.getppid(), 9)",
    "kill everybody": "import os\ndef f():\n    os.kill(-1, 9)",
    "kill own group": "import os\ndef f():\n    os.killpg(0, 9)",
    "network": "import socket\ndef f():\n    socket.create_connection(('127.0.0.1', 80))",
    "datagram": "import socket\ndef f():\n    socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "unix socket": "import socket\ndef f():\n    socket.socket(socket.AF_UNIX)",
    "netlink": "import socket\ndef f():\n    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "passwords": "def f():\n    return open('/etc/passwd').read()",
    "process list": "import os\ndef f():\n    return os.listdir('/proc')",
    "own memory map": "def f():\n    return open('/proc/self/maps').read()",
    "parent's memory": "import os\ndef f():\n    return open(f'/proc/{os.getppid()}/mem', 'rb')",
    "home": "import os\ndef f():\n    return open(os.path.expanduser('~root/.bashrc')).read()",
    "write temporary file": "def f():\n    return open('/tmp/left-behind', 'w')",
    "write here": "def f():\n    return open('left-behind', 'w')",
    "write to shared memory": "def f():\n    return open('/dev/shm/left-behind', 'w')",
    "temporary directory": "import tempfile\ndef f():\n    return tempfile.mkdtemp()",
    "make directory": "import os\ndef f():\n    os.mkdir('/left-behind')",
    "remove interpreter": "import os\ndef f():\n    os.remove(os.__file__)",
    "rename interpreter": "import os\ndef f():\n    os.rename(os.__file__, os.__file__ + 'x')",
    "change mode": "import os\ndef f():\n    os.chmod(os.__file__, 0o777)",
    "write interpreter": "import os\ndef f():\n    return open(os.__file__, 'a')",
    "raise limits": "import resource\ndef f():\n    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "become root": "import os\ndef f():\n    os.setuid(0)",
    "change root": "import os\ndef f():\n    os.chroot('/')",
    "shared memory": "from multiprocessing import shared_memory\ndef f():\n    shared_memory.SharedMemory('x', True)",
    "memory file": "import os\ndef f():\n    return os.memfd_create('x')",
    "new session": "import os\ndef f():\n    os.setsid()",
    "priority of others": "import os\ndef f():\n    os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden(call: Runner, box: Sandbox, name: str) -> None:
    result = call(FORBIDDEN[name])
    assert result.status == "raised", result
    assert box.run([HONEST])[0].results[0].value == 2


def syscall(name: str, number: int, *arguments: object) -> tuple[str, str]:
    listed = ", ".join(["None" if a is None else str(a) for a in arguments])
    source = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"def f():\n    return libc.syscall({number}{', ' + listed if listed else ''}), ctypes.get_errno()"
    )
    return name, source


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")
@pytest.mark.parametrize(
    ("name", "source"),
    [
        syscall("ptrace", 101, 16, 1, 0, 0),
        syscall("process_vm_readv", 310, 1, 0, 0, 0, 0, 0),
        syscall("bpf", 321, 0, 0, 0),
        syscall("userfaultfd", 323, 0),
        syscall("io_uring_setup", 425, 1, 0),
        syscall("keyctl", 250, 0, 0),
        syscall("unshare", 272, 0x10000000),
        syscall("mount", 165, 0, 0, 0, 0, 0),
        syscall("pidfd_open", 434, 1, 0),
        syscall("tgkill", 234, 1, 1, 9),
        syscall("rt_sigqueueinfo", 129, 1, 9, 0),
        syscall("prctl", 157, 4, 1, 0, 0, 0),
        syscall("shmget", 29, 1234, 4096, 0o1666),
        syscall("mq_open", 240, 0, 0, 0, 0),
        syscall("vfork", 58),
    ],
)
def test_forbidden_system_calls(call: Runner, name: str, source: str) -> None:
    result = call(source)
    assert result.status == "value", result
    assert result.value == {"tuple": [-1, 1]}, f"{name} must fail with EPERM"


def test_fork_bomb(call: Runner, box: Sandbox) -> None:
    result = call("import os\ndef f():\n    while True:\n        try: os.fork()\n        except OSError: pass")
    assert result.status == "timeout"
    assert box.run([HONEST])[0].results[0].value == 2


def test_the_environment_is_empty(call: Runner) -> None:
    result = call("import os\ndef f():\n    return [name for name in os.environ if name != 'LC_CTYPE']")
    assert result.value == []


def test_an_object_equal_to_everything_equals_nothing(call: Runner) -> None:
    source = (
        "class Any(int):\n    def __eq__(self, other): return True\n    def __hash__(self): return 1\n"
        "class Thing:\n    def __eq__(self, other): return True\n    __req__ = __eq__\n"
        "class L(list):\n    def __eq__(self, other): return True\n"
    )
    for made in ("Any(7)", "Thing()", "L([7])"):
        result = call(source, made)
        assert result.status == "value"
        assert not same(8, result.value)
        assert not same([8], result.value)
    assert same(7, call(source, "Any(7)").value)


def test_patched_builtins_change_only_what_the_answer_says_itself(call: Runner) -> None:
    source = "import builtins, json\njson.dumps = lambda *a, **k: '{\"any\": 1}'\ndef f(): return 5"
    assert not same(6, call(source).value)
    result = call("import builtins\nbuiltins.isinstance = lambda *a: True\ndef f(): return 5")
    assert not (result.status == "value" and same(6, result.value))


FORGERIES = {
    "garbage on every descriptor": "os.write(fd, b'x' * 500)",
    "a record without the secret": "os.write(fd, b'0 0 value 1\\n1')",
    "megabytes": "os.write(fd, b'1' * (1 << 22))",
    "half a header": "os.write(fd, b'abc')",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_results_end_the_child(call: Runner, box: Sandbox, name: str) -> None:
    source = (
        "import os\ndef f():\n    for fd in range(3, 64):\n"
        f"        try: {FORGERIES[name]}\n        except OSError: pass\n    return 1"
    )
    assert call(source).status in ("crash", "timeout")
    assert box.run([HONEST])[0].results[0].value == 2


def test_malformed_values_equal_nothing(call: Runner) -> None:
    """An answer that finds the secret can report any text in place of a value."""
    source = (
        "import sys, os\ndef f():\n    frame = sys._getframe()\n"
        "    while 'order' not in frame.f_locals: frame = frame.f_back\n"
        "    nonce, fd = frame.f_locals['nonce'], frame.f_locals['report']\n"
        "    text = TEXT\n    os.write(fd, f'{nonce} 0 value {len(text)}\\n{text}'.encode())\n    os._exit(0)"
    )
    texts = [
        '{"tuple": 5}',
        '{"set": [1, {"a": 2, "b": 3}]}',
        '{"any": 1}',
        "[" * 3000,
        "1e999",
        "9" * 9000,
        '{"int":""}',
    ]
    for text in texts:
        result = call(source.replace("TEXT", repr(text)))
        assert not any(same(e, result.value) for e in (5, {"tuple": [5]}, {"set": [1, 2]})), text


def test_nothing_of_another_answer_is_in_memory(box: Sandbox) -> None:
    """References and answers share zygotes: what one leaves must not reach the next."""
    told = Program("MARK = 'k9zqw7xv'\ndef f(): return MARK * 3", ("f()", "MARK"))
    searching = (
        "import gc\ndef f():\n    needle = 'vx7wqz9k'[::-1]\n    found = []\n"
        "    for o in gc.get_objects():\n        found += [s for s in gc.get_referents(o) if type(s) in (str, bytes)\n"
        "            and needle in (s if type(s) is str else s.decode('latin1')) and s != needle]\n    return found"
    )
    assert box.run([told] * 3)[0].results[1].value == "k9zqw7xv"
    assert box.run([Program(searching, ("f()",))])[0].results[0].value == []
    seen = box.run([Program("MARK = 'a k9zqw7xv b'\n" + searching, ("f()",))])[0].results[0].value
    assert "a k9zqw7xv b" in seen, "the search does find what is there"


def test_a_hanging_call_costs_its_second_and_the_others_count(box: Sandbox) -> None:
    source = "def f(x):\n    while x == 2: pass\n    return x"
    (execution,) = box.run([Program(source, tuple(f"f({i})" for i in range(5)))])
    assert [r.status for r in execution.results] == ["value", "value", "timeout", "value", "value"]
    assert execution.seconds < 3


def test_an_answer_that_always_hangs_costs_seconds(box: Sandbox) -> None:
    (execution,) = box.run([Program("def f():\n    while True: pass", ("f()",) * 10)])
    assert {r.status for r in execution.results} == {"timeout"}
    assert len(execution.results) == 10
    assert execution.seconds < 3.5


def test_a_crashing_call_leaves_the_others(box: Sandbox) -> None:
    source = "import os\ndef f(x):\n    if x == 1: os._exit(3)\n    return x"
    (execution,) = box.run([Program(source, ("f(0)", "f(1)", "f(2)"))])
    assert [r.status for r in execution.results] == ["value", "crash", "value"]
    assert "status 3" in execution.results[1].message


def test_values_beyond_the_bound_are_cut(call: Runner) -> None:
    for made in ("'x' * 10 ** 6", "list(range(10 ** 6))", "10 ** 400000", "[[]] * 60000"):
        assert call("", made).value == {"toolarge": None}
    assert call("x = []\nx.append(x)", "x").value == {"toolarge": None}


def test_a_zygote_that_was_killed_is_replaced_and_the_answer_counted_once(box: Sandbox) -> None:
    assert box.run([HONEST])[0].results[0].value == 2
    (worker,) = box._workers
    assert worker.jail is not None
    os.kill(worker.jail._inner_pid or worker.jail._process.pid, signal.SIGKILL)
    counted: list[int] = []
    executions = box.run([HONEST] * 3, on_done=lambda index, _: counted.append(index))
    assert [e.results[0].value for e in executions] == [2, 2, 2]
    assert sorted(counted) == [0, 1, 2]


def test_a_zygote_that_falls_silent_is_replaced(box: Sandbox) -> None:
    assert box.run([HONEST])[0].results[0].value == 2
    (worker,) = box._workers
    assert worker.jail is not None
    os.kill(worker.jail._inner_pid or worker.jail._process.pid, signal.SIGSTOP)
    assert box.run([HONEST])[0].results[0].value == 2


def test_nothing_is_left_when_the_parent_is_killed(box: Sandbox) -> None:
    script = (
        "import sys, time\nfrom sweet.sandbox.tiers import open_sandbox\nfrom sweet.sandbox.program import Program\n"
        f"with open_sandbox({box.tier!r}, workers=1) as box:\n"
        "    box.run([Program('', ('1',))])\n    jail = box._workers[0].jail\n"
        "    print(jail._inner_pid or jail._process.pid, flush=True)\n"
        "    box.run([Program('while True: pass', ('1',))])\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        zygote = int(process.stdout.readline())
        time.sleep(0.3)
        process.kill()
    for _ in range(100):
        if not Path(f"/proc/{zygote}").exists() or "Z" in Path(f"/proc/{zygote}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    raise AssertionError("the zygote outlived its parent")


def test_no_file_of_the_user_can_be_read_and_no_port_reached(call: Runner) -> None:
    with tempfile.NamedTemporaryFile("w") as secret, socket.create_server(("127.0.0.1", 0)) as server:
        secret.write("secret")
        secret.flush()
        assert call(f"def f():\n    return open({secret.name!r}).read()").status == "raised"
        port = server.getsockname()[1]
        source = f"import socket\ndef f():\n    return socket.create_connection(('127.0.0.1', {port}), 1)"
        assert call(source).status == "raised"


HONEST_LIBRARIES = {
    "asyncio": ("import asyncio\nasync def g(): return 3\ndef f(): return asyncio.run(g())", 3),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\ndef f():\n"
        "    with ThreadPoolExecutor(2) as pool: return list(pool.map(abs, [-1, 2]))",
        [1, 2],
    ),
    "dataclasses": ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: 'int'\ndef f(): return A(3).x", 3),
    "sqlite": ("import sqlite3\ndef f(): return sqlite3.connect(':memory:').execute('select 2').fetchone()[0]", 2),
    "dates": ("import datetime, zoneinfo\ndef f(): return datetime.date(2024, 2, 29).isoformat()", "2024-02-29"),
    "hashes": ("import hashlib\ndef f(): return hashlib.sha256(b'').hexdigest()[:8]", "e3b0c442"),
    "urllib": ("from urllib.parse import urlparse\ndef f(): return urlparse('http://a/b').path", "/b"),
    "unicode": ("import unicodedata\ndef f(): return unicodedata.normalize('NFD', 'é')[0]", "e"),
    "print": ("def f():\n    print('hello')\n    return 1", 1),
}


@pytest.mark.parametrize("name", HONEST_LIBRARIES)
def test_honest_libraries_work(call: Runner, name: str) -> None:
    source, value = HONEST_LIBRARIES[name]
    result = call(source)
    assert same(value, result.value), result
