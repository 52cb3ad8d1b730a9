"""Every error that `sweet` raises on purpose.

    SweetError                  exit 1   the stage failed
    ├── UsageError              exit 2   a flag, a configuration, a run or a file is invalid
    │   └── InputError          exit 2   an input file is invalid, with the line if it is known
    ├── ServerError             exit 3   a server could not be reached: the same command may work later
    ├── NotPushed           exit 1   a model was trained, and the hub did not take it
    ├── TooManyFailures         exit 4   more items failed than was allowed; those that finished are kept
    └── Interrupted             exit 130 stopped by the user; finished work is kept

An error says three things: what is wrong, where, and what fixes it. Nothing below the command line prints: it raises
one of these, and `sweet.cli` draws the panel, and with `--json` prints it as an object. Any other exception is a bug in
`sweet`. Each of the three texts may be a `sweet.hints.Hint`, which names options as flags to users of the command line
and as arguments to users of the package. API keys and passwords are removed from all three (`sweet.redaction`): a
server may repeat them in its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweet.hints import Hint, in_python
from sweet.redaction import redacted


class SweetError(Exception):
    """An error meant for the user.

    Args:
        what: one or two sentences, what is wrong.
        where: the file, key, address or artifact it concerns.
        fix: the command or the change that fixes it.
    """

    title = "The stage failed"
    exit_code = 1
    found: Mapping[str, Any] | None = None
    """What the call found in spite of the error, which `--json` prints with the error as one object."""

    def __init__(self, what: str, *, where: str | Path | None = None, fix: str | None = None) -> None:
        super().__init__(_shown(what))
        self.what = _shown(what)
        self.where = None if where is None else _shown(str(where) if isinstance(where, Path) else where)
        self.fix = None if fix is None else _shown(fix)

    def __str__(self) -> str:
        """The error for users of the package: options are arguments."""
        return self.worded(in_python)

    def worded(self, worded: Callable[[str], str]) -> str:
        """Return the error on one line, each of its texts as `worded` returns it."""
        parts = [worded(self.what)]
        if self.where:
            parts.append(f"where: {worded(self.where)}")
        if self.fix:
            parts.append(f"try: {worded(self.fix)}")
        return " · ".join(parts)


class UsageError(SweetError):
    """A flag, a configuration, a run or a file is invalid."""

    title = "Invalid usage"
    exit_code = 2


class InputError(UsageError):
    """An input file is invalid. `line` counts from 1."""

    title = "Invalid input"

    def __init__(self, what: str, *, path: str | Path, line: int | None = None, fix: str | None = None) -> None:
        super().__init__(what, where=f"{path}, line {line}" if line else path, fix=fix)
        self.path = Path(path)
        self.line = line


class ServerError(SweetError):
    """A server could not be reached, or stopped answering."""

    title = "A server could not be reached"
    exit_code = 3


class TooManyFailures(SweetError):
    """More items failed than `--fail-on-error` allows.

    Attributes:
        result: the result of the stage, a sweet.stages.base.StageResult; None where it stopped before its end.
    """

    title = "Too many failures"
    exit_code = 4
    result: Any = None


class NotPushed(SweetError):
    """A model was trained and is kept, and could not be pushed to the model hub. `fix` is the command that pushes it.

    Attributes:
        result: the result of the training, a sweet.stages.base.StageResult.
    """

    title = "The model was not pushed"
    result: Any = None


class Interrupted(SweetError):
    """The user stopped the stage, or a limit of the user's did. Finished work is kept; `fix` is the command that
    resumes.

    Args:
        needs: an option without which the resumed call would stop again, such as a higher limit.
    """

    title = "Stopped"
    exit_code = 130

    def __init__(
        self, what: str, *, where: str | Path | None = None, fix: str | None = None, needs: str | None = None
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.needs = needs


def _shown(text: str) -> str:
    """Return a text without keys, in each of its wordings."""
    return Hint.of(redacted(text), redacted(text.python)) if isinstance(text, Hint) else redacted(text)


def described(error: BaseException) -> str:
    """Return the class and the first line of an unexpected error."""
    return f"{type(error).__name__}: {first_line(error)}" if str(error).strip() else type(error).__name__


def for_command_line(error: BaseException) -> str:
    """Return what `str(error)` says, with options as flags: for what the program itself shows or records."""
    return error.worded(str) if isinstance(error, SweetError) else str(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; its class if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
