"""Failed items of a stage: how many are tolerated, and which error of a task group is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from sweet.errors import SweetError, TooManyFailures
from sweet.hints import Hint, option
from sweet.stages.base import StageResult

T = TypeVar("T")


async def run_all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run the coroutines and return their results, in order; if one raises, cancel the others and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise first_cause(errors) from errors
    return [task.result() for task in tasks]


def first_cause(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of a group to show: the first one for the user (SweetError), else the first."""
    leaves = [first_cause(e) if isinstance(e, BaseExceptionGroup) else e for e in errors.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, SweetError)), leaves[0])


def check_failures(failed: int, tried: int, allowed: float, *, what: str, log: Path, result: StageResult) -> None:
    """Raise TooManyFailures if more items failed than allowed.

    Args:
        allowed: below 1 a share of the items tried, else a number.
    """
    if failed > (allowed * tried if allowed < 1 else allowed):
        error = TooManyFailures(
            f"{failed} of {tried} {what} failed; those that finished are kept.",
            where=log,
            fix=Hint("run the same command again for the failed ones, or raise ", option("fail_on_error")),
        )
        error.result = result
        raise error
