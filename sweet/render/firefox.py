"""Find Firefox and its driver, and define its preferences, its environment and the handling of its processes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from sweet.errors import UsageError
from sweet.installation import install_command
from sweet.paths import home

INSTALL_FIREFOX = (
    "playwright install firefox, or your system's Firefox, e.g. apt install firefox-esr, or set SWEET_FIREFOX to one"
)

MACOS_FIREFOX = "/Applications/Firefox.app/Contents/MacOS/firefox"


@dataclass(frozen=True)
class Firefox:
    """A Firefox to start.

    Attributes:
        path: the program, or the folder of Playwright's own build.
        driver: the driver: Playwright, or sweet directly.
        bundled: whether it is Playwright's own build, which only Playwright can drive.
    """

    path: str
    driver: Literal["playwright", "direct"]
    bundled: bool = False

    def __str__(self) -> str:
        return f"{self.path}, driven {'by Playwright' if self.driver == 'playwright' else 'directly'}"


def find_firefox(environment: Mapping[str, str] = os.environ) -> Firefox:
    """Choose a Firefox and its driver: the first of these that exists.

    1. The program that `SWEET_FIREFOX` names, driven directly.
    2. Playwright's own Firefox, which `playwright install firefox` installs, driven by Playwright.
    3. firefox-esr or firefox on the PATH or at its place on macOS, driven directly.

    `SWEET_BROWSER_DRIVER` overrides this: with `direct` the second is skipped, with `playwright` Playwright drives the
    first and the third too.

    Raises:
        UsageError: there is no Firefox, a required package is not installed, or one of the two variables is invalid.
    """
    if importlib.util.find_spec("cryptography") is None:
        raise UsageError("Rendering pages needs the package cryptography.", fix=install_command("html"))
    driver_name = environment.get("SWEET_BROWSER_DRIVER") or None
    if driver_name not in (None, "playwright", "direct"):
        raise UsageError(
            "There is no driver of this name.",
            where=f"SWEET_BROWSER_DRIVER={driver_name}",
            fix="set it to playwright or direct, or unset it",
        )
    spec = importlib.util.find_spec("playwright")
    package = Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
    if driver_name == "playwright" and package is None:
        raise UsageError(
            "The package playwright is not installed.",
            where="SWEET_BROWSER_DRIVER=playwright",
            fix=install_command("html"),
        )
    driver: Literal["playwright", "direct"] = "playwright" if driver_name == "playwright" else "direct"
    if program := environment.get("SWEET_FIREFOX"):
        path = shutil.which(program)
        if path is None:
            raise UsageError("There is no program of this name.", where=f"SWEET_FIREFOX={program}", fix=INSTALL_FIREFOX)
        return Firefox(path, driver)
    if package and driver_name != "direct" and (build := _bundled_build(package, environment)):
        return Firefox(build, "playwright", bundled=True)
    path = shutil.which("firefox-esr") or shutil.which("firefox") or shutil.which(MACOS_FIREFOX)
    if path is None:
        raise UsageError("Rendering pages needs Firefox, and there is none.", fix=INSTALL_FIREFOX)
    return Firefox(path, driver)


def _bundled_build(package: Path, environment: Mapping[str, str]) -> str | None:
    """Return the folder of the installed Firefox build of the revision that this Playwright starts."""
    driver = package / "driver" / "package"
    try:
        listed = json.loads((driver / "browsers.json").read_text(encoding="utf-8"))["browsers"]
        revision = next(entry["revision"] for entry in listed if entry["name"] == "firefox")
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None
    if chosen := environment.get("PLAYWRIGHT_BROWSERS_PATH"):
        builds = driver / ".local-browsers" if chosen == "0" else Path(chosen)
    elif sys.platform == "darwin":
        builds = home() / "Library" / "Caches" / "ms-playwright"
    else:
        builds = Path(environment.get("XDG_CACHE_HOME") or home() / ".cache") / "ms-playwright"
    folder = builds / f"firefox-{revision}"
    return str(folder) if (folder / "INSTALLATION_COMPLETE").is_file() else None


def command(path: str, folder: Path) -> list[str]:
    """Return the command line of a browser with this profile folder, which chooses the port for commands itself."""
    return [path, "--headless", "--no-remote", "--profile", str(folder), "--remote-debugging-port=0"]


def preferences(port: int) -> dict[str, Any]:
    """Return Firefox's preferences for a browser that can reach only the server at this port."""
    settings = tomllib.loads((resources.files("sweet.render") / "preferences.toml").read_text(encoding="utf-8"))
    return settings | {f"network.proxy.{name}_port": port for name in ("http", "ssl", "socks")}


