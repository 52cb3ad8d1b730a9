"""The environment and the order of the tests, the marker `quick`, and fixtures that every folder uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.environment import isolate

# Before anything imports torch or transformers; pytest-xdist's workers inherit the environment of the first process.
_FOLDER = None if "PYTEST_XDIST_WORKER" in os.environ else isolate()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write the snapshots of screens anew")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, made the current one: `runs/` of a command lands in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_unconfigure() -> None:
    if _FOLDER is not None:
        _FOLDER.cleanup()
