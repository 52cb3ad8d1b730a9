"""Every error that `sweet` raises on purpose.

    SweetError                  exit 1   the stage failed
    ├── UsageError              exit 2   a flag, a configuration, a run or a file is invalid
    │   └── InputError          exit 2   an input file is invalid, with the line if it is known
    ├── ServerError             exit 3   a server could not be reached: the same command may work later
    ├── TooManyFailures         exit 4   more items failed than was allowed; those that finished are kept
    └── Interrupted             exit 130 stopped by the user; finished work is kept

An error says three things: what is wrong, where, and what fixes it. Nothing below the command line prints: it raises
one of these, and `sweet.cli` draws the panel, and with `--json` prints it as an object. Any other exception is a bug in
`sweet`. An option is named by its flag: `--fail-on-error` is the field `fail_on_error` of a configuration. API keys and
passwords are removed from all three texts (`sweet.redaction`): a server may repeat them in its messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweet.redaction import redacted

if TYPE_CHECKING:
    from pydantic import ValidationError


AGAIN = "run the same command again"
"""The end of a fix after which a stage goes on; `Run.attempt` replaces it where a training would begin again."""


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
        super().__init__(redacted(what))
        self.what = redacted(what)
        self.where = None if where is None else redacted(str(where) if isinstance(where, Path) else where)
        self.fix = None if fix is None else redacted(fix)

    def __str__(self) -> str:
        """The error on one line."""
        parts = [self.what]
        if self.where:
            parts.append(f"where: {self.where}")
        if self.fix:
            parts.append(f"try: {self.fix}")
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


INTERRUPTED_BY = ["Ctrl-C"]
"""What a KeyboardInterrupt of this process comes from: this, or last the signal that is treated like it."""


def described(error: BaseException) -> str:
    """Return the class and the first line of an unexpected error."""
    return f"{type(error).__name__}: {first_line(error)}" if str(error).strip() else type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; its class if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def not_value(value: object) -> str:
    """Return `, not VALUE`, with which the sentence on a value ends, of a long one its beginning; an empty text of what
    says nothing."""
    says_nothing = not isinstance(value, str | int | float) or value == ""
    return "" if says_nothing else f", not {value!r:.200}"


def first_problem(error: ValidationError) -> tuple[str, str]:
    """Return the first thing that is wrong with what pydantic has checked: its place, `table.key`, and what it is."""
    first = error.errors(include_url=False)[0]
    return ".".join(map(str, first["loc"])), in_words(first)


def place_and_problem(error: ValidationError, whole: str = "") -> str:
    """Return `PLACE: PROBLEM` of the first thing that is wrong. What is wrong with everything has the place `whole`."""
    place, what = first_problem(error)
    return ": ".join(filter(None, (place or whole, what)))


def in_words(problem: Mapping[str, Any]) -> str:
    """Return what pydantic finds wrong with a value, to be read after its name: `should be a valid integer`."""
    what = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    what = what.replace("valid tuple", "valid list")  # as JSON and TOML call it
    return what.partition(" or instance of ")[0].rstrip(".")  # a class of ours
