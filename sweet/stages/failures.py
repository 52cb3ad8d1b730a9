"""Runs coroutines together; of their errors one is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from sweet.errors import SweetError

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
