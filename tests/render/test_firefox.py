"""The choice of Firefox and of its driver."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from sweet.errors import SweetError, UsageError
from sweet.render.browsers import default_count, open_browsers
from sweet.render.firefox import Firefox, find_firefox

pytest.importorskip("cryptography", reason="cryptography is not installed")

needs_playwright = pytest.mark.skipif(find_spec("playwright") is None, reason="Playwright is not installed")


@pytest.fixture(autouse=True)
def _nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any browser, and without variables that name one."""
    for name in ("SWEET_FIREFOX", "SWEET_BROWSER_DRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "browsers"))
    monkeypatch.setattr("sweet.render.firefox.MACOS_FIREFOX", "no-such-program")


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 3\n")
    path.chmod(0o755)
    return str(path)


def own_build(browsers: Path) -> str:
    """The folders as `playwright install firefox` leaves them, with a Firefox that ends at once."""
    spec = find_spec("playwright")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    listed = Path(spec.submodule_search_locations[0]) / "driver" / "package" / "browsers.json"
    (revision,) = [each["revision"] for each in json.loads(listed.read_text())["browsers"] if each["name"] == "firefox"]
    folder = browsers / f"firefox-{revision}"
    program(folder / "firefox" / "firefox")
    assert not find_firefox_or_none(), "not before it is complete"
    (folder / "INSTALLATION_COMPLETE").touch()
    return str(folder)


def find_firefox_or_none() -> Firefox | None:
    try:
        return find_firefox()
    except UsageError:
        return None


def test_without_firefox() -> None:
    with pytest.raises(UsageError, match="there is none") as caught:
        find_firefox()
    assert "playwright install firefox" in str(caught.value.fix)
    assert "apt install firefox" in str(caught.value.fix)
    assert default_count() >= 1


@needs_playwright
def test_the_first_that_exists_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = own_build(tmp_path / "browsers")
    assert find_firefox() == Firefox(own, "playwright", bundled=True)
    system = program(tmp_path / "firefox")
    assert find_firefox() == Firefox(own, "playwright", bundled=True)
    monkeypatch.setenv("SWEET_BROWSER_DRIVER", "direct")
    assert find_firefox() == Firefox(system, "direct")
    monkeypatch.setenv("SWEET_BROWSER_DRIVER", "playwright")
    assert find_firefox() == Firefox(own, "playwright", bundled=True)
    named = program(tmp_path / "elsewhere" / "mine")
    monkeypatch.setenv("SWEET_FIREFOX", named)
    assert find_firefox() == Firefox(named, "playwright")
    monkeypatch.delenv("SWEET_BROWSER_DRIVER")
    assert find_firefox() == Firefox(named, "direct")
    monkeypatch.delenv("SWEET_FIREFOX")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "none"))
    assert find_firefox() == Firefox(system, "direct")
    esr = program(tmp_path / "firefox-esr")
    assert find_firefox() == Firefox(esr, "direct")
    monkeypatch.setenv("SWEET_BROWSER_DRIVER", "playwright")
    assert find_firefox() == Firefox(esr, "playwright")


def test_invalid_variables_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "firefox")
    monkeypatch.setenv("SWEET_BROWSER_DRIVER", "selenium")
    with pytest.raises(UsageError, match="no driver") as caught:
        find_firefox()
    assert caught.value.where == "SWEET_BROWSER_DRIVER=selenium"
    monkeypatch.delenv("SWEET_BROWSER_DRIVER")
    monkeypatch.setenv("SWEET_FIREFOX", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="no program"):
        find_firefox()


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = program(tmp_path / "firefox")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "playwright" else find_spec(name))
    assert find_firefox() == Firefox(system, "direct")
    monkeypatch.setenv("SWEET_BROWSER_DRIVER", "playwright")
    with pytest.raises(UsageError, match="playwright is not installed") as caught:
        find_firefox()
    assert "[html]" in str(caught.value.fix)


@pytest.mark.parametrize("driver", ["direct", pytest.param("playwright", marks=needs_playwright), "own"])
def test_a_firefox_that_does_not_start(driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with open_browsers(None, 1) as pool:
            await pool.shoot("<p>page</p>")

    monkeypatch.setenv("PLAYWRIGHT_SKIP_VALIDATE_HOST_REQUIREMENTS", "1")
    if driver == "own":
        if find_spec("playwright") is None:
            pytest.skip("Playwright is not installed")
        path = own_build(tmp_path / "browsers")
    else:
        monkeypatch.setenv("SWEET_BROWSER_DRIVER", driver)
        path = program(tmp_path / "firefox")
    with pytest.raises(SweetError, match=r"Firefox does not start: .") as caught:
        asyncio.run(work())
    assert path in str(caught.value.where)
