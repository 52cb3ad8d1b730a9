"""Score on the nodes of a Ray cluster: each node opens the scorer of the run's kind, and scores are returned in order.

Rewards by different scorers are never mixed: a node whose scorer differs (other software, another similarity) is
excluded. Sandboxes may differ in strength; the weakest is recorded. A node without a sandbox cannot open its scorer and
is excluded, unless `--sandbox unsafe` is given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sweet.cluster.nodes import open_cluster
from sweet.cluster.scheduler import Scheduler
from sweet.runs.environment import NODES
from sweet.sandbox.program import Tier
from sweet.sandbox.tiers import SAFE_TIERS
from sweet.stages.base import Silent
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Metric, Score, ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory

TOGETHER = 64
"""Dialogues of one chunk."""

AT_ONCE = 4
"""Chunks of a node at once, so that an answer that hangs delays no others."""

SANDBOX = "sandbox"
_STRONGEST_FIRST: tuple[Tier, ...] = (*SAFE_TIERS, "unsafe")


@contextmanager
def open_ray_scorer(address: str, kind: str, request: ScoringRequest) -> Iterator[RayScorer]:
    """Open the scorer of a kind of task on every node of the cluster.

    Raises:
        SweetError: there is no cluster, or no node on which the scorer can be opened.
    """
    agreed = _Agreed()
    opening = partial(_open_on_node, kind, replace(request, say=Silent().say))  # the output of a node is not read
    with (
        open_cluster(address) as cluster,
        Scheduler[Trajectory, Score](
            cluster, opening, chunks_per_worker=AT_ONCE, accept=agreed.accept, say=request.say
        ) as scheduler,
    ):
        agreed.fixed = True
        yield RayScorer(scheduler, agreed)


@contextmanager
def _open_on_node(kind: str, request: ScoringRequest, cores: int) -> Iterator[_Scoring]:
    with task_kind(kind).open_scorer(replace(request, cores=cores)) as scorer:
        yield _Scoring(scorer)


class _Scoring:
    """Implements sweet.cluster.worker.Work."""

    def __init__(self, scorer: TrajectoryScorer) -> None:
        self._scorer = scorer
        self.info = {
            "name": scorer.name,
            "option": scorer.option,
            "meta": dict(scorer.meta),
            "environment": dict(scorer.environment),
            "metrics": dict(scorer.metrics),
            SANDBOX: scorer.meta.get(SANDBOX),
        }

    def results(self, items: Sequence[Trajectory]) -> list[Score]:
        return [score for _, score in self._scorer.score(items)]


@dataclass
class _Agreed:
    """What the nodes' scorers have in common.

    Attributes:
        first: the description of the first scorer.
        sandbox: the weakest of their sandboxes; None if they have none.
        fixed: the recorded values can no longer change.
    """

    first: Mapping[str, Any] | None = None
    sandbox: Tier | None = None
    fixed: bool = False

    def accept(self, name: str, info: Mapping[str, Any]) -> str | None:
        """Return why a scorer cannot be used with the others; None if it can."""
        if self.first is None:
            self.first, self.sandbox = info, info[SANDBOX]
            return None
        ours, theirs = _decisive(self.first), _decisive(info)
        if ours != theirs:
            differ = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
            return f"its scorer differs: {', '.join(f'{key} {theirs.get(key)}' for key in differ)}"
        tier = info[SANDBOX]
        if tier is not None and self.sandbox is not None:
            weaker = max(tier, self.sandbox, key=_STRONGEST_FIRST.index)
            if self.fixed and weaker != self.sandbox:
                return f"it joined later, and its sandbox {tier} is weaker than the recorded {self.sandbox}"
            self.sandbox = weaker
        return None


def _decisive(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return what affects rewards."""
    return {"scorer": info["name"], **{name: value for name, value in info["meta"].items() if name != SANDBOX}}


class RayScorer:
    """Implements sweet.tasks.scores.TrajectoryScorer."""

    def __init__(self, scheduler: Scheduler[Trajectory, Score], agreed: _Agreed) -> None:
        assert agreed.first is not None
        info, weakest = agreed.first, {} if agreed.sandbox is None else {SANDBOX: agreed.sandbox}
        self._scheduler = scheduler
        self.name: str = info["name"]
        self.option: str = info["option"]
        self.meta: Mapping[str, Any] = info["meta"] | weakest
        self.metrics: Mapping[str, Metric] = info["metrics"]
        self.environment: dict[str, Any] = info["environment"] | weakest

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Yield each trajectory with its score, in order; afterwards `environment` records what each node did."""
        sent, scored = itertools.tee(trajectories)
        yield from zip(scored, self._scheduler.results(sent, TOGETHER), strict=True)
        self.environment[NODES] = self._scheduler.record(SANDBOX)