def environment_of(folder: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a browser's environment: that of this process with English, UTC, no display, and a temporary folder."""
    inherited = {
        name: value
        for name, value in environment.items()
        if not name.startswith(("LC_", "MOZ_"))
        and not name.lower().endswith("_proxy")
        and not name.endswith("_API_KEY")
    }
    fixed = {"LANG": "C.UTF-8", "LANGUAGE": "en", "TZ": "UTC", "TMPDIR": str(folder)}
    # Without the last one a release takes settings from Mozilla's server alone, and begins with a copy of all of them.
    mozilla = {"MOZ_HEADLESS": "1", "MOZ_CRASHREPORTER_DISABLE": "1", "MOZ_REMOTE_SETTINGS_DEVTOOLS": "1"}
    return {**inherited, **fixed, **mozilla}


_PROC = Path("/proc/self/stat").exists()


@dataclass(frozen=True)
class Processes:
    """The processes of one browser: those of its process group, led by its supervisor or by itself."""

    group: int

    def memory(self) -> int:
        """Return their memory in MB, with shared memory counted for each of them."""
        if not _PROC:
            return sum(row.kilobytes for row in _table_of_ps() if row.group == self.group) // 1024
        pages = 0
        for pid in self.members():
            try:
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (OSError, IndexError):  # it has just ended
                continue
        return pages * os.sysconf("SC_PAGE_SIZE") // 2**20

    def members(self) -> Iterator[int]:
        """Yield their process ids, if there is /proc.

        The kernel is asked for the group of each process, which is far cheaper than reading /proc/PID/stat of all.
        """
        for name in os.listdir("/proc") if _PROC else ():  # noqa: PTH208 - Path objects would cost more than the rest
            if name.isdecimal():
                with suppress(ProcessLookupError, PermissionError):
                    if os.getpgid(int(name)) == self.group:
                        yield int(name)

    def drawing(self) -> set[int]:
        """Return the process ids of those that draw pages, if there is /proc."""
        pids = set()
        for pid in self.members():
            with suppress(OSError):  # it has just ended
                if Path(f"/proc/{pid}/comm").read_text().startswith(("Web Content", "Isolated Web Co")):
                    pids.add(pid)
        return pids

    def kill(self) -> None:
        """Kill them."""
        try:
            os.killpg(self.group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def gone(self) -> bool:
        return not any(row.group == self.group for row in _table())


def processes_of(mark: str) -> Processes | None:
    """Return the processes of the browser whose command line contains `mark`, or None if it is not found."""
    groups = [row.group for row in _table() if row.group == row.pid and mark in row.command]
    return Processes(groups[0]) if groups else None


@dataclass(frozen=True)
class _Row:
    pid: int
    group: int
    kilobytes: int
    command: str


def _table() -> list[_Row]:
    """Return the running processes of this machine that can be read."""
    if not _PROC:
        return _table_of_ps()
    page = os.sysconf("SC_PAGE_SIZE") // 1024
    rows = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] in "ZX":
                continue
            command = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:  # it has just ended
            continue
        rows.append(_Row(int(entry.name), int(fields[2]), int(fields[21]) * page, command))
    return rows


def _table_of_ps() -> list[_Row]:
    try:
        listing = subprocess.run(
            ["ps", "-axo", "pid=,pgid=,rss=,command="], capture_output=True, text=True, errors="replace", timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = []
    for line in listing.stdout.splitlines():
        words = line.split(None, 3)
        if len(words) == 4:
            rows.append(_Row(int(words[0]), int(words[1]), int(words[2]), words[3]))
    return rows
