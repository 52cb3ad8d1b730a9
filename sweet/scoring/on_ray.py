"""Scoring on the nodes of a Ray cluster: each opens the scorer of the run's kind, and their scores come back in order.

Rewards by different scorers are never mixed: a node whose scorer is another one (other software, another similarity) is
left out. Sandboxes may differ in strength; the weakest is recorded. A node without one cannot open its scorer and is
left out, unless `--sandbox unsafe` asks for none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sweet.cluster.nodes import open_cluster
from sweet.cluster.scheduler import Scheduler
from sweet.runs.environment import NODES
from sweet.sandbox.jail import Tier
from sweet.sandbox.stream import AHEAD
from sweet.sandbox.tiers import SAFE_TIERS
from sweet.stages.base import Silent
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Metric, Score, ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory

TOGETHER = 32
"""Trajectories that go to a node together."""

AT_ONCE = AHEAD // TOGETHER
"""Chunks that a node has: as many answers as a sandbox looks ahead, so that one that hangs holds up no others."""

SANDBOX = "sandbox"
_STRONGEST_FIRST: tuple[Tier, ...] = (*SAFE_TIERS, "unsafe")


@contextmanager
def open_spread_scorer(address: str, kind: str, request: ScoringRequest) -> Iterator[SpreadScorer]:
    """Open the scorer of a kind of task on every node of the cluster.

    Raises:
        SweetError: there is no cluster, or no node on which the scorer can be opened.
    """
    agreed = _Agreed()
    opening = partial(_open_on_node, kind, replace(request, say=Silent().say))  # nobody reads what is said on a node
    with (
        open_cluster(address) as cluster,
        Scheduler[Trajectory, Score](
            cluster, opening, chunks_per_worker=AT_ONCE, accept=agreed.accept, say=request.say
        ) as spread,
    ):
        agreed.fixed = True
        yield SpreadScorer(spread, agreed)


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

    def results(self, items: Iterable[Trajectory]) -> Iterator[Score]:
        for _, score in self._scorer.score(items):
            yield score


@dataclass
class _Agreed:
    """What the nodes' scorers have in common.

    Attributes:
        told: by the first of them.
        sandbox: the weakest of their sandboxes; None where they have none.
        fixed: what is recorded does not change any more.
    """

    told: Mapping[str, Any] | None = None
    sandbox: Tier | None = None
    fixed: bool = False

    def accept(self, name: str, told: Mapping[str, Any]) -> str | None:
        """Why a scorer is of no use beside the others; None where it is."""
        if self.told is None:
            self.told, self.sandbox = told, told[SANDBOX]
            return None
        ours, theirs = _decisive(self.told), _decisive(told)
        if ours != theirs:
            differ = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
            return f"its scorer is another one: {', '.join(f'{key} {theirs.get(key)}' for key in differ)}"
        tier = told[SANDBOX]
        if tier is not None and self.sandbox is not None:
            weaker = max(tier, self.sandbox, key=_STRONGEST_FIRST.index)
            if self.fixed and weaker != self.sandbox:
                return f"it came later, and its sandbox {tier} is weaker than {self.sandbox}, which is recorded"
            self.sandbox = weaker
        return None


def _decisive(told: Mapping[str, Any]) -> dict[str, Any]:
    """What decides rewards."""
    return {"scorer": told["name"], **{name: value for name, value in told["meta"].items() if name != SANDBOX}}


class SpreadScorer:
    """Implements sweet.tasks.scores.TrajectoryScorer."""

    def __init__(self, spread: Scheduler[Trajectory, Score], agreed: _Agreed) -> None:
        assert agreed.told is not None
        told, weakest = agreed.told, {} if agreed.sandbox is None else {SANDBOX: agreed.sandbox}
        self._spread = spread
        self.name: str = told["name"]
        self.option: str = told["option"]
        self.meta: Mapping[str, Any] = told["meta"] | weakest
        self.metrics: Mapping[str, Metric] = told["metrics"]
        self.environment: dict[str, Any] = told["environment"] | weakest

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Each trajectory with its score, in their order; at the end `environment` tells what each node did."""
        sent: deque[Trajectory] = deque()

        def items() -> Iterator[Trajectory]:
            for trajectory in trajectories:
                sent.append(trajectory)
                yield trajectory

        for score in self._spread.results(items(), TOGETHER, lambda trajectory: trajectory.task.id):
            yield sent.popleft(), score
        self.environment[NODES] = self._spread.record(SANDBOX)
