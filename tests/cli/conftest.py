"""Calls of the program in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from sweet.cli.app import app, run
from tests.cli import toy as toys


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Program = Callable[..., Outcome]


@pytest.fixture
def toy(workplace: Any, capsys: pytest.CaptureFixture[str]) -> Program:
    """The toy command line, called in an empty folder."""
    return _program(capsys, toy=True)


@pytest.fixture
def sweet(workplace: Any, capsys: pytest.CaptureFixture[str]) -> Program:
    """The real command line, called in an empty folder."""
    return _program(capsys, toy=False)


def _program(capsys: pytest.CaptureFixture[str], *, toy: bool) -> Program:
    def call(*words: str) -> Outcome:
        code = run(words, toys.program() if toy else app)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
