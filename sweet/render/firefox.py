"""Find Firefox, and define its preferences, its environment and the handling of its processes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.errors import UsageError
from sweet.installation import install_command

INSTALL_FIREFOX = "your system's Firefox, e.g. apt install firefox-esr, or set SWEET_FIREFOX to one"

MACOS_FIREFOX = "/Applications/Firefox.app/Contents/MacOS/firefox"


def find_firefox() -> str:
    """Return the program that `SWEET_FIREFOX` names, else firefox-esr or firefox of the PATH or at its place on macOS.

    Raises:
        UsageError: there is no Firefox, or the package cryptography is not installed.
    """
    if importlib.util.find_spec("cryptography") is None:
        raise UsageError("Rendering pages needs the package cryptography.", fix=install_command("html"))
    if given := os.environ.get("SWEET_FIREFOX"):
        path = shutil.which(given)
        if path is None:
            raise UsageError("There is no program of this name.", where=f"SWEET_FIREFOX={given}", fix=INSTALL_FIREFOX)
        return path
    path = shutil.which("firefox-esr") or shutil.which("firefox") or shutil.which(MACOS_FIREFOX)
    if path is None:
        raise UsageError("Rendering pages needs Firefox, and there is none.", fix=INSTALL_FIREFOX)
    return path


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
            return sum(kilobytes for group, kilobytes in _table_of_ps() if group == self.group) // 1024
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
        if not _PROC:
            return all(group != self.group for group, _ in _table_of_ps())
        return not any(map(_runs, self.members()))


def _runs(pid: int) -> bool:
    """Return whether a process has not ended; one that has stays until its parent asks for its status."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    return False


def _table_of_ps() -> list[tuple[int, int]]:
    """Return the process group and the memory in kilobytes of each process of this machine."""
    try:
        said = subprocess.run(["ps", "-axo", "pgid=,rss="], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = (line.split() for line in said.stdout.splitlines())
    return [(int(row[0]), int(row[1])) for row in rows if len(row) == 2]
