"""`--notify`, which says that long work has ended.

The address is sent a JSON object for any work that has begun. What cannot be sent is a warning and never fails the
work. The object names the stage, the run and how it ended, never what a model or a server said. An address may hold a
secret, so it is removed from whatever is shown or recorded (`sweet.redaction`), and no redirect is followed with it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweet.cli.exits import as_sweet_error
from sweet.cli.options import variable
from sweet.cli.spec import Call
from sweet.errors import Interrupted, SweetError, UsageError
from sweet.inspection.status import attempt_status
from sweet.inspection.status_report import AttemptStatus
from sweet.installation import VERSION
from sweet.redaction import hide
from sweet.runs.manifest import now
from sweet.runs.process import host, process_mark
from sweet.runs.run import Run

VARIABLE = "SWEET_NOTIFY"
OFF = "off"
TIME_LIMIT = 10.0
"""Seconds in which a notification must have been sent."""


def given_address(option: str | None, command: str) -> str | None:
    """Return the address of an option or of the variable of all commands; None without one. `off` is returned as it is.

    Raises:
        UsageError: it is no address.
    """
    address = (os.environ.get(VARIABLE) or None) if option is None else option
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
        where = f"--notify, {variable(command, 'notify')} or {VARIABLE}"
        raise UsageError("The address to notify is not one of http or https.", where=where, fix="https://HOST/PATH")
    return address


@contextmanager
def notifying(call: Call[Any]) -> Iterator[None]:
    """Notify the address of the call when the block ends."""
    began, started = time.monotonic(), now()
    try:
        yield
    except BaseException as error:
        _notify(call, time.monotonic() - began, started, error)
        raise
    _notify(call, time.monotonic() - began, started, None)


def _notify(call: Call[Any], seconds: float, started: datetime, error: BaseException | None) -> None:
    address, run = call.notify, call.run
    if address is None or address == OFF or run is None:
        return
    attempt = _attempt(run, call.spec.name, started)
    if attempt is None:
        return
    code = 0 if error is None or isinstance(error, BrokenPipeError) else as_sweet_error(error).exit_code
    content = {
        "run": str(run),
        "stage": call.spec.name,
        "attempt": attempt.id,
        "status": {0: "done", Interrupted.exit_code: "interrupted"}.get(code, "failed"),
        "exit_code": code,
        "seconds": round(seconds, 1),
        "metrics": attempt.metrics,
    }
    failure = _post(address, content)
    if failure is not None:
        call.reporter.warn(f"{urlsplit(address).hostname} was not notified: {failure}.")


def _attempt(run: Path, stage: str, since: datetime) -> AttemptStatus | None:
    """Return the attempt of this call; None if it has begun none."""
    with suppress(SweetError, OSError):
        opened = Run(run)
        manifest = opened.manifest()
        begun = manifest.begun_by(os.getpid(), host(), process_mark(os.getpid()))
        attempts = [attempt for attempt in begun if attempt.started >= since]
        first = next((attempt for attempt in attempts if attempt.stage == stage), attempts[-1] if attempts else None)
        return None if first is None else attempt_status(opened, manifest, first)
    return None


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
