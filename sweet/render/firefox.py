"""Find Firefox and its driver, and define its preferences, its environment and the handling of its processes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sweet.errors import UsageError
from sweet.installation import install_command

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
        own: whether it is Playwright's own build, which only Playwright can drive.
    """

    path: str
    driver: Literal["playwright", "direct"]
    own: bool = False

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
    wanted = environment.get("SWEET_BROWSER_DRIVER") or None
    if wanted not in (None, "playwright", "direct"):
        raise UsageError(
            "There is no driver of this name.",
            where=f"SWEET_BROWSER_DRIVER={wanted}",
            fix="set it to playwright or direct, or unset it",
        )
    spec = importlib.util.find_spec("playwright")
    package = Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
    if wanted == "playwright" and package is None:
        raise UsageError(
            "The package playwright is not installed.",
            where="SWEET_BROWSER_DRIVER=playwright",
            fix=install_command("html"),
        )
    driver: Literal["playwright", "direct"] = "playwright" if wanted == "playwright" else "direct"
    if given := environment.get("SWEET_FIREFOX"):
        path = shutil.which(given)
        if path is None:
            raise UsageError("There is no program of this name.", where=f"SWEET_FIREFOX={given}", fix=INSTALL_FIREFOX)
        return Firefox(path, driver)
    if package and wanted != "direct" and (own := _own_build(package, environment)):
        return Firefox(own, "playwright", own=True)
    path = shutil.which("firefox-esr") or shutil.which("firefox") or shutil.which(MACOS_FIREFOX)
    if path is None:
        raise UsageError("Rendering pages needs Firefox, and there is none.", fix=INSTALL_FIREFOX)
    return Firefox(path, driver)


def _own_build(package: Path, environment: Mapping[str, str]) -> str | None:
    """Return the folder of the installed Firefox build of the revision that this Playwright starts."""
    driver = package / "driver" / "package"
    try:
        listed = json.loads((driver / "browsers.json").read_text(encoding="utf-8"))["browsers"]
        revision = next(entry["revision"] for entry in listed if entry["name"] == "firefox")
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None
    given = environment.get("PLAYWRIGHT_BROWSERS_PATH")
    if given == "0":
        builds = driver / ".local-browsers"
    elif given:
        builds = Path(given)
    elif sys.platform == "darwin":
        builds = Path.home() / "Library" / "Caches" / "ms-playwright"
    else:
        builds = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ms-playwright"
    folder = builds / f"firefox-{revision}"
    return str(folder) if (folder / "INSTALLATION_COMPLETE").is_file() else None


def command(path: str, folder: Path) -> list[str]:
    """Return the command line of a browser with this profile folder, which chooses the port for commands itself."""
    return [path, "--headless", "--no-remote", "--profile", str(folder), "--remote-debugging-port=0"]


