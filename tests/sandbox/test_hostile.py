"""The sandbox's handling of answers that crash, exceed limits or kill their jail, under every tier of this machine. The
hostile answers themselves are in test_redteam."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sweet.sandbox.pool import Sandbox, open_jails
from sweet.sandbox.program import Limits, Program, Result
from sweet.sandbox.resource_monitor import descendants
from sweet.sandbox.values import same

Runner = Callable[..., Result]

HONEST = Program("def f(x):\n    return x + 1", ("f(1)",))


def test_the_environment_is_empty(call: Runner) -> None:
    result = call("import os\ndef f():\n    return [name for name in os.environ if name != 'LC_CTYPE']")
    assert result.value == []


def test_forbidden_actions_fail_without_ending_the_answer(call: Runner) -> None:
    source = (
        "import os, socket\ndef refused(deed, *arguments):\n    try: deed(*arguments)\n"
        "    except OSError as error: return error.errno\n"
        "def f():\n    return [refused(os.fork), refused(os.kill, os.getppid(), 9), refused(socket.socket)]"
    )
    assert call(source).value == [1, 1, 1]


def test_errors_and_warnings_of_many_answers_do_not_block_the_next(box: Sandbox) -> None:
    noisy = Program("import sys\ndef f():\n    sys.stderr.write('x' * 50000)\n    return 1", ("f()",))
    assert [execution.results[0].value for execution in box.run([noisy] * 6)] == [1] * 6


def test_children_take_blocks_that_follow_one_another(call: Runner) -> None:
    source = (
        "def f():\n    kept = [bytes(size) for size in (15, 31, 79, 143) for _ in range(50)]\n"
        "    return sum(id(b) - id(a) == a.__sizeof__() for a, b in zip(kept, kept[1:]))"
    )
    assert call(source).value > 110


def test_more_threads_than_allowed_end_the_child() -> None:
    source = "import threading, time\nfor _ in range(20): threading.Thread(target=time.sleep, args=(9,)).start()"
    with open_jails("unsafe", 1, Limits(call_seconds=5.0, tasks=10)) as box:
        (execution,) = box.run([Program(source, ("time.sleep(9)",))])
    assert execution.results[0].explanation == "crash: more than 10 threads and processes"
    assert execution.seconds < 4


def test_more_memory_than_allowed_ends_all_processes_that_use_it() -> None:
    source = (
        "import os, time\nkept = [bytes([n + 1]) * (60 << 20) for n in range(2) if os.fork() or True]\ntime.sleep(9)"
    )
    with open_jails("unsafe", 1, Limits(call_seconds=5.0, memory_bytes=256 << 20)) as box:
        (execution,) = box.run([Program(source, ("1",))])
        (running,) = box._workers[0].jails.values()
        assert running.root is not None
        assert descendants(running.root) == []
    assert execution.results[0].explanation == "crash: more than 256 MiB of memory"
    assert execution.seconds < 4


def test_no_data_of_another_answer_is_in_memory(box: Sandbox) -> None:
    """References and answers share zygotes: what one leaves must not reach the next."""
    program = Program("MARK = 'k9zqw7xv'\ndef f(): return MARK * 3", ("f()", "MARK"))
    searching = (
        "import gc\ndef f():\n    needle = 'vx7wqz9k'[::-1]\n    found = []\n"
        "    for o in gc.get_objects():\n        found += [s for s in gc.get_referents(o) if type(s) in (str, bytes)\n"
        "            and needle in (s if type(s) is str else s.decode('latin1')) and s != needle]\n    return found"
    )
    assert box.run([program] * 3)[0].results[1].value == "k9zqw7xv"
    assert box.run([Program(searching, ("f()",))])[0].results[0].value == []
    seen = box.run([Program("MARK = 'a k9zqw7xv b'\n" + searching, ("f()",))])[0].results[0].value
    assert "a k9zqw7xv b" in seen, "the search does find what is there"


def test_a_hanging_call_costs_one_second_and_the_others_count(box: Sandbox) -> None:
    source = "def f(x):\n    while x == 2: pass\n    return x"
    (execution,) = box.run([Program(source, tuple(f"f({i})" for i in range(5)))])
    assert [r.status for r in execution.results] == ["value", "value", "timeout", "value", "value"]
    assert execution.seconds < 3


def test_an_answer_that_always_hangs_costs_seconds(box: Sandbox) -> None:
    (execution,) = box.run([Program("def f():\n    while True: pass", ("f()",) * 10)])
    assert {r.status for r in execution.results} == {"timeout"}
    assert len(execution.results) == 10
    assert execution.seconds < 6  # ten time-outs would be ten


def test_a_crashing_call_does_not_affect_the_others(box: Sandbox) -> None:
    source = "import os\ndef f(x):\n    if x == 1: os._exit(3)\n    return x"
    (execution,) = box.run([Program(source, ("f(0)", "f(1)", "f(2)"))])
    assert [r.status for r in execution.results] == ["value", "crash", "value"]
    assert "status 3" in execution.results[1].message


def test_values_beyond_the_bound_are_cut(call: Runner) -> None:
    for made in ("'x' * 10 ** 6", "list(range(10 ** 5))", "10 ** 400000", "[[]] * 60000"):
        assert call("", made).value == {"toolarge": None}
    assert call("x = []\nx.append(x)", "x").value == {"toolarge": None}


def test_a_zygote_that_was_killed_is_replaced_and_the_answer_counted_once(box: Sandbox) -> None:
    assert box.run([HONEST])[0].results[0].value == 2
    (worker,) = box._workers
    assert worker.jails["bare"].root is not None
    os.kill(worker.jails["bare"].root, signal.SIGKILL)
    executions = box.run([HONEST] * 3)
    assert [e.results[0].value for e in executions] == [2, 2, 2]


def test_the_child_of_a_killed_zygote_ends(box: Sandbox) -> None:
    box.run([HONEST])
    (worker,) = box._workers
    assert worker.jails["bare"].root is not None
    zygote = worker.jails["bare"].root
    children: list[int] = []

    def kill() -> None:
        while not children:
            children.extend(descendants(zygote))
        os.kill(zygote, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    (execution,) = box.run([Program("while True: pass", ("1",))])
    killer.join()
    assert execution.results[0].status in ("crash", "timeout")
    assert _all_end(children)


def _all_end(pids: list[int]) -> bool:
    """Whether they are gone soon; the kernel needs a moment to take a process down."""
    for _ in range(100):
        if not any(_runs(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_zygote_that_does_not_answer_is_replaced(box: Sandbox) -> None:
    assert box.run([HONEST])[0].results[0].value == 2
    (worker,) = box._workers
    assert worker.jails["bare"].root is not None
    os.kill(worker.jails["bare"].root, signal.SIGSTOP)
    assert box.run([HONEST])[0].results[0].value == 2


def test_nothing_is_left_when_the_parent_is_killed(box: Sandbox) -> None:
    script = (
        "import sys, time\nfrom sweet.sandbox.tiers import open_sandbox\nfrom sweet.sandbox.program import Program\n"
        f"with open_sandbox({box.tier!r}, workers=1) as box:\n"
        "    box.run([Program('', ('1',))])\n    jail = box._workers[0].jails['bare']\n"
        "    print(jail.root, flush=True)\n"
        "    box.run([Program('while True: pass', ('1',))])\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        zygote = int(process.stdout.readline())
        time.sleep(0.3)
        process.kill()
    assert _all_end([zygote]), "the zygote outlived its parent"


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


def hold_the_interpreter(seconds: float) -> None:
    """No other thread runs meanwhile, as during the search of a slow regular expression."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


