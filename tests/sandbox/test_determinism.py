"""Nothing in an answer is left to chance: answers that toss a coin, and differ in a comment, all get the same side.

The sources of chance are tried under every tier, in several processes of several jails.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Code, Program, TierChoice
from sweet.sandbox.tiers import open_sandbox, probe_tier
from sweet.sandbox.values import same
from sweet.tasks.base import Task
from sweet.tasks.code.reading import code_of
from sweet.tasks.code.scoring import CodeScorer

JAILS = 2
TOSSES = 6

COINS = {
    "os.urandom": ("import os", "os.urandom(8)"),
    "os.getrandom": ("import os", "os.getrandom(8, os.GRND_NONBLOCK)"),
    "posix.urandom": ("import posix", "posix.urandom(8)"),
    "SystemRandom": ("import random", "random.SystemRandom().random()"),
    "a generator without a seed": ("import random", "random.Random().random()"),
    "the generator in C": ("import _random", "_random.Random().random()"),
    "seeded by chance": ("import random", "[random.seed(), random.random(), random.seed(None), random.random()]"),
    "random, imported by a name made up": ("", "__import__('ran' + 'dom').random()"),
    "uuid4": ("import uuid", "uuid.uuid4()"),
    "uuid1": ("import uuid", "[uuid.uuid1(), uuid.getnode()]"),
    "uuid1, imported by a name made up": ("", "__import__('uu' + 'id').uuid1()"),
    "secrets": ("import secrets", "[secrets.token_hex(8), secrets.randbelow(1000), secrets.choice(range(999))]"),
    "id": ("", "[id(object()), id([1, 2, 3]), id(f), id(None), id(len)]"),
    "hash of an object": ("class A: pass", "[hash(object()), hash(A()), hash(A), hash(None)]"),
    "text of an object": ("class A: pass", "[repr(object())[-3:], str(A())[-5:]]"),
    "order of a set of objects": (
        "class A:\n    def __init__(self, i): self.i = i", "[a.i for a in {A(i) for i in range(20)}]",
    ),
    "time": ("import time", "[time.time(), time.time_ns(), time.localtime(), time.strftime('%c')]"),
    "clocks": ("import time", "[time.perf_counter_ns(), time.monotonic(), time.process_time_ns(), time.thread_time()]"),
    "clocks by number": ("import time", "[time.clock_gettime_ns(n) for n in range(8)] + [time.clock_gettime(5)]"),
    "the time of a thread": ("import time, threading", "time.pthread_getcpuclockid(threading.get_ident())"),
    "how long work takes": ("import timeit", "timeit.timeit('sum(range(100))', number=100)"),
    "datetime": ("import datetime", "[datetime.datetime.now(), datetime.datetime.utcnow(), datetime.date.today()]"),
    "numbers of processes": ("import os", "[os.getpid(), os.getppid(), os.getsid(0), os.getpgid(0), os.getpgrp()]"),
    "numbers of threads": ("import threading as t", "[t.get_native_id(), t.get_ident(), t.main_thread().native_id]"),
    "accounts": ("import os, resource", "[os.times(), resource.getrusage(0), os.getloadavg()]"),
    "free space": ("import os", "os.statvfs('/').f_bavail"),
    "free memory": ("import os", "os.sysconf('SC_AVPHYS_PAGES')"),
    "number of a pipe": ("import os", "[os.fstat(os.pipe()[0]).st_ino, os.fstat(1).st_ino]"),
    "times of a folder": ("import os", "[os.stat('/').st_mtime_ns, os.stat(os.__file__).st_atime, os.lstat('/')[1]]"),
    "times in a folder": (
        "import os", "[[e.inode(), e.stat().st_atime] for e in os.scandir(os.path.dirname(os.__file__))][:9]",
    ),
    "temporary names": ("import tempfile", "next(tempfile._get_candidate_names())"),
    "a name of a message": ("import email.utils", "email.utils.make_msgid(domain='x')"),
    "a record of a log": (
        "import logging",
        "[logging._startTime, logging.makeLogRecord({}).relativeCreated, logging.makeLogRecord({}).process]",
    ),
    "a timer": ("import signal", "[signal.setitimer(0, 100), signal.getitimer(0)[0] > 0, signal.setitimer(0, 0)]"),
    "what its callers know": (
        "import sys\ndef known(frame):\n    return known(frame.f_back) if 'nonce' not in frame.f_locals else"
        " [frame.f_locals['nonce'], frame.f_locals['report']]",
        "known(sys._getframe())",
    ),
    "the loop of asyncio": (
        "import asyncio\nasync def g():\n    began = asyncio.get_running_loop().time()\n    await asyncio.sleep(0.01)\n"
        "    return began, asyncio.get_running_loop().time()",
        "asyncio.run(g())",
    ),
}  # fmt: skip
NUMPY = {
    "numpy's default generator": "numpy.random.default_rng().random()",
    "numpy's former generator": "numpy.random.RandomState().rand()",
    "numpy seeded by chance": "[numpy.random.seed(), numpy.random.rand()][1]",
    "numpy's entropy": "numpy.random.SeedSequence().entropy",
}
IN_C = {
    "random bytes of the system": "libc.getrandom(room, 8, 0) and room.raw",
    "random bytes, by the number of the call": "libc.syscall(number(318, 278), room, 8, 0) and room.raw",
    "numbers of processes": "[libc.getpid(), libc.getppid(), libc.getsid(0), libc.syscall(number(186, 178))]",
    "processor time": "libc.clock()",
    "accounts": "[libc.getrusage(0, room) and 0, libc.times(room) and 0, libc.sysinfo(room) and 0, room.raw]",
    "space": "libc.statfs(b'/', room) and room.raw",
}
"""Sources of chance that the kernel refuses, or answers by 0, where there is a seccomp filter."""
C = (
    "import ctypes, os\nlibc = ctypes.CDLL(None)\nroom = ctypes.create_string_buffer(400)\n"
    "def number(x86, arm): return x86 if os.uname().machine == 'x86_64' else arm"
)
DEVICES = ("/dev/urandom", "/dev/random", "/proc/sys/kernel/random/uuid", "/proc/uptime", "/proc/self/stat")


@pytest.fixture(scope="module", params=["bwrap", "landlock", "docker", "unsafe"])
def jails(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    tier: TierChoice = request.param
    status = probe_tier(tier)
    if not status.works:
        pytest.skip(f"{tier}: {status.detail}")
    with open_sandbox(tier, JAILS) as box:
        yield box


def sides(box: Sandbox, coins: dict[str, tuple[str, str]]) -> dict[str, set[str]]:
    """Return the different results of each coin."""
    sources = [
        f"{before}\ndef f():\n    return {toss}\n# {'again ' * turn}"
        for before, toss in coins.values()
        for turn in range(TOSSES)
    ]
    calls = (code_of("f()", "eval"),)
    programs = [Program(source, ("f()",), code=Code(code_of(source), calls)) for source in sources]
    results = [execution.results[0] for execution in box.run(programs)]
    shown = [json.dumps(result.value) if result.status == "value" else result.explanation for result in results]
    return {name: set(shown[i * TOSSES : (i + 1) * TOSSES]) for i, name in enumerate(coins)}


def unsettled(found: dict[str, set[str]]) -> dict[str, set[str]]:
    return {name: different for name, different in found.items() if len(different) > 1}


def test_every_coin_falls_on_one_side(jails: Sandbox) -> None:
    coins = COINS
    if jails.tier == "docker":  # its engine lets no process fix the addresses
        coins = {name: coin for name, coin in COINS.items() if "object" not in name and name not in ("id",)}
    assert unsettled(sides(jails, coins)) == {}


def test_every_coin_of_numpy_falls_on_one_side(jails: Sandbox) -> None:
    pytest.importorskip("numpy")
    assert unsettled(sides(jails, {name: ("import numpy", toss) for name, toss in NUMPY.items()})) == {}


def test_the_kernel_settles_what_c_code_asks(jails: Sandbox) -> None:
    if jails.tier not in ("bwrap", "landlock"):
        pytest.skip("without a filter of its own")
    assert unsettled(sides(jails, {name: (C, toss) for name, toss in IN_C.items()})) == {}


def test_no_device_and_no_account_of_the_kernel_is_read(jails: Sandbox) -> None:
    if jails.tier not in ("bwrap", "landlock"):
        pytest.skip("their files are visible")
    for path in DEVICES:
        (execution,) = jails.run([Program("", (f"open({path!r}, 'rb').read(9)",))])
        assert execution.results[0].error in ("FileNotFoundError", "PermissionError")


def test_answers_that_toss_a_coin_are_all_paid_or_none(jails: Sandbox) -> None:
    task = Task(
        id="t", problem_description="Yes.", ground_truth="def f(x):\n    return x > 0", test_cases={"test1": "f(1)"}
    )
    for toss in ("import os\ndef f(x): return os.getrandom(1)[0] % 2 == 1", "def f(x): return hash(object()) % 3 == 1"):
        answers = [(task, f"```python\n{toss}\n# {turn}\n```") for turn in range(12)]
        rewards = {verdict.reward for verdict in CodeScorer(jails, "strict").score(answers)}
        assert len(rewards) == 1 or jails.tier == "docker"


HONEST = {
    "a seed": ("import random", "random.Random(5).random()", random.Random(5).random()),
    "a text as a seed": ("import random", "random.Random('x').randint(0, 10**9)", random.Random("x").randint(0, 10**9)),
    "a state": (
        "import random\nr = random.Random(1)\ns = r.getstate()\na = r.random()", "(r.setstate(s), r.random() == a)[1]",
        True,
    ),
    "a copy": ("import copy, random\nr = random.Random(1)", "copy.deepcopy(r).random() == r.random()", True),
    "different numbers": ("import random, uuid", "len({random.random() for _ in range(99)} | {uuid.uuid4()})", 100),
    "secrets": ("import secrets", "len(secrets.token_hex(8)) + len(secrets.token_urlsafe(0))", 16),
    "two generators": ("import random", "random.Random().random() == random.Random().random()", False),
    "a queue that stays empty": (
        "import queue\ndef g():\n    try: queue.Queue().get(timeout=0.01)\n    except queue.Empty: return 'empty'",
        "g()", "empty",
    ),
    "a condition that stays false": (
        "import threading\nc = threading.Condition()\ndef g():\n    with c: return c.wait_for(lambda: False, 0.01)",
        "g()", False,
    ),
    "a thread that is not waited for": (
        "import threading, time\nt = threading.Thread(target=time.sleep, args=(2,))",
        "[t.start(), t.join(0.01), t.is_alive()]", [None, None, True],
    ),
    "a time to wait for": (
        "import time\ndef g():\n    end = time.monotonic() + 0.01\n    while time.monotonic() < end: 0\n    return 1",
        "g()", 1,
    ),
    "time passes": ("import time", "0 < time.perf_counter() - time.perf_counter() + 1 <= 1", True),
    "asyncio": (
        "import asyncio\nasync def g():\n    try: await asyncio.wait_for(asyncio.sleep(5), 0.01)\n"
        "    except TimeoutError: return 'late'",
        "asyncio.run(g())", "late",
    ),
    "a wait for a descriptor": (
        "import os, select\nr, w = os.pipe()", "[select.select([r], [], [], 0.01)[0], os.write(w, b'x'),"
        " select.select([r], [], [], 1)[0] == [r]]", [[], 1, True],
    ),
    "files": ("import os", "[os.path.isdir('/'), os.path.isfile(os.__file__), os.path.exists('/nowhere')]",
              [True, True, False]),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_code_works_as_before(jails: Sandbox, name: str) -> None:
    before, expression, value = HONEST[name]
    (execution,) = jails.run([Program(before, (expression,))])
    assert same(value, execution.results[0].value), execution.results[0]
