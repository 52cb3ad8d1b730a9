"""The type of a hostile answer, and the list of all of them.

In a source, `@NAME@` is replaced by a value of the run: MARK (a name for anything left behind), FOLDER (a folder of the
user with the file `secret`), PARENT (the process of the sandbox), TCP, UDP and UNIX (addresses with a listener). The
reference returns a text of the form `expected-` and 16 hex digits, new in every run.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Hostile:
    """One answer; `f()` is called.

    Attributes:
        name: unique.
        source: it returns "done" only where it has achieved what it must not.
        outcome: outcomes of its score that are right, separated by |.
        needs_filter: only the seccomp filter stops it, and it is harmless without.
    """

    name: str
    source: str
    outcome: str = "failed|error"
    needs_filter: bool = False


def hostile(name: str, source: str, outcome: str = "failed|error", *, needs_filter: bool = False) -> Hostile:
    return Hostile(name, textwrap.dedent(source).strip() + "\n", outcome, needs_filter)


def deed(name: str, imports: str, *lines: str, needs_filter: bool = False) -> Hostile:
    """An answer that does `lines` and returns "done" if none of them raises."""
    body = "".join(f"    {line}\n" for line in lines)
    return Hostile(name, f"import {imports}\n\ndef f():\n{body}    return 'done'\n", needs_filter=needs_filter)
