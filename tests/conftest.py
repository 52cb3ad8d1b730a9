"""What every test starts from: no network, one thread, no settings of the person who runs the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before anything imports torch or transformers; processes that tests start inherit it.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = "1"  # two processes run tests side by side: more threads only get in each other's way


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write the snapshots of screens anew")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in [name for name in os.environ if name.startswith(("SWEET_", "_SWEET_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SWEET_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, made the current one: `runs/` of a command lands in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
