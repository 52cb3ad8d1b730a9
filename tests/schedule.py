"""The order of the tests, and which of them are quick or slow, by the seconds that they took when last recorded.

`durations.json` has the seconds of each test function that took long, of its slowest parameters: `pytest
--update-durations` records them. A test that is missing there counts as quick, and one that no longer exists does no
harm. pytest-xdist's scheduler `worksteal` first gives each worker an equal share of the list, in order, and a worker
that is done takes tests from the end of another's share. So each share begins with modules that take long, as many
seconds in each, and ends with short tests. A module stays on one worker, so that its fixtures are made once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.json")
RECORDED = 0.1
"""Seconds from which a test function is recorded."""
QUICK = 0.1
"""Seconds up to which a test is quick."""
SLOW = 2.0
"""Seconds above which a test is slow: one in nine, which take more than half of the time."""
LONG = 3.0
"""Seconds from which a module is begun early."""
COSTLY_FIXTURES = {"nodes", "address", "studied", "trained", "unchanged"}
"""Those that start clusters or train: no test that has one is quick, whichever is the first to wait for it."""
TOGETHER = {"cluster", "render"}
"""Folders whose modules share a costly fixture, and stay on one worker."""


def recorded() -> dict[str, float]:
    """Seconds by test function; empty if nothing was recorded."""
    try:
        found: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def function_id(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def is_quick(item: pytest.Item, seconds: Mapping[str, float]) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    return seconds.get(function_id(item.nodeid), 0.0) <= QUICK and not fixtures & COSTLY_FIXTURES


def arranged(items: Sequence[pytest.Item], seconds: Mapping[str, float], workers: int) -> list[pytest.Item]:
    """The items in the order in which so many workers should do them."""
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        folder, _, _ = item.nodeid.partition("::")[0].rpartition("/")
        together = folder.rpartition("/")[2] in TOGETHER
        modules.setdefault(folder if together else item.nodeid.partition("::")[0], []).append(item)
    costs = {name: sum(seconds.get(function_id(item.nodeid), 0.0) for item in modules[name]) for name in modules}
    capacity = len(items) // workers
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    load = [0.0] * workers
    short: list[pytest.Item] = []
    for name in sorted(modules, key=lambda name: -costs[name]):
        least = min(range(workers), key=load.__getitem__)
        if costs[name] < LONG or len(shares[least]) + len(modules[name]) > capacity:
            continue
        load[least] += costs[name]
        shares[least] += modules[name]
        del modules[name]
    for rest in modules.values():  # in the order of collection
        short += rest
    for share in shares[:-1]:
        room = capacity - len(share)
        share += short[:room]
        del short[:room]
    return [item for share in [*shares[:-1], shares[-1] + short] for item in share]


class Recorder:
    """Adds up the seconds of each test, with those of its fixtures, and writes the file when the session ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        by_function: dict[str, float] = {}
        for nodeid, seconds in self.seconds.items():
            name = function_id(nodeid)
            by_function[name] = max(by_function.get(name, 0.0), seconds)
        modules = {name.partition("::")[0] for name in by_function}
        kept = {name: value for name, value in recorded().items() if name.partition("::")[0] not in modules}
        kept |= {name: round(value, 1) for name, value in by_function.items() if value >= RECORDED}
        text = json.dumps(dict(sorted(kept.items())), indent=0)
        FILE.write_text(text + "\n", encoding="utf-8")
