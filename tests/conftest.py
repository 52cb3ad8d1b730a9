"""The environment and the order of the tests, the markers `quick` and `slow`, and fixtures that every folder uses."""

from __future__ import annotations

import atexit
import gc
import os
import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from packaging.version import Version

from sweet import collector
from sweet.device import usable_cores
from tests import firefox_cache, programs, schedule
from tests.environment import isolate
from tests.zygote import COLLECTIONS, QUICK

# Before anything imports torch or transformers; pytest-xdist's workers inherit the environment of the first process.
_IS_FIRST = "PYTEST_XDIST_WORKER" not in os.environ
_UNTIL_END = ExitStack()
if _IS_FIRST:
    _folder = _UNTIL_END.enter_context(isolate())
    _FIREFOX = firefox_cache.install(Path(_folder))
    if "quick" in sys.argv:
        os.environ[QUICK] = "1"
    if os.environ.get(programs.SWITCH) != "off":
        _UNTIL_END.enter_context(programs.zygotes(Path(_folder, "zygotes")))
# readline, which pytest imports, sets these for the workers: messages would wrap, as on a terminal.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
_SECONDS = schedule.recorded()
_SOFT_CAPS_LEFT_OUT = Version(version("transformers")) < Version("5.21")  # such a model is refused by load_model

# Thousands of small files are written here, none of which has to survive a loss of power. Which flushes the program
# asks for, and in which order, is tested with a log of them (tests/disk_log.py).
vars(os)["fsync"] = vars(os)["fdatasync"] = lambda file: None
# A busy machine is no reason to fail. In CI a commit has one result; elsewhere each run looks for new examples.
# `--hypothesis-profile thorough` looks for more of them.
for _name, _examples in (("suite", 40), ("thorough", 500)):
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize="CI" in os.environ,
    )
settings.load_profile("suite")
# After pytest's own collections, which find what tests have left open.
atexit.register(collector.before_exit)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write the snapshots of screens anew")
    parser.addoption("--update-durations", action="store_true", help="record the seconds of tests in durations.json")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers for a core, because many tests wait for processes that they start: with three, the processes of
    each test wait for those of others, and take more processor time. Quick tests wait for nothing, and take less time
    than a worker takes to collect them. For each 2 GiB of memory one."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for_a_core = 1 if config.option.markexpr == "quick" else 2
    return max(1, min(for_a_core * usable_cores(), memory >> 31))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "quick: takes little time (tests/schedule.py); for the loop of daily work")
    config.addinivalue_line("markers", "slow: takes long (tests/schedule.py): kills, ranks, browsers, whole trainings")
    if config.getoption("--update-durations") and _IS_FIRST:
        config.pluginmanager.register(schedule.Recorder())


def pytest_unconfigure() -> None:
    _UNTIL_END.close()


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if schedule.is_quick(item, _SECONDS):
        item.add_marker(pytest.mark.quick)
    elif _SECONDS.get(schedule.function_id(item.nodeid), 0.0) > schedule.SLOW:
        item.add_marker(pytest.mark.slow)
    callspec: Any = getattr(item, "callspec", None)
    if _SOFT_CAPS_LEFT_OUT and callspec is not None and callspec.params.get("family") == "gemma2":
        item.add_marker(pytest.mark.skip(reason="transformers before 5.21 leaves the soft cap out"))


@pytest.hookimpl(trylast=True)  # after tests were deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = schedule.arranged(items, _SECONDS, workers)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Let workers be forked where programs are, and fill the cache of Firefox if the tests of all folders run."""
    all_modules = config.args_source == config.ArgsSource.TESTPATHS
    os.environ[programs.WORKERS] = "all" if all_modules else "tests"
    if _FIREFOX and all_modules and not config.option.keyword and config.option.markexpr in ("", "not slow"):
        _UNTIL_END.enter_context(firefox_cache.filling(Path(_folder), _FIREFOX))
    for spec in specs:
        if programs.FOLDER in os.environ and spec.popen and spec.python is None:
            spec.python = shlex.quote(programs.interpreter())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from the objects of modules and tests, which stay until the end, and let it look
    through the others when there are many."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTIONS)
        gc.enable()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, made the current one: `runs/` of a command lands in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def forked_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks and workers that this process and its programs start are forked (`tests.interpreter`)."""
    monkeypatch.setattr(sys, "executable", programs.interpreter())


@pytest.fixture
def one_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages start one browser in this process, however many cores there are: a start takes seconds."""
    monkeypatch.setattr("sweet.render.browsers.MAX_BROWSERS", 1)
