"""Score trajectories of code tasks: run each answer against the hidden tests of its task.

A dialogue that ended by a fault is scored as one without an answer.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sweet.runs.cache import cache_folder
from sweet.sandbox.pool import Sandbox
from sweet.sandbox.tiers import open_sandbox
from sweet.tasks.code.expected import Scorer
from sweet.tasks.code.metrics import UPSTREAM_METRICS
from sweet.tasks.code.scoring import CodeScorer
from sweet.tasks.scores import METRICS, Score, ScoringRequest, delivered, scored
from sweet.tasks.trajectory import Trajectory


@contextmanager
def open_code_scorer(request: ScoringRequest) -> Iterator[CodeEvaluation]:
    """Open the sandbox and a scorer that uses it.

    Raises:
        SweetError: no sandbox works on this machine.
    """
    with open_sandbox(request.sandbox, request.workers, cores=request.cores) as box:
        yield CodeEvaluation(box, request)


class CodeEvaluation:
    """Implements sweet.tasks.scores.TrajectoryScorer; with the scorer `both`, the rewards are those of `strict`."""

    def __init__(self, box: Sandbox, request: ScoringRequest) -> None:
        self._box, self._tolerance = box, request.tolerance
        self._both = request.scorer == "both"
        self.name: Scorer = "upstream" if request.scorer == "upstream" else "strict"
        self.option = f"--scorer {self.name}"
        self.meta: dict[str, Any] = {"scorer": self.name, "tolerance": request.tolerance, "sandbox": box.tier}
        self.environment: dict[str, Any] = self.meta | {"scorer": request.scorer}
        self.metrics = {**METRICS, **(UPSTREAM_METRICS if self._both else {})}

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Yield each trajectory with its score. Two scorers share the sandbox, and each reads ahead of the results."""
        rows = _SharedReader(trajectories, 3)
        scorer = CodeScorer(self._box, self.name, self._tolerance, cache_folder("expected"))
        other = CodeScorer(self._box, "upstream", folder=cache_folder("expected")) if self._both else None
        published = itertools.repeat(None) if other is None else other.score(map(delivered, rows.reader(2)))
        verdicts = scorer.score(map(delivered, rows.reader(1)))
        for trajectory, verdict, upstream in zip(rows.reader(0), verdicts, published, strict=False):
            yield trajectory, scored(trajectory, verdict, None if upstream is None else upstream.reward)


class _SharedReader:
    """An iterable that several threads read, each completely and independently of the others."""

    def __init__(self, items: Iterable[Trajectory], readers: int) -> None:
        self._items = iter(items)
        self._ahead: list[deque[Trajectory]] = [deque() for _ in range(readers)]
        self._lock = threading.Lock()

    def reader(self, number: int) -> Iterator[Trajectory]:
        unread = self._ahead[number]
        while True:
            with self._lock:
                if not unread:
                    for item in itertools.islice(self._items, 1):
                        for queue in self._ahead:
                            queue.append(item)
                if not unread:
                    return
                item = unread.popleft()
            yield item
