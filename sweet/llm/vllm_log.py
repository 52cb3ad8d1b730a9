"""The error that ended a vllm, found in its log.

vllm runs in several processes, and the log has the tracebacks of all: that of the process that failed, and those of
the others, which fail because of it and end the log. Each line may begin with its process and with level, time and
place, as in `(EngineCore_DP0 pid=12) ERROR 11-27 10:00:00 [core.py:842] ValueError: …`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_LINES, LONGEST_LINE = 6, 400
"""Lines of an error that are shown, and characters of each."""

_LINE = re.compile(
    r"(?P<process>\([\w. -]+ pid=\d+\) )?"
    r"(?P<place>(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \S+ \S+ \[[^\]]*\] ?)?"
    r"(?:\[rank\d+\]: ?)?"
    r"(?P<text>.*)"
)
_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:: |:?$)|[\w .-]+: error: ")
"""The line of a traceback that names the error, or that of a wrong command line."""
_CHAINED = re.compile(r"(?:During handling of|The) above exception")
"""Before the next traceback of one error."""
_CONSEQUENCE = re.compile(
    r"root cause|initialization failed|EngineDead|(?:Cancelled|BrokenPipe|ConnectionReset|EOF|DistNetwork)Error"
)


def root_cause(lines: Iterable[str], *, ran: bool = False) -> list[str]:
    """Return the lines of the error that the others follow from; none if there is no error.

    Args:
        ran: whether the server had answered before, so that earlier errors in its log did not end it.
    """
    errors: list[list[str]] = []
    latest: dict[str, list[str]] = {}  # of each process
    goes_on: dict[str, str] = {}  # the place of the error whose text goes on, by process
    chained: set[str] = set()
    for line in lines:
        process, place, text = _LINE.findall(line)[0]
        if _ERROR.match(text):
            if process not in chained or process not in latest:
                latest[process] = []
                errors.append(latest[process])
            latest[process][:] = [text[:LONGEST_LINE]]
            goes_on[process] = place
            chained.discard(process)
        elif _CHAINED.match(text):
            chained.add(process)
            goes_on.pop(process, None)
        elif text.startswith(("Traceback ", "Process ")) or goes_on.get(process) != place:
            goes_on.pop(process, None)
        elif text and len(latest[process]) < MOST_LINES:
            latest[process].append(text[:LONGEST_LINE])
    causes = [error for error in errors if not _CONSEQUENCE.search(error[0])] or errors
    return causes[-1 if ran else 0] if causes else []
