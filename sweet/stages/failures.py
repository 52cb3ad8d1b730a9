"""What stages do about items that fail: how many are allowed, and which error of a task group is shown."""

from __future__ import annotations

from pathlib import Path

from sweet.errors import SweetError, TooManyFailures
from sweet.hints import Hint, option
from sweet.stages.base import StageResult


def first_cause(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to show for a group: the first one meant for the user, else the first."""
    leaves = [first_cause(e) if isinstance(e, BaseExceptionGroup) else e for e in errors.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, SweetError)), leaves[0])


def check_failures(failed: int, tried: int, allowed: float, *, what: str, log: Path, result: StageResult) -> None:
    """Raise TooManyFailures where more items failed than `allowed`: a share of those tried below 1, else a count."""
    if failed > (allowed * tried if allowed < 1 else allowed):
        error = TooManyFailures(
            f"{failed} of {tried} {what} failed; those that finished are kept.",
            where=log,
            fix=Hint("run the same command again for the failed ones, or raise ", option("fail_on_error")),
        )
        error.result = result
        raise error