def preferences(port: int) -> dict[str, Any]:
    """Return Firefox's preferences for a browser that can reach only the server at this port."""
    nowhere = "http://127.0.0.1/"
    return {
        # All traffic goes to the server, including that to this machine's own addresses.
        "network.proxy.type": 1,
        "network.proxy.http": "127.0.0.1",
        "network.proxy.http_port": port,
        "network.proxy.ssl": "127.0.0.1",
        "network.proxy.ssl_port": port,
        "network.proxy.socks": "127.0.0.1",
        "network.proxy.socks_port": port,
        "network.proxy.socks_remote_dns": True,
        "network.proxy.no_proxies_on": "",
        "network.proxy.allow_hijacking_localhost": True,
        "network.proxy.failover_direct": False,
        "network.proxy.allow_bypass": False,
        "network.trr.mode": 5,
        "network.dns.disablePrefetch": True,
        "network.dns.disablePrefetchFromHTTPS": True,
        "network.dns.disableIPv6": True,
        "network.prefetch-next": False,
        "network.predictor.enabled": False,
        "network.early-hints.enabled": False,
        "network.http.speculative-parallel-limit": 0,
        "network.http.http3.enable": False,
        "network.http.altsvc.enabled": False,
        "network.webtransport.enabled": False,
        "network.captive-portal-service.enabled": False,
        "network.connectivity-service.enabled": False,
        "network.protocol-handler.external-default": False,
        "network.protocol-handler.warn-external-default": False,
        "media.peerconnection.enabled": False,
        # Pages are served without TLS, from hosts that may be known to require it.
        "dom.security.https_first": False,
        "dom.security.https_only_mode": False,
        "network.stricttransportsecurity.preloadlist": False,
        "security.OCSP.enabled": 0,
        # Features that pages do not need.
        "dom.serviceWorkers.enabled": False,
        "dom.push.enabled": False,
        "dom.webnotifications.enabled": False,
        "dom.disable_beforeunload": True,
        "dom.disable_open_during_load": True,
        "dom.popup_maximum": 0,
        "dom.battery.enabled": False,
        "dom.webgpu.enabled": False,
        "dom.xslt.enabled": False,
        "full-screen-api.enabled": False,
        "geo.enabled": False,
        "webgl.disabled": True,
        "media.autoplay.default": 5,
        "media.gmp-manager.updateEnabled": False,
        "media.gmp-provider.enabled": False,
        "media.navigator.enabled": False,
        "network.cookie.cookieBehavior": 2,
        "dom.indexedDB.enabled": False,
        "dom.caches.enabled": False,
        "pdfjs.disabled": True,
        "dom.max_script_run_time": 0,
        "dom.max_chrome_script_run_time": 0,
        "dom.ipc.reportProcessHangs": False,
        "hangmonitor.timeout": 0,
        # Reproducible rendering.
        "ui.useOverlayScrollbars": 1,
        "ui.caretBlinkTime": 0,
        "ui.prefersReducedMotion": 0,
        "ui.systemUsesDarkTheme": 0,
        "layout.css.prefers-color-scheme.content-override": 1,
        "layout.css.devPixelsPerPx": "1.0",
        "layout.css.visited_links_enabled": False,
        "dom.image-lazy-loading.enabled": False,
        "image.animation_mode": "none",
        # Otherwise an image is drawn from its full size or from a smaller copy, whichever was decoded first.
        "image.downscale-during-decode.enabled": False,
        "intl.accept_languages": "en-US, en",
        "intl.locale.requested": "en-US",
        "gfx.color_management.mode": 0,
        # Clocks are rounded down to half an hour, also those of events, animations and files: a page's own age is 0.
        "privacy.reduceTimerPrecision": True,
        "privacy.resistFingerprinting.reduceTimerPrecision.microseconds": 2_000_000_000,
        "privacy.resistFingerprinting.reduceTimerPrecision.jitter": False,
        "privacy.resistFingerprinting": False,
        "privacy.fingerprintingProtection": False,
        "browser.display.use_system_colors": False,
        # Background services, which cost time and contact Mozilla.
        "accessibility.force_disabled": 1,
        "app.normandy.enabled": False,
        "app.shield.optoutstudies.enabled": False,
        "app.update.enabled": False,
        "app.update.auto": False,
        "browser.aboutwelcome.enabled": False,
        "browser.cache.disk.enable": False,
        "browser.cache.memory.capacity": 65536,
        "browser.cache.memory.max_entry_size": 16384,
        "browser.chrome.site_icons": False,
        "browser.contentblocking.category": "custom",
        "browser.ml.enable": False,
        "browser.newtabpage.enabled": False,
        "browser.pagethumbnails.capturing_disabled": True,
        "browser.ping-centre.telemetry": False,
        "browser.region.network.url": "",
        "browser.safebrowsing.malware.enabled": False,
        "browser.safebrowsing.phishing.enabled": False,
        "browser.safebrowsing.downloads.enabled": False,
        "browser.safebrowsing.update.enabled": False,
        "browser.search.update": False,
        "browser.sessionhistory.max_entries": 2,
        "browser.sessionhistory.max_total_viewers": 0,
        "browser.sessionstore.resume_from_crash": False,
        "browser.sessionstore.interval": 3_600_000,
        "browser.shell.checkDefaultBrowser": False,
        "browser.startup.homepage": "about:blank",
        "browser.startup.homepage_override.mstone": "ignore",
        "browser.startup.page": 0,
        "browser.tabs.unloadOnLowMemory": False,
        "browser.translations.enable": False,
        "browser.urlbar.suggest.searches": False,
        "datareporting.healthreport.uploadEnabled": False,
        "datareporting.policy.dataSubmissionEnabled": False,
        "datareporting.policy.dataSubmissionPolicyBypassNotification": True,
        "dom.ipc.processCount": 1,
        "dom.ipc.keepProcessesAlive.web": 1,
        "fission.autostart": False,
        "dom.ipc.processPrelaunch.enabled": False,
        "dom.ipc.processPrelaunch.fission.number": 0,
        "extensions.getAddons.cache.enabled": False,
        "extensions.systemAddon.update.enabled": False,
        "extensions.update.enabled": False,
        "extensions.webextensions.remote": False,
        "extensions.formautofill.addresses.enabled": False,
        "extensions.formautofill.creditCards.enabled": False,
        "identity.fxaccounts.enabled": False,
        "layout.frame_rate": 10,  # an unseen page does not have to be drawn sixty times a second
        "layout.spellcheckDefault": 0,
        "places.history.enabled": False,
        "privacy.query_stripping.enabled": False,
        "privacy.trackingprotection.enabled": False,
        "privacy.trackingprotection.annotate_channels": False,
        "privacy.trackingprotection.pbmode.enabled": False,
        "reader.parse-on-load.enabled": False,
        "remote.active-protocols": 1,  # WebDriver BiDi, and nothing older
        "services.settings.server": nowhere,
        "signon.autofillForms": False,
        "signon.rememberSignons": False,
        "toolkit.cosmeticAnimations.enabled": False,
        "toolkit.startup.max_resumed_crashes": -1,
        "toolkit.telemetry.enabled": False,
        "toolkit.telemetry.server": nowhere,
        "toolkit.telemetry.unified": False,
    }


def environment_of(folder: Path, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a browser's environment: that of this process with English, UTC, no display, and a temporary folder."""
    inherited = {
        name: value
        for name, value in given.items()
        if not name.startswith(("LC_", "MOZ_"))
        and not name.lower().endswith("_proxy")
        and not name.endswith("_API_KEY")
    }
    own = {"LANG": "C.UTF-8", "LANGUAGE": "en", "TZ": "UTC", "TMPDIR": str(folder)}
    return {**inherited, **own, "MOZ_HEADLESS": "1", "MOZ_CRASHREPORTER_DISABLE": "1"}


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
        found = set()
        for pid in self.members():
            with suppress(OSError):  # it has just ended
                if Path(f"/proc/{pid}/comm").read_text().startswith(("Web Content", "Isolated Web Co")):
                    found.add(pid)
        return found

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
    found = [row.group for row in _table() if row.group == row.pid and mark in row.command]
    return Processes(found[0]) if found else None


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
        said = subprocess.run(
            ["ps", "-axo", "pid=,pgid=,rss=,command="], capture_output=True, text=True, errors="replace", timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = []
    for line in said.stdout.splitlines():
        words = line.split(None, 3)
        if len(words) == 4:
            rows.append(_Row(int(words[0]), int(words[1]), int(words[2]), words[3]))
    return rows