def test_results_in_the_pipe_count_however_late_they_are_read() -> None:
    source = "import time\ndef f(x):\n    time.sleep(0.15)\n    return x"
    with open_jails("unsafe", 4, Limits(call_seconds=0.6)) as box:
        box.run([HONEST] * 4)
        stream = box.stream(Program(source, (f"f({x})",)) for x in range(8))
        values = []
        for execution in stream:
            hold_the_interpreter(0.7)
            values.append(execution.results[0].value)
    assert values == list(range(8))


def test_time_in_which_neither_process_ran_does_not_count() -> None:
    source = "import time\ndef f():\n    while time.process_time() < 0.4: pass\n    return 1"
    with open_jails("unsafe", 1, Limits(call_seconds=2.0)) as box:
        box.run([Program("import time", ("1",))])
        (running,) = box._workers[0].jails.values()
        running.reap()
        assert running.root is not None
        zygote = running.root

        def stop() -> None:
            children: list[int] = []
            until = time.monotonic() + 60
            while not children and time.monotonic() < until:
                children = descendants(zygote)
            os.kill(children[0], signal.SIGSTOP)
            hold_the_interpreter(2.5)
            os.kill(children[0], signal.SIGCONT)

        stopper = threading.Thread(target=stop)
        stopper.start()
        (execution,) = box.run([Program(source, ("f()",))])
        stopper.join()
    assert execution.results[0].value == 1


def test_simultaneous_streams_and_a_short_one_with_many_threads() -> None:
    """A stream of fewer programs than threads, again and again, while another is under way in the same jails."""
    with open_jails("unsafe", 4, Limits()) as box:
        long = box.stream(HONEST for _ in range(60))
        for execution in long:
            assert execution.results[0].value == 2
            assert box.run([HONEST])[0].results[0].value == 2


def test_a_caller_that_stops_iterating_does_not_wait() -> None:
    with open_jails("unsafe", 2, Limits(call_seconds=60.0, total_seconds=60.0)) as box:
        stream = box.stream([HONEST, *[Program("while True: pass", ("1",))] * 5])
        assert next(stream).results[0].value == 2
        began = time.monotonic()
        stream.close()
        assert time.monotonic() - began < 20
        assert box.run([HONEST])[0].results[0].value == 2
