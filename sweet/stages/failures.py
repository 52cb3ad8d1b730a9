"""The items of a stage that failed, and why: the commonest reasons, and whether it is of use to go on.

Reasons that differ only in numbers count as one. A server that refuses the first `HOPELESS` items for one reason,
before any item succeeded, refuses them all: the stage tries no more of them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from sweet.errors import AGAIN, SweetError, TooManyFailures
from sweet.llm.base import RequestFailed

HOPELESS = 20
MOST_REASONS = 3
"""Reasons that are shown."""
FAILED_AGAIN = f"{AGAIN} for the failed ones"
REFUSED = "change what the server refuses: the model, its name, the key or the options"
"""What to do where servers refuse everything: the same call would fail again, which `sweet status` reads from it."""

NOTHING_TO_PREFER = "There is nothing to prefer"
"""How the error of `label` begins, which the next command is read from too."""

_NUMBER = re.compile(r"\d+")


def are_too_many(failed: int, tried: int, allowed: float) -> bool:
    """Return whether more items failed than `--fail-on-error` allows: a share of those that were tried, or a number."""
    return failed > (allowed * tried if allowed < 1 else allowed)


class Failures:
    """Counts the items that failed in one call of a stage.

    Attributes:
        count: of the failed items.
        refused: those of them that a server refused, which it would do again.
    """

    def __init__(self) -> None:
        self.count = self.refused = 0
        self._counts: Counter[str] = Counter()
        self._texts: dict[str, str] = {}

    def add(self, error: SweetError | str) -> None:
        """Count an item, by its error or by what it lacks."""
        text = error.what if isinstance(error, SweetError) else str(error)
        kind = _NUMBER.sub("#", text)
        self.count += 1
        self.refused += isinstance(error, RequestFailed) and error.is_refusal
        self._counts[kind] += 1
        self._texts.setdefault(kind, text)

    def is_hopeless(self, succeeded: int) -> bool:
        """Return whether all items have been refused so far, for one reason, and often enough."""
        return not succeeded and self.refused == self.count >= HOPELESS and len(self._counts) == 1

    def reasons(self) -> dict[str, int]:
        """Return the commonest reasons with their counts."""
        return {self._texts[kind]: count for kind, count in self._counts.most_common(MOST_REASONS)}

    def summary(self) -> str:
        """Return the commonest reasons in one line."""
        reasons = [f"{count:,} × {text.removesuffix('.')}" for text, count in self.reasons().items()]
        left = len(self._counts) - len(reasons)
        return "; ".join([*reasons, f"{left:,} other reasons"] if left else reasons)

    def too_many(self, what: str, where: Path) -> TooManyFailures:
        """Return the error of a stage in which too many items failed.

        Args:
            what: how many of them.
            where: the log of the attempt.
        """
        why = f" The reasons: {self.summary()}." if self.count else ""
        fix = REFUSED if self.count and self.refused == self.count else f"{FAILED_AGAIN}, or raise --fail-on-error"
        return TooManyFailures(f"{what} failed; those that finished are kept.{why}", where=where, fix=fix)
