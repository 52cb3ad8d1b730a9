"""Says that long work has ended: `--notify`.

Work of a minute or more rings the bell of the terminal and shows a notification of the desktop, where there is one. An
address is sent a JSON object for any work that has begun. Nothing here fails the work: what cannot be sent is a
warning. The texts name the stage, the run and how it ended, never what a model or a server said. An address may hold a
secret, so it is removed from whatever is shown or recorded (`sweet.redaction`), and no redirect is followed with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweet.cli.command import Call
from sweet.cli.declaration import env_prefix
from sweet.cli.exits import as_sweet_error
from sweet.errors import Interrupted, SweetError, UsageError
from sweet.inspection.status import AttemptStatus, attempt_status
from sweet.installation import VERSION
from sweet.redaction import hide
from sweet.runs.manifest import now
from sweet.runs.process import host
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.units import format_duration
from sweet.view.text import printable

VARIABLE = "SWEET_NOTIFY"
OFF = "off"
LONG_SECONDS = 60.0
"""Work that takes at least this long rings the bell and shows a notification of the desktop."""
TIME_LIMIT = 10.0
"""Seconds in which a notification must have been sent."""


def given_address(option: str | None, command: str) -> str | None:
    """Return the address of an option or of the variable of all commands; None without one. `off` is returned as it is.

    Raises:
        UsageError: it is no address.
    """
    address = option or os.environ.get(VARIABLE) or None
    if address is None or address == OFF:
        return address
    hide(address)
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        usable = usable and (parts.port is None or parts.port > 0) and address.isascii() and address.isprintable()
    except ValueError:
        usable = False
    if not usable or " " in address:
        where = f"--notify, {env_prefix(command)}_NOTIFY or {VARIABLE}"
        raise UsageError("The address to notify is not one of http or https.", where=where, fix="https://HOST/PATH")
    return address


class Notifier:
    """Notifies of the end of one call.

    Args:
        stage: the name of the command.
        address: that is notified; `off` for no notification at all.
        quiet: neither a bell nor a notification of the desktop.
    """

    def __init__(self, stage: str, address: str | None, reporter: Reporter, *, quiet: bool) -> None:
        self.stage, self.address, self.reporter, self.quiet = stage, address, reporter, quiet
        self._began, self._started = time.monotonic(), now()

    @contextmanager
    def of(self, call: Call[Any]) -> Iterator[None]:
        """Notify of the end of the block."""
        try:
            yield
        except BaseException as error:
            self._ended(call.run, error)
            raise
        self._ended(call.run, None)

    def _ended(self, run: Path | None, error: BaseException | None) -> None:
        seconds = time.monotonic() - self._began
        if self.address == OFF or run is None:
            return
        code = _exit_code(error)
        outcome = {0: "done", Interrupted.exit_code: "interrupted"}.get(code, "failed")
        if seconds >= LONG_SECONDS and not self.quiet:
            text = f"{self.stage}: {outcome}, {format_duration(seconds)}"
            _ring()
            _show_on_desktop(printable(f"sweet {text}"), printable(str(run)))
        attempt = _attempt(run, self.stage, self._started)
        if self.address is not None and attempt is not None:
            self._send(
                self.address,
                {
                    "run": str(run),
                    "stage": self.stage,
                    "attempt": attempt.id,
                    "status": outcome,
                    "exit_code": code,
                    "seconds": round(seconds, 1),
                    "metrics": attempt.metrics,
                },
            )

    def _send(self, address: str, content: dict[str, Any]) -> None:
        failure = _post(address, content)
        if failure is not None:
            self.reporter.warn(f"{urlsplit(address).hostname} was not notified: {failure}.")


def _exit_code(error: BaseException | None) -> int:
    if error is None or isinstance(error, BrokenPipeError):
        return 0
    known = as_sweet_error(error)
    return SweetError.exit_code if known is None else known.exit_code


def _attempt(run: Path, stage: str, since: datetime) -> AttemptStatus | None:
    """Return the attempt of this call; None if it has begun none."""
    try:
        found = Run(run)
        own = found.manifest().begun_by(os.getpid(), host(), since)
    except (SweetError, OSError):
        return None
    first = next((attempt for attempt in own if attempt.stage == stage), own[-1] if own else None)
    return None if first is None else attempt_status(found, first)


def _ring() -> None:
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            sys.stderr.write("\a")
            sys.stderr.flush()


def desktop_command(title: str, text: str) -> list[str] | None:
    """Return the command that shows a notification; None where there is no desktop. The texts are arguments of it."""
    if sys.platform == "darwin":
        program = shutil.which("osascript")
        script = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")
        return program and [program, *(word for line in script for word in ("-e", line)), title, text]
    program = shutil.which("notify-send")
    has_desktop = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return [program, "--app-name=sweet", "--", title, text] if program and has_desktop else None


def _show_on_desktop(title: str, text: str) -> None:
    command = desktop_command(title, text)
    if command is not None:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(command, timeout=TIME_LIMIT, check=False, stdin=subprocess.DEVNULL, capture_output=True)


def _post(address: str, content: dict[str, Any]) -> str | None:
    """Send a JSON object, and return why it could not be sent; None if it was. Takes at most `TIME_LIMIT`."""
    import urllib.error
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    headers = {"Content-Type": "application/json", "User-Agent": f"sweet/{VERSION}"}
    request = urllib.request.Request(address, json.dumps(content).encode(), headers, method="POST")
    unanswered = f"no answer within {TIME_LIMIT:g} s"
    failures: list[str | None] = []

    def send() -> None:
        try:
            with urllib.request.build_opener(NoRedirect).open(request, timeout=TIME_LIMIT):
                failures.append(None)
        except urllib.error.HTTPError as error:
            error.close()
            failures.append(f"it answered {error.code}")
        except Exception as error:  # the text of the error may have the address
            cause = getattr(error, "reason", error)
            failures.append(unanswered if isinstance(cause, TimeoutError) else type(cause).__name__)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(TIME_LIMIT)
    return failures[0] if failures else unanswered
