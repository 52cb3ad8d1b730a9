"""Lets the Firefoxes of a whole run start from the cache that the first one has filled.

A new profile has no startup cache, and a browser compiles the scripts of its own window again: a quarter of the
processor time of its start. A program of its name, first in the `PATH`, copies the cache, where there is one, into the
new profile and becomes Firefox. The cache is filled by one start, beside the first tests (`filling`). Firefox uses it
only if it is its own, of the same build; what pages show does not depend on it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NAMES = ("firefox-esr", "firefox")
CACHE = "firefox-cache"
BUILD, STARTUP = "compatibility.ini", "startupCache"
"""What is kept of the first profile: for which build the cache is, and the cache."""
FILLED = ("scriptCache.bin", "urlCache.bin")
"""Files of the cache that are written last."""
LONGEST = 90.0
"""Seconds that the first start may take."""

PROGRAM = """#!/bin/sh
for word in "$@"; do
  case $last in -profile | --profile) profile=$word ;; esac
  last=$word
done
if [ -n "$profile" ] && [ -d '{cache}' ]; then cp -r '{cache}/.' "$profile"; fi
exec '{firefox}' "$@"
"""


def install(home: Path) -> str | None:
    """Put the program into a folder of this home, and that in front of this process's PATH. Return the real Firefox;
    None if there is none."""
    firefox = next(filter(None, map(shutil.which, NAMES)), None)
    if firefox is None or "'" in f"{home}{firefox}":
        return None
    folder = home / "bin"
    folder.mkdir()
    program = folder / Path(firefox).name
    program.write_text(PROGRAM.format(cache=home / CACHE, firefox=firefox))
    program.chmod(0o755)
    os.environ["PATH"] = os.pathsep.join([str(folder), os.environ["PATH"]])
    return firefox


@contextmanager
def filling(home: Path, firefox: str) -> Iterator[None]:
    """Fill the cache in this home, beside what is done in the block."""
    ended = threading.Event()
    thread = threading.Thread(target=_fill, args=(home, firefox, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _fill(home: Path, firefox: str, ended: threading.Event) -> None:
    from sweet.render.firefox import command, environment_of, preferences

    profile = home / "first-profile"
    profile.mkdir()
    settings = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in preferences(9).items())
    (profile / "user.js").write_text("".join(settings))
    browser = subprocess.Popen(
        command(firefox, profile),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment_of(profile),
        start_new_session=True,
    )
    try:
        ends = time.monotonic() + LONGEST
        while time.monotonic() < ends:
            if all((profile / STARTUP / name).exists() for name in FILLED) or ended.wait(0.5):
                break
        ended.wait(2)  # until they are whole
    finally:
        with suppress(ProcessLookupError):
            os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
    if all((profile / STARTUP / name).exists() for name in FILLED) and not ended.is_set():
        made = home / f"{CACHE}-made"
        made.mkdir()
        shutil.copy(profile / BUILD, made)
        shutil.copytree(profile / STARTUP, made / STARTUP)
        made.rename(home / CACHE)
    shutil.rmtree(profile, ignore_errors=True)
