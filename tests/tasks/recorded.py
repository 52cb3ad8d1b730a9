"""Record what a sandbox runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Execution, Program


def watch(box: Sandbox, monkeypatch: pytest.MonkeyPatch, note: Callable[[Program], None]) -> None:
    """Pass everything that the sandbox takes from now on to `note`."""
    stream = box.stream

    def noted(programs: Iterable[Program]) -> Iterator[Execution]:
        def each() -> Iterator[Program]:
            for program in programs:
                note(program)
                yield program

        return stream(each())

    monkeypatch.setattr(box, "stream", noted)
