"""The garbage collector at the start and at the end of a process, and the memory of freed objects."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import weakref

import pytest

from sweet import collector


class Cycle:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_nothing_is_collected_while_paused() -> None:
    with collector.paused():
        assert not gc.isenabled()
        lost = weakref.ref(Cycle())
        for _ in range(100):
            [[] for _ in range(10_000)]
        assert lost() is not None
        with collector.paused():
            pass
        assert not gc.isenabled(), "the inner context leaves it paused"
    assert gc.isenabled()
    gc.collect()
    assert lost() is None


def test_an_error_ends_the_pause() -> None:
    with pytest.raises(ImportError), collector.paused():
        raise ImportError
    assert gc.isenabled()


FROZEN = """
import gc, sys, types
from sweet import collector

def imported(count):
    with collector.paused():
        sys.modules.update({f"made_{count}_{number}": types.ModuleType("made") for number in range(count)})
        return {"a": []}

before = gc.get_freeze_count()  # Python 3.12 has frozen some objects
imported(collector.MANY - 1)
assert gc.get_freeze_count() == before
made = imported(collector.MANY)
assert gc.get_freeze_count() > before + 1000
assert not any(each is made for each in gc.get_objects())
"""


def test_later_collections_skip_what_a_large_import_has_made() -> None:
    subprocess.run([sys.executable, "-c", FROZEN], check=True)


AT_EXIT = """
import gc, sys
from sweet import collector

class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        print("collected")

made = Cycle()
del made
if sys.argv[1] == "end":
    collector.before_exit()
"""


@pytest.mark.parametrize(("how", "seen"), [("end", ""), ("plain", "collected\n")])
def test_before_exit_spares_the_last_collection(how: str, seen: str) -> None:
    done = subprocess.run([sys.executable, "-c", AT_EXIT, how], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (seen, "")


FREED = """
from pathlib import Path
from sweet import collector

def used():
    return int(Path("/proc/self/statm").read_text().split()[1])

blocks = [bytes(60_000 + one % 7) for one in range(2_000)]  # smaller than what gets a mapping of its own
end, full = bytes(60_000), used()
del blocks
kept = used()
collector.give_back()
print(full - kept, full - used())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_the_memory_of_freed_objects_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    kept, given = (int(pages) for pages in done.stdout.split())
    assert given > 20_000 > kept, "of 29,000 pages"
