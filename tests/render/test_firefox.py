"""The choice of Firefox."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sweet.errors import SweetError, UsageError
from sweet.render.browsers import default_count, open_browsers
from sweet.render.firefox import find_firefox

pytest.importorskip("cryptography", reason="cryptography is not installed")


@pytest.fixture(autouse=True)
def _nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any browser, and without a variable that names one."""
    monkeypatch.delenv("SWEET_FIREFOX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sweet.render.firefox.MACOS_FIREFOX", "no-such-program")


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 3\n")
    path.chmod(0o755)
    return str(path)


def test_without_firefox() -> None:
    with pytest.raises(UsageError, match="there is none") as caught:
        find_firefox()
    assert "apt install firefox" in str(caught.value.fix)
    assert default_count() >= 1


def test_the_first_that_exists_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = program(tmp_path / "firefox")
    assert find_firefox() == system
    esr = program(tmp_path / "firefox-esr")
    assert find_firefox() == esr
    named = program(tmp_path / "elsewhere" / "mine")
    monkeypatch.setenv("SWEET_FIREFOX", named)
    assert find_firefox() == named


def test_a_variable_that_names_no_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "firefox")
    monkeypatch.setenv("SWEET_FIREFOX", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="no program"):
        find_firefox()


def test_a_firefox_that_does_not_start(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_browsers(None, 1) as pool:
            await pool.shoot("<p>page</p>")

    path = program(tmp_path / "firefox")
    with pytest.raises(SweetError, match=r"Firefox does not start: .") as caught:
        asyncio.run(work())
    assert path in str(caught.value.where)
