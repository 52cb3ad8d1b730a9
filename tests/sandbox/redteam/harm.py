"""Answers that try to do harm: by never ending, by growing, or by outliving their time."""

from __future__ import annotations

from tests.sandbox.redteam.answers import hostile

HARM = [
    hostile("endless loop", "def f():\n    while True: pass", "timeout"),
    hostile("endless loop at import", "while True: pass\ndef f(): pass", "timeout"),
    hostile(
        "endless loop that swallows everything",
        """
        def f():
            while True:
                try:
                    while True: pass
                except BaseException: pass
        """,
        "timeout",
    ),
    hostile("itertools.count, summed", "import itertools\ndef f(): return sum(itertools.count())", "timeout"),
    hostile(
        "itertools.count, consumed by a deque",
        "import itertools, collections\ndef f(): collections.deque(itertools.count(), maxlen=0)",
        "timeout",
    ),
    hostile(
        "membership of an endless iterator", "import itertools\ndef f(): return -1 in itertools.repeat(1)", "timeout"
    ),
    hostile("a regular expression", "import re\ndef f(): return re.match('(a|a)*$', 'a' * 60 + 'b')", "timeout"),
    hostile("10 ** 10 ** 8", "def f(): return 10 ** 10 ** 8", "timeout|failed|error"),
    hostile("7 ** 7 ** 11", "def f(): return 7 ** 7 ** 11", "timeout|error"),
    hostile("pow of giants", "def f(): return pow(3, 10 ** 500000, 10 ** 500000 + 1)", "timeout"),
    hostile("factorial", "import math\ndef f(): return math.factorial(10 ** 8)", "timeout|error"),
    hostile(
        "the text of a giant",
        "import sys\ndef f():\n    sys.set_int_max_str_digits(0)\n    return str(1 << 10**8)",
        "timeout",
    ),
    hostile(
        "sorting without end", "def f():\n    x = [0]\n    return sorted(x for _ in iter(int, 1))", "timeout|error"
    ),
    hostile("sleep", "import time\ndef f(): time.sleep(3600)", "timeout"),
    hostile(
        "a lock never opened",
        "import threading\ndef f():\n    x = threading.Lock(); x.acquire(); x.acquire()",
        "timeout",
    ),
    hostile("a pipe nobody writes", "import os\ndef f():\n    r, w = os.pipe(); os.read(r, 1)", "timeout"),
    hostile(
        "signals ignored",
        """
        import signal
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        def f():
            while True: pass
        """,
        "timeout",
    ),
    hostile(
        "signals blocked, a handler for the rest",
        """
        import signal
        signal.signal(signal.SIGALRM, lambda *a: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        def f():
            while True: pass
        """,
        "timeout",
    ),
    hostile("an alarm set for later", "import signal\ndef f(): return signal.alarm(1)", "failed"),
    hostile("deep recursion", "def f(): return f()", "error"),
    hostile(
        "deep recursion without a limit",
        """
        import sys
        sys.setrecursionlimit(10 ** 9)
        def f(): return [f()]
        """,
        "error|crash|timeout",
    ),
    hostile(
        "deep recursion in C",
        """
        import sys
        def f():
            sys.setrecursionlimit(10 ** 9)
            class A:
                def __repr__(self): return repr([A()])
            return repr(A())
        """,
        "error|crash|timeout",
    ),
    hostile("a deep parse", "def f(): return eval('(' * 100000 + ')' * 100000)", "error"),
    hostile(
        "a deep tree freed",
        "def f():\n    x = None\n    for _ in range(10 ** 5): x = (x,)\n    del x\n    return 1",
        "failed|crash",
    ),
    hostile("segmentation fault", "import ctypes\ndef f(): ctypes.string_at(0)", "crash"),
    hostile("abort", "import os\ndef f(): os.abort()", "crash"),
    hostile("memory: a list that doubles", "def f():\n    x = [0]\n    while True: x += x", "error"),
    hostile("memory: bytes", "def f(): return len(bytes(1 << 40))", "error"),
    hostile(
        "memory: many small", "def f():\n    x = []\n    while True: x.append(bytearray(1 << 20))", "error|timeout"
    ),
    hostile(
        "memory: mmap",
        """
        import mmap
        def f():
            kept = []
            while True:
                kept.append(mmap.mmap(-1, 1 << 26))
                kept[-1][:] = bytes(1) * (1 << 26)
        """,
        "error|timeout",
    ),
    hostile("memory: a string multiplied", "def f(): return ('x' * 10 ** 9) * 10 ** 3", "error"),
    hostile(
        "memory: swallowed",
        """
        def f():
            x = []
            while True:
                try: x.append([0] * 10 ** 6)
                except MemoryError: pass
        """,
        "timeout",
    ),
    hostile(
        "a thread bomb",
        """
        import _thread, threading, time
        threading.stack_size(32768)
        def f():
            while True:
                try: _thread.start_new_thread(time.sleep, (99,))
                except Exception: pass
        """,
        "crash|timeout",
    ),
    hostile(
        "threads that stay",
        """
        import threading, time
        def f():
            for _ in range(4): threading.Thread(target=time.sleep, args=(99,)).start()
            return 1
        """,
        "failed",
    ),
    hostile(
        "a fork bomb",
        """
        import os
        def f():
            while True:
                try: os.fork()
                except OSError: pass
        """,
        "crash|timeout",
    ),
    hostile(
        "a fork bomb in new sessions",
        """
        import os
        def f():
            while True:
                try:
                    if os.fork() == 0: os.setsid()
                except OSError: pass
        """,
        "crash|timeout",
    ),
    hostile(
        "memory: shared out to processes",
        """
        import os, time
        def f():
            for _ in range(8):
                if os.fork() == 0:
                    kept = b"x" * (150 << 20)
                    time.sleep(99)
            time.sleep(99)
        """,
        "error",
        needs_filter=True,
    ),
    hostile(
        "a daemon",
        """
        import os, time
        def f():
            if os.fork(): return "done"
            os.setsid()
            if os.fork(): os._exit(0)
            time.sleep(99)
        """,
        needs_filter=True,
    ),
    hostile(
        "a daemon that holds the pipe",
        """
        import os, time
        def f():
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0: time.sleep(99)
            os._exit(0)
        """,
        "error",
        needs_filter=True,
    ),
    hostile(
        "a process pool",
        """
        import multiprocessing
        def f():
            with multiprocessing.Pool(2) as pool: return pool.map(abs, [1, 2])
        """,
        needs_filter=True,
    ),
    hostile("output without end", "def f():\n    while True: print('x' * 10000)", "timeout"),
    hostile("errors without end", "import sys\ndef f():\n    while True: sys.stderr.write('x' * 10000)", "timeout"),
    hostile(
        "many errors",
        "import os\ndef f():\n    for _ in range(100): os.write(2, bytes(100000))\n    return 1",
        "failed",
    ),
    hostile(
        "warnings without end",
        "import warnings\ndef f():\n    for i in range(5000): warnings.warn('x' * 99 + str(i))\n    return 1",
        "failed",
    ),
    hostile("a value nested without end", "def f():\n    x = []\n    x.append(x)\n    return x", "failed"),
    hostile(
        "a value nested deep",
        "def f():\n    x = []\n    for _ in range(10 ** 5): x = [x]\n    return x",
        "failed|crash",
    ),
    hostile("a dictionary that holds itself", "def f():\n    x = {}\n    x['x'] = x.items()\n    return x", "failed"),
    hostile("a wide value", "def f(): return list(range(10 ** 6))", "failed|timeout|error"),
    hostile(
        "a wide value of shared parts",
        "def f():\n    x = 'x'\n    for _ in range(50): x = [x] * 10\n    return x",
        "failed",
    ),
    hostile("a huge integer", "def f(): return 1 << 10 ** 8", "failed|timeout|error"),
    hostile("a huge string", "def f(): return 'x' * 10 ** 8", "failed|timeout|error"),
    hostile("huge bytes", "def f(): return bytes(10 ** 8)", "failed|timeout|error"),
    hostile("a huge range", "def f(): return range(10 ** 4000)", "failed"),
    hostile("a string of lone surrogates", "def f(): return '\\ud800' * 1000", "failed"),
    hostile("a generator without end", "def f():\n    while True: yield 1", "failed"),
    hostile("a generator that sleeps", "import time\ndef f():\n    yield 1\n    time.sleep(99)", "timeout"),
    hostile("a generator that exits", "import os\ndef f():\n    yield 1\n    os._exit(0)", "crash"),
    hostile("a count, returned", "import itertools\ndef f(): return map(abs, itertools.count())", "failed"),
    *(
        hostile(
            f"{method} that {kind}",
            f"""
        import os
        class A:
            def {method}(self, *a):
                {body}
        def f(): return A()
        """,
            outcome,
        )
        for method in ("__repr__", "__getattribute__")
        for kind, body, outcome in (
            ("loops", "while True: pass", "timeout"),
            ("exits", "os._exit(0)", "crash"),
            ("raises", "raise SystemExit(0)", "failed|error"),
        )
    ),
    *(
        hostile(
            f"{method} that loops",
            f"""
        class A(dict):
            def {method}(self, *a):
                while True: pass
        def f(): return A(x=1)
        """,
            "failed|timeout",
        )
        for method in ("__eq__", "__hash__", "__reduce__", "__iter__", "__len__", "items", "__del__")
    ),
    hostile(
        "__class__ that lies",
        """
        class A:
            __class__ = property(lambda self: str)
        def f(): return A()
        """,
    ),
    hostile(
        "an int subclass that lies",
        """
        class A(int):
            def __index__(self): return 10 ** 100
            def bit_length(self): raise SystemExit(0)
            def __format__(self, spec): return "done"
        def f(): return A(2 ** 70)
        """,
    ),
    hostile("atexit", "import atexit, time\ndef f():\n    atexit.register(time.sleep, 99)\n    return 1", "failed"),
    hostile(
        "a module without end in __del__",
        """
        import time
        class A:
            def __del__(self): time.sleep(99)
        kept = A()
        def f(): return 1
        """,
        "failed|timeout",
    ),
    hostile(
        "a thread that writes after the end",
        """
        import os, threading, time
        def loop():
            while True:
                for fd in range(3, 64):
                    try: os.write(fd, b"late")
                    except OSError: pass
        def f():
            threading.Thread(target=loop, daemon=True).start()
            time.sleep(0.05)
            return 1
        """,
        "crash",
    ),
]
